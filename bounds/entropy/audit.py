"""Tables of numbers, as Markdown, that check Theorem 6 (Hahn 2020) in its corrected form.

H_n is the number of open brackets after n symbols of 2DYCK, and P_0(n) the probability
that x_n closes a bracket and H_n > 0. In the restarted chain a new word begins where one
ends. The optimum is the least cross-entropy of any prediction, a floor a lower bound on
those of predictions that hardly differ within pairs of prefixes.

`python -m bounds.entropy.audit` prints the tables; docs/theorem6-audit.md holds them.
"""

from collections.abc import Callable, Mapping

import numpy as np

from bounds.entropy.closed_form import dyck_floor
from bounds.entropy.predictions import log_probabilities
from bounds.numbers.notation import markdown_table
from jax_models.languages import DyckSource, ParitySource, dyck_source

PARITY_PROBABILITIES = (0.05, 0.1, 0.25, 0.5, 0.9)
DYCK_PROBABILITIES = (0.1, 0.25, 0.4, 0.5, 0.6)
LENGTHS = (8, 9, 64, 65, 512, 513)
FAR = 10**6  # the length that stands for the limit of a floor


def parity_levels() -> str:
    """Cross-entropy levels of PARITY, equal at every n >= 2, as a Markdown table."""
    rows = []
    for p in PARITY_PROBABILITIES:
        # Of a whole corpus END has the share p/(2 - p): the corpus unigram's frequencies.
        levels, end = ParitySource(p).levels(2), p / (2 - p)
        truth = np.array([(1 - p / 2) / 2] * 2 + [p / 2])
        corpus = float(-truth @ np.log([(1 - end) / 2] * 2 + [end]))
        gap = levels.unigram - levels.last_symbol
        numbers = levels.optimal, levels.last_symbol, levels.unigram, gap, corpus
        rows.append([f"{p:g}", *(f"{x:.6f}" for x in numbers)])
    header = ["p", "optimum", "last symbol", "unigram", "difference", "corpus unigram"]
    return markdown_table(header, rows)


def closing_probabilities() -> str:
    """P_0(n), its limits, and the values of the restarted chain, as a Markdown table."""
    rows = []
    for p in DYCK_PROBABILITIES:
        exact = [dyck_source.closing_above_ground(n, p) for n in LENGTHS]
        exact += dyck_source.limiting_closing_above_ground(p)
        # Reflected at 0, the walk has the stationary law π_0 = (1 - r)/2,
        # π_h = π_0 r^{h-1}/q, so that P(x_n closes, H_n > 0) is r²/(1 + r) at even and
        # r/(1 + r) at odd n. There is no such law for p >= 1/2.
        r = p / (1 - p)
        restarted = [r * r / (1 + r), r / (1 + r)] if p < 0.5 else []
        cells = [f"{x:.6f}" for x in (*exact, *restarted)]
        rows.append([f"{p:g}", *cells, *["none"] * (2 - len(restarted))])
    header = ["p", *(f"n = {n}" for n in LENGTHS), "limit, even", "limit, odd"]
    return markdown_table([*header, "restarted, even", "restarted, odd"], rows)


def ground_probabilities() -> str:
    """P(H_n = 0) given n symbols, for even n; its limit, and the restarted chain's value."""
    rows = []
    for p in (p for p in DYCK_PROBABILITIES if p < 0.5):
        exact = dyck_source.height_law(2048, p)[0]
        limit = dyck_source.limiting_height_law(p, 1)[0, 0]
        numbers = exact, limit, 1 - p / (1 - p)
        rows.append([f"{p:g}", *(f"{x:.5f}" for x in numbers)])
    header = ["p", "n = 2048", "limit of survivors", "restarted chain"]
    return markdown_table(header, rows)


def dyck_gaps() -> str:
    """Gaps of 2DYCK's floors above the optimum as ε vanishes, as a Markdown table."""
    rows = []
    for p in (p for p in DYCK_PROBABILITIES if p < 0.5):
        for n in (FAR, FAR + 1):
            levels = DyckSource(p).levels(n)
            r1, r2 = (dyck_floor(p, n, x, 0.0).value for x in ("last", "query"))
            # Beside them the gap of the best prediction from the last symbol alone,
            # which also mixes up END and a closing bracket.
            numbers = r1, levels.last_symbol, r2, levels.unigram
            gaps = (f"{x - levels.optimal:.5f}" for x in numbers)
            rows.append([f"{p:g}", "odd" if n % 2 else "even", *gaps])
    header = ["p", "n", "floor R1", "last symbol", "floor R2", "unigram"]
    return markdown_table(header, rows)


def unequal_pairs() -> str:
    """Ratios of the probabilities of two PARITY prefixes that differ in one bit."""
    # 0^n with bit i flipped is odd from i to n, so it is (1 - p)^{-(n - i)} times as
    # probable: END is left out once less often for each odd state before n.
    source, n = ParitySource(0.25), 8
    zeros = np.zeros((1, n), np.int32)
    flipped = np.repeat(zeros, n, axis=0)
    flipped[np.arange(n), np.arange(n)] = 1
    logs = (log_probabilities(source, x) for x in (flipped, zeros))
    ratio = np.exp(np.subtract(*logs))
    chosen = (n, n - 1, n - 2, 1)
    rows = [[str(i), f"{ratio[i - 1]:.6f}"] for i in chosen]
    return markdown_table(["flipped bit i of n = 8", "P(x')/P(x)"], rows)


TABLES: Mapping[str, Callable[[], str]] = {
    "levels": parity_levels,
    "pairs": unequal_pairs,
    "closing": closing_probabilities,
    "ground": ground_probabilities,
    "gaps": dyck_gaps,
}


def main() -> None:
    """Print every table under its name."""
    for name, table in TABLES.items():
        print(f"{name}\n{table()}\n")


if __name__ == "__main__":
    import jax

    jax.config.update("jax_enable_x64", True)
    main()
