"""Programs for the languages and tasks of the literature, as texts.

Each computes at every position a property of the prefix that ends there; the tests
compare it with a direct check of the property. DYCK-k has balanced brackets of k types.

Source:
    docs/rasp.md, section 8.
"""

from collections.abc import Mapping

from jax_models.errors import InputError
from jax_models.languages.dyck import BRACKETS

MAJORITY = """
# More 1s than 0s among the first i bits.
sum = psum[j<=i] ((in = '1') - (in = '0'))
out = sum > 0
return out
"""

PAIRED_COUNTS = """
# As many a as b, and never more b than a: a prefix sum, compared and looked back at.
depth = psum[j<=i] ((in = 'a') - (in = 'b'))
below = depth < 0
broken = right_j[j<=i, below(j)] true : false
out = depth = 0 and not broken
return out
"""

INDUCTION_HEAD = """
# What followed the last earlier occurrence of the symbol at i; '#' if there is none.
before = right_j[j<i, true] in(j) : '#'
out = right_j[j<=i, before(j) = in(i)] in(j) : '#'
return out
"""

FLIP_FLOP = """
# Instructions w, r, i in turn with bits; after r stands the latest bit after w.
ins = in in {'w', 'r', 'i'}
before = right_j[j<i, true] in(j) : '#'
turn = if ins then before in {'0', '1', '#'} else before in {'w', 'r', 'i'}
written = before = 'w' and not ins
bit = right_j[j<i, written(j)] in(j) : '#'
wrong = not turn or (pos = 1 and in != 'w') or (before = 'r' and not ins and in != bit)
bad = right_j[j<=i, wrong(j)] true : false
out = not bad and before = 'r' and not ins
return out
"""


def dyck_program(num_types: int) -> str:
    """Returns the program that tells which prefixes are words of DYCK-k.

    `key` is the same at the two ends of a matched pair. Up to the first error the path
    between a closing bracket and its mate stays at a depth of at least that key and the
    brackets inside have greater keys, so the last earlier bracket of the same key is
    the mate. From the first error on only `bad` matters.

    Args:
        num_types: k, from 1 to 4.

    Raises:
        InputError: for another number of types.

    Source:
        docs/rasp.md, section 8.
    """
    if not 1 <= num_types <= len(BRACKETS):
        raise InputError(
            f"there are programs for DYCK with 1 to {len(BRACKETS)} types of brackets, "
            f"got {num_types}"
        )
    pairs = BRACKETS[:num_types]
    opening = ", ".join(repr(pair[0]) for pair in pairs)
    matched = " or ".join(
        f"(mate = {pair[0]!r} and in = {pair[1]!r})" for pair in pairs
    )
    return f"""
l = in in {{{opening}}}
r = not l
depth = psum[j<=i] (l - r)
key = depth + r
mate = right_j[j<i, key(j) = key(i)] in(j) : '#'
err = r and (depth < 0 or not ({matched}))
bad = right_j[j<=i, err(j)] true : false
out = depth = 0 and not bad
return out
"""


def k_hop_program(num_hops: int) -> str:
    """Returns the program of k-hop induction: the k-th symbol along the chain.

    find(i) is the last j <= i with w_{j-1} = w_i, and the chain is find, find of find,
    and so on; the result is the symbol at its end, '#' where the chain breaks off, so
    that '#' should not be a symbol of the alphabet.

    Args:
        num_hops: k >= 1.

    Raises:
        InputError: for k below 1.

    Source:
        docs/rasp.md, section 8.
    """
    if num_hops < 1:
        raise InputError(f"k-hop induction needs k >= 1, got {num_hops}")
    lines = ["before = right_j[j<i, true] in(j) : '#'"]
    symbol = "in"
    for hop in range(1, num_hops + 1):
        lines.append(f"hop{hop} = right_j[j<=i, before(j) = in(i)] {symbol}(j) : '#'")
        symbol = f"hop{hop}"
    return "\n".join([*lines, f"return {symbol}", ""])


PROGRAMS: Mapping[str, tuple[str, str]] = {
    "majority": (MAJORITY, "01"),
    "paired_counts": (PAIRED_COUNTS, "ab"),
    "induction_head": (INDUCTION_HEAD, "abc"),
    "flip_flop": (FLIP_FLOP, "wri01"),
    "dyck1": (dyck_program(1), "()"),
    "dyck2": (dyck_program(2), "()[]"),
    "dyck3": (dyck_program(3), "()[]{}"),
    "two_hop": (k_hop_program(2), "abc"),
}
"""Programs by name, each with its alphabet."""
