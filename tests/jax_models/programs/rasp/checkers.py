"""What the programs of the library should say, from the definitions of the tasks.

Each takes a word, a sequence of symbols, and answers for its last position; no program,
prefix sum or lookup is involved.
"""


def is_dyck(word):
    stack = []
    closing = dict(zip("([{<", ")]}>", strict=True))
    for symbol in word:
        if symbol in closing:
            stack.append(closing[symbol])
        elif not stack or stack.pop() != symbol:
            return False
    return not stack


def has_majority(word):
    return 2 * sum(symbol == "1" for symbol in word) > len(word)


def is_paired(word):
    """As many a as b, and no prefix with more b than a."""
    balances = [
        sum(1 if symbol == "a" else -1 for symbol in word[:end])
        for end in range(len(word) + 1)
    ]
    return min(balances) >= 0 and balances[-1] == 0


def find(word, i):
    """The last j in 2..i with w_{j-1} = w_i, positions from 1; 0 if there is none."""
    return max([j for j in range(2, i + 1) if word[j - 2] == word[i - 1]], default=0)


def follow(word, hops):
    """The symbol at the end of the chain find, find of find, ...; '#' if it breaks."""
    i = len(word)
    for _ in range(hops):
        i = find(word, i) if i else 0
    return word[i - 1] if i else "#"


def is_flip_flop(word):
    """Pairs of an instruction and a bit: w first, r last, each r reads the latest w."""
    if not len(word) or len(word) % 2:
        return False
    pairs = list(zip(word[::2], word[1::2], strict=True))
    if any(ins not in "wri" or bit not in "01" for ins, bit in pairs):
        return False
    if pairs[0][0] != "w" or pairs[-1][0] != "r":
        return False
    memory = None
    for ins, bit in pairs:
        if ins == "w":
            memory = bit
        elif ins == "r" and bit != memory:
            return False
    return True


CHECKERS = {
    "majority": has_majority,
    "paired_counts": is_paired,
    "induction_head": lambda word: follow(word, 1),
    "flip_flop": is_flip_flop,
    "dyck1": is_dyck,
    "dyck2": is_dyck,
    "dyck3": is_dyck,
    "two_hop": lambda word: follow(word, 2),
}


def expected(name, alphabet, tokens):
    """The answer at every position of one string."""
    word = [alphabet[token] for token in tokens]
    return [CHECKERS[name](word[: i + 1]) for i in range(len(word))]
