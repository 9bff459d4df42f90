"""What formulas and programs should say, from the definitions, position by position.

Strings are symbol ids [count, n]. No formula, program, prefix sum or lookup is involved.
"""

import itertools

import numpy as np

from jax_models.languages import DyckWords, FlipFlop, Majority

NOWHERE = -1
# Languages whose words are prefixes that a program of the library accepts.
LANGUAGES = {
    "majority": Majority(),
    "paired_counts": DyckWords(1),  # as many a as b, and no prefix with more b than a
    "flip_flop": FlipFlop(),
    **{f"dyck{k}": DyckWords(k) for k in (1, 2, 3)},
}
HOPS = {"induction_head": 1, "two_hop": 2}


def all_strings(num_symbols, length):
    """All strings of a length."""
    ids = range(num_symbols)
    return np.array(list(itertools.product(ids, repeat=length)), np.int32)


def gram_starts(strings, gram):
    """Where a word begins [count, n]."""
    k = len(gram)
    rows = [
        [row[i : i + k] == list(gram) for i in range(len(row))]
        for row in strings.tolist()
    ]
    return np.array(rows).reshape(strings.shape)


def gram_ends(strings, gram):
    """Where a word ends [count, n]."""
    return gram_starts(strings[:, ::-1], gram[::-1])[:, ::-1]


def find(word, i):
    """The last j in 2..i with w_{j-1} = w_i, positions from 1; 0 if there is none."""
    return max([j for j in range(2, i + 1) if word[j - 2] == word[i - 1]], default=0)


def hop_outputs(strings, num_hops):
    """The symbols [count, n] that hops lead to, `NOWHERE` where one has no place to go.

    find_1 = find, and find_k = find_1 ∘ find_{k−1} (docs/logic.md, section 3).
    """

    def output(word, i):
        for _ in range(num_hops):
            i = find(word, i) if i else 0
        return word[i - 1] if i else NOWHERE

    places = range(1, strings.shape[1] + 1)
    return np.array([[output(row, i) for i in places] for row in strings.tolist()])


def every_prefix(contains, strings):
    """Membership of each prefix of some strings [count, n]."""
    lengths = range(1, strings.shape[1] + 1)
    return np.stack([contains(strings[:, :n]) for n in lengths], axis=1)


def expected(name, alphabet, strings):
    """What a program of the library should say at every position [count, n]."""
    if name in HOPS:
        return np.array([*alphabet, "#"])[hop_outputs(strings, HOPS[name])]
    return every_prefix(LANGUAGES[name].contains, strings)
