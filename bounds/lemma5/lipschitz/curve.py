"""Estimates against length, and how many decades bounds lie above what was observed.

K_n is the Lipschitz constant, at length n, of the output in one position's embedding. A
substitution replaces one token, its influence is the norm of the output's change. A closed
form bounds every influence at a distance D of two embeddings. Those proportional to D bound
the Lipschitz constant, by bound / D, and are compared with its estimate; the corrected
recursion saturates, so that it bounds influences only, and is compared with the largest
influence met. A certificate, a proved bound, holds for its own input, and is compared with
the exact ratio there.
"""

import dataclasses
import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from bounds.all_inputs import exact_supremum
from bounds.curves.decay import (
    MIN_LENGTHS,
    DecayFit,
    describe_trend,
    exponent_interval,
    fit_decay,
    show_exponent,
    show_interval,
)
from bounds.curves.inputs import InputSource, check_lengths, open_inputs
from bounds.curves.measurement import weighting_label
from bounds.curves.series import Decades, RowPerLength, Series, points
from bounds.influence.targets.base import PlainTarget
from bounds.lemma5.certificate import certify_influence
from bounds.lemma5.constants import ClosedForms, closed_form_bounds
from bounds.lemma5.lipschitz.searches import (
    Effort,
    Estimate,
    LipschitzEstimate,
    embedding_distances,
    estimate_lipschitz,
)
from bounds.numbers.notation import WIDTH, column_table, ruled
from bounds.store.table import Table
from jax_models import InputError, Transformer
from jax_models.arguments import show
from jax_models.model.reweight import at_length

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Closed forms that are proportional to D, in the order in which they are derived, in
# words; claims are those that the proofs do not support.
PROPORTIONAL = {
    "linear": "recursion, linear (bound)",
    "c1": "C1 (bound)",
    "c2": "C2 (bound)",
    "causal": "causal closed form (bound)",
    "printed_tight": "printed, tight F (claim)",
    "printed": "printed (claim)",
}
# What is observed, from the widest domain to the narrowest, and the ratio that it is of.
OBSERVED = {
    "estimate": "estimate of $K_n$: all searches",
    "local": "local norm, sampled inputs",
    "substitution": "substitution, sampled inputs",
}
RATIOS = {
    "activation": "‖Δy‖ / ‖Δ embedding‖",
    "logits": "‖Δ logits‖ / ‖Δ embedding‖ (nats per unit)",
}
SATURATING = "corrected"
CERTIFICATES = ("centred", "base")
# All of them, those of one input first.
NAMES = (*CERTIFICATES, SATURATING, *PROPORTIONAL)
CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True)
class LipschitzCurve(RowPerLength):
    """Estimates of K_n against n, for one model: a table with one row per n.

    A row holds what `LipschitzEstimate.row` gives; `log10_NAME`, the closed forms: of
    K_n (bound / D) where the form is proportional to D, of the influence for the
    saturating `corrected`; `log10_centred` and `log10_base`, the certificates of the
    substitution of largest exact ratio, over its distance; `supremum`, the exact largest
    influence over all inputs, None where it cannot be had; and for each of the bounds
    `looseness_NAME`, the decades between it and what it bounds as observed: the
    estimate, the largest influence (the supremum, if there is one), and that exact ratio.
    """

    def fit(self, column: str = "estimate") -> DecayFit:
        """Power law in n fitted to a column: estimates of K_n, by all searches or by one."""
        n = np.array([row["n"] for row in self.table], np.int64)
        return fit_decay(n, np.array([row[column] for row in self.table], float))

    def interval(
        self, column: str = "estimate", level: float = CONFIDENCE
    ) -> tuple[float, float] | None:
        """Confidence interval of a column's decay exponent; None where there is none."""
        return exponent_interval(self.fit(column), level)

    def record(self) -> dict[str, Any]:
        """Record for a JSON file: kind of the numbers, fits with intervals, finding."""
        fitted = lambda name: dataclasses.asdict(self.fit(name))
        names = ("estimate", "substitution")
        return {
            "kind": "estimated",
            "meaning": "lower estimates, not bounds",
            "weighting": self.label,
            "fits": {x: {**fitted(x), "interval": self.interval(x)} for x in names},
            "confidence": CONFIDENCE,
            "finding": finding(self),
        }

    def plot(self) -> "Figure":
        """Figure of observed ratios against n, with the closed forms near them."""
        from bounds.figures.curves import curve_figure

        bounds = tuple(
            Decades(label, {"linestyle": (0, (1 + k, 1.5)), "color": "0.35"}, *found)
            for k, (name, label) in enumerate(PROPORTIONAL.items())
            if (found := points(self, f"log10_{name}"))[0].size
        )
        observed = [one for name in OBSERVED if (one := self._series(name)).x.size]
        of_all = Series("", np.zeros(0), np.zeros(0), bounds)
        figure = curve_figure([*observed, of_all], RATIOS[self.target])
        figure.axes[0].set_xscale("log", base=2)
        return figure

    def _series(self, name: str) -> Series:
        """Observed ratios of a column against n, with the exponent if it is significant."""
        n, values = points(self, name)
        fit = fit_decay(n, values)
        note = f" (decay exponent {show_exponent(fit.exponent or 0.0)})"
        return Series(OBSERVED[name] + (note if fit.tells else ""), n, values)


def lipschitz_curve(
    model: Transformer,
    lengths: Sequence[int],
    *,
    inputs: str | InputSource = "random",
    num_inputs: int = 4,
    effort: Effort | None = None,
    seed: int = 0,
    query: int | None = None,
    target: PlainTarget = "activation",
) -> LipschitzCurve:
    """Estimate the Lipschitz constant at each of several lengths.

    Args:
        model: A transformer with softmax attention in every layer.
        lengths: Increasing lengths n >= 2.
        inputs: A language to sample from, or a source of inputs.
        num_inputs: Number of inputs at each length, where they are sampled.
        effort: Effort of the ascent; the defaults of `estimate_lipschitz` if None.
        seed: Seed of the inputs and the searches.
        query: Row that is read, from either end; by default a head's row, else the last.
        target: "activation" or "logits".

    Returns:
        A table with one row per n, and the fitted decay exponent.

    Raises:
        InputError: Lengths do not increase, `effort` is no `Effort`, or as
            `estimate_lipschitz`.
    """
    lengths = check_lengths(lengths)
    if effort is not None and not isinstance(effort, Effort):
        raise InputError(f"effort = {show(effort)}; expected an Effort, or None")
    source = open_inputs(model, inputs, num_inputs, seed)
    asked: Any = {"seed": seed, "query": query, "target": target}
    asked["effort"] = effort or Effort()
    rows = [measure_lipschitz(model, n, source, **asked) for n in lengths]
    return LipschitzCurve(weighting_label(model), target, Table(tuple(rows)))


def measure_lipschitz(
    model: Transformer,
    length: int,
    source: InputSource,
    *,
    effort: Effort,
    seed: int,
    query: int | None,
    target: PlainTarget,
) -> dict[str, Any]:
    """Table row of a curve at one length; `notes` give each missing bound's reason."""
    asked: Any = {"query": query, "target": target}
    found = estimate_lipschitz(
        model, length, inputs=source, **dataclasses.asdict(effort), seed=seed, **asked
    )
    # The search of substitutions comes first; its ratio is exact.
    exact = found.searches[0]
    supremum, notes = None, []
    logs, loose = {}, {}

    def compare(bounds: Mapping[str, float], observed: float) -> None:
        logs.update({f"log10_{name}": bound for name, bound in bounds.items()})
        above = looseness(bounds, observed)
        loose.update({f"looseness_{name}": value for name, value in above.items()})

    try:
        supremum = exact_supremum(model, length, **asked).max
    except InputError as error:
        notes.append(f"no supremum: {error}")
    try:
        forms = closed_form_bounds(model, length, **asked)
    except InputError as error:
        notes.append(f"no closed form: {error}")
    else:
        compare(log10_lipschitz(forms), found.value)
        corrected = {SATURATING: forms.corrected.others.log10_value}
        compare(corrected, max(found.influence, supremum or 0.0))
    try:
        compare(_certificates(model, source, found, exact), exact.value)
    except InputError as error:
        notes.append(f"no certificate: {error}")
    return {**found.row(), "supremum": supremum, **logs, **loose, "notes": notes}


def log10_lipschitz(forms: ClosedForms) -> dict[str, float]:
    """log10(bound / D) of the forms proportional to D that apply; none where D = 0."""
    distance = forms.constants.embedding.distance
    if distance == 0:  # no symbol changes anything
        return {}
    return {
        name: form.others.log10_value - math.log10(distance)
        for name in PROPORTIONAL
        if (form := getattr(forms, name)) is not None
    }


def looseness(log10_bounds: Mapping[str, float], observed: float) -> dict[str, float]:
    """Decades by which each bound exceeds the value `observed`; infinite if that is 0."""
    if observed == 0:
        return dict.fromkeys(log10_bounds, math.inf)
    return {name: bound - math.log10(observed) for name, bound in log10_bounds.items()}


def _certificates(
    model: Transformer, source: InputSource, found: LipschitzEstimate, exact: Estimate
) -> dict[str, float]:
    """log10(certificate / distance) of the substitution `exact`, by method; {} if none."""
    if exact.position is None or exact.symbol is None or exact.input is None:
        return {}
    # Certificates are of float64.
    if not jax.config.read("jax_enable_x64"):
        return {}
    tokens, at = source.draw(found.length, exact.input), (exact.position, exact.symbol)
    distance = embedding_distances(model, tokens)[at]
    asked: Any = {"query": found.query, "target": found.target}
    asked |= {"positions": [exact.position], "symbols": [exact.symbol]}
    logs, model = {}, at_length(model, found.length)
    for method in CERTIFICATES:
        certificate = certify_influence(model, tokens, method=method, **asked)
        upper = float(certificate.input_upper[at] / distance)
        logs[method] = math.log10(upper) if upper > 0 else -math.inf
    return logs


# Header and key of the columns; the bounds are given by their looseness.
COLUMNS = (
    ("n", "n"),
    ("estimate", "estimate"),
    ("n K", "scaled"),
    ("by", "method"),
    ("exact ratio", "substitution"),
)
HEADERS = {"c1": "C1", "c2": "C2", "printed_tight": "tight"}
BOUNDS = tuple((HEADERS.get(name, name), f"looseness_{name}") for name in NAMES)


HEADING = (
    "Output change per embedding change of one position, as observed, by length n "
    "(tokens); on the right, how many decades each bound is above it: certificates above "
    "the exact ratio they bound, corrected above the largest influence, the others above "
    "the estimate."
)


def lipschitz_report(curve: LipschitzCurve) -> str:
    """Text on a curve: table of estimates and looseness, findings, and the rows' notes."""
    notes = dict.fromkeys(note for row in curve for note in row["notes"])
    # A certificate may equal what it bounds, so that its looseness rounds to -0.
    loose = ((*bound, "z.2f") for bound in BOUNDS)
    table = ruled(column_table(curve, [*COLUMNS, *loose], ".4g"))
    return "\n".join(
        ["", *textwrap.wrap(HEADING, WIDTH), *table, finding(curve), *notes]
    )


def finding(curve: LipschitzCurve) -> str:
    """Sentences on the trends of the estimates, and the looseness at the largest n."""

    def trend(column: str) -> str:
        fit = curve.fit(column)
        if fit.exponent is None:
            few = "has values at too few lengths to fit"
            return f"{few}, of which {MIN_LENGTHS} are needed"
        found = f"exponent {fit.exponent:z.3f}, {show_interval(fit)}"
        return f"{describe_trend(fit)} ({found})"

    text = f"{curve.label}: K {trend('estimate')}; "
    text += f"the exact ratio of substitutions {trend('substitution')}."
    # The best and the worst closed form at the largest n.
    row = curve.table[-1]
    found = {
        header: row[key]
        for header, key in BOUNDS[3:]
        if row.get(key) is not None and math.isfinite(row[key])
    }
    if not found:
        return f"{text} No closed form was compared."
    best, worst = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
    text += f" At n = {row['n']} the {best} bound is {found[best]:.1f} decades above it"
    if worst != best:
        text += f", {worst} {found[worst]:.1f}"
    return text + "."
