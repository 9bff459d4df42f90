"""The audit: its numbers, checked another way, and the page that shows them."""

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bounds.lemma5.audit import all_findings, findings_table, harmonic_table

ROOT = Path(__file__).resolve().parents[4]
FINDINGS = all_findings()
PAGE = (ROOT / "docs" / "lemma5-audit.md").read_text()


def findings(step, *words):
    """Returns the findings of a step whose model mentions all the words."""
    return [
        f for f in FINDINGS if f.step == step and all(word in f.model for word in words)
    ]


def one(step, *words):
    (finding,) = findings(step, *words)
    return finding


@pytest.mark.parametrize(
    ("step", "words", "left", "right"),
    [
        ("1", (), "2.83", "2"),
        ("4", ("before",), "2.326", "0.269"),
        ("4", ("after",), "2.326", "0.5"),
        ("9", ("A = 8", "10^10"), "1.059", None),
        ("9", ("A = 8", "10^12"), "1.0625", None),
        ("9", ("A = 10", "10^10"), "1.096", None),
        ("9", ("A = 10", "10^12", "tight"), "1.31", None),
    ],
)
def test_both_sides_or_their_ratio_have_the_known_digits(step, words, left, right):
    finding = one(step, *words)
    assert not finding.holds
    found = finding.left, finding.right
    found = (finding.ratio,) if right is None else found
    for side, known in zip(found, (left, right), strict=False):
        places = len(known.partition(".")[2])
        assert round(float(side), places) == float(known)


def test_the_conclusion_holds_below_the_threshold_and_with_the_literal_norm():
    below = one("9", "A = 6")
    assert below.holds
    # In the limit 13/(16 (1 + e^-12)), which it may not exceed by more than 1/n.
    assert below.ratio == pytest.approx(13 / (16 * (1 + math.exp(-12))), rel=1e-6)
    assert one("9", "A = 10", "literal").holds


def softmax_average(logits, keys):
    weights = np.exp(logits - logits.max())
    return weights @ keys / weights.sum()


@pytest.mark.parametrize("n", [11, 101, 1001, 10001])
def test_step_7_by_brute_force(n):
    half = (n - 1) // 2
    keys = np.array([1.0] * half + [-1.0] * half + [1.0])
    # Before, all logits are zero and the keys, with y_i = 0, cancel.
    change, finding = softmax_average(keys, keys), one("7", f"n = {n}")
    assert float(finding.left) == pytest.approx(change, rel=1e-12)
    assert finding.right == 0
    assert not finding.holds


def test_step_8_by_brute_force():
    half, distance, mu = 5000, 1e-3, 0.12
    keys = np.array([1.0] * half + [-1.0] * half + [distance])
    heads, slope = 1200, 1 + math.exp(8 * mu)
    change = heads * slope * softmax_average(mu * distance * keys, keys)
    assert float(one("8", "H = 1200, mu", "literal").left) == pytest.approx(
        change, rel=1e-9
    )


@pytest.mark.parametrize(
    ("a", "n", "words", "factor"),
    [
        (4, 10**4, ("C_fact = 0.01",), 0.01),
        *((a, n, ("A/ε",), 1) for a, n in ((3, 2000), (4, 2000), (4, 100000))),
    ],
)
def test_a_small_growth_constant_and_a_neglected_bias_by_derivatives(
    a, n, words, factor
):
    keys = np.concatenate([[1.0, 1.0], np.full(n - 2, -1.0)])
    weights = np.exp(a * keys)
    weights /= weights.sum()
    slope = factor * weights[0] * (1 + a * (1 - weights @ keys))
    found = one("9", *words, f"A = {a}", f"n = {n}")
    if factor == 1:  # D = 1e-12 · 1e-8; H = 1, L = 2, C = 2 (1 + 1 + 1).
        distance, printed = 1e-20, 6**4
    else:  # F = 2 · 0.01, A = 4 F², C = 2 (1 + e^2A + 0.01).
        distance = 1e-8
        printed = (2 * (1 + math.exp(2 * a * (2 * factor) ** 2) + factor)) ** 2
    assert float(found.left) == pytest.approx(slope * distance, rel=1e-6)
    assert float(found.right) == pytest.approx(printed / n * distance, rel=1e-12)


def test_a_masked_row_keeps_its_influence_at_every_length():
    rows = findings("lemma")
    assert [float(row.left) for row in rows] == [0.5] * 4
    assert [row.holds for row in rows] == [True, False, False, False]
    # D/n with C = 2 (1 + 1 + 1) at A = 0 and L_f = 1.
    assert float(rows[0].right) == pytest.approx(36 / 64)


def test_the_page_holds_exactly_what_the_module_prints():
    for name, table in (
        ("findings", findings_table(FINDINGS)),
        ("harmonic", harmonic_table()),
    ):
        start, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
        assert PAGE.count(start) == PAGE.count(end) == 1
        assert PAGE.split(start)[1].split(end)[0] == table


def test_the_module_runs():
    command = [sys.executable, "-m", "bounds.lemma5.audit"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == f"{findings_table(FINDINGS)}\n\n{harmonic_table()}\n"
