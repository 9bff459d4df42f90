"""Bound curves: the maximum influence of one symbol against the length n.

An influence is the size of the change of an output by replacing one symbol of the
input; a measurement is the maximum influence on one input, with a lower and an upper
end. Lemma 5 (Hahn 2020), corrected, bounds influences on all inputs of a length.
"""

import dataclasses
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from jaxtyping import Float, Int

from bounds.curves.cells import CurveCells, curve_cells, lengths_beyond
from bounds.curves.columns import CURVE_BOUNDS, HALF_WEIGHT, bound_columns, shown_bounds
from bounds.curves.decay import DecayFit, fit_decay, show_exponent
from bounds.curves.inputs import InputSource, check_lengths, draw_inputs, open_inputs
from bounds.curves.measurement import ROW, Question, Subject, influence_value
from bounds.curves.series import Decades, Gap, RowPerLength, Series
from bounds.influence.choice import METHOD_NAMES
from bounds.influence.substitution import choose_query
from bounds.influence.targets.base import PlainTarget
from bounds.influence.targets.table import TARGETS
from bounds.numbers.notation import legend_label
from bounds.store.output import sha256
from bounds.store.results import MemoryResults, ResultStore
from bounds.store.sweep import finish_cells
from bounds.store.table import Table
from jax_models.arguments import (
    MAX_LENGTH,
    choose_name,
    choose_names,
    expect_integer,
    expect_kind,
    refuse_unread,
)
from jax_models.format.file import model_bytes
from jax_models.model.transformer import Transformer
from jax_models.run.evaluate import TieRule

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CORRECTED = "log10_corrected"


@dataclasses.dataclass(frozen=True, repr=False)
class BoundCurve(RowPerLength):
    """Result of `bound_curve`: the largest influence at each length n, one row per n.

    Row k holds the measurement of largest influence at the k-th length: `n`, `input`
    (the input that attained it), the influence's two ends, its position, symbol and
    method, the bounds asked for, and `zeros`, the number of inputs at that length whose
    influence is zero.

    Attributes:
        measurements: One row per length and input.
        failures: Number of inputs without a measurement, which are left out.
        without: Reasons for the bounds that this curve lacks.
        beyond: A row per longer length, of bounds that follow from the weights alone.
        trained_to: Longest n that the model was trained on; None where it is not known.
    """

    failures: int = 0
    without: tuple[str, ...] = ()
    beyond: Table = dataclasses.field(default_factory=lambda: Table(()))
    trained_to: int | None = None

    @property
    def table(self) -> Table:
        """Rows of the largest measurement at each n."""
        by_length: dict[int, list[Mapping[str, Any]]] = {}
        for row in self.measurements:
            by_length.setdefault(row["n"], []).append(row)
        return Table(tuple(_largest(rows) for _, rows in sorted(by_length.items())))

    def __repr__(self) -> str:
        """One line: the weighting, the target, the lengths, and the fitted exponent."""
        lengths = [row["n"] for row in self]
        where = f"n = {lengths[0]} to {lengths[-1]}" if lengths else "no length"
        exponent = self.fit.exponent
        fitted = "no fit" if exponent is None else f"n^{-exponent:z.2f}"
        fitted += "" if self.trained_to is None else f" to n = {self.trained_to}"
        return (
            f"BoundCurve({self.label}, {self.target}, {where}, "
            f"{len(self.measurements)} measurements, {fitted})"
        )

    @property
    def enclosed(self) -> int:
        """Number of measurements whose ends are too far apart to count as exact."""
        return sum(row["kind"] == "enclosure" for row in self.measurements)

    @property
    def fit(self) -> DecayFit:
        """Power law fitted to the nonzero values at lengths up to `trained_to`, if known."""
        # Beyond the lengths that a model was trained on another law may hold.
        return fit_decay(*_points(self.sides[0].measurements))

    @property
    def sides(self) -> "tuple[BoundCurve, ...]":
        """Two curves, of lengths up to `trained_to` and beyond; (self,) if that is None."""
        n = self.trained_to
        if n is None:
            return (self,)
        rows = [row for row in self.measurements if row["n"] <= n], f"n up to {n}"
        others = [row for row in self.measurements if row["n"] > n], f"n beyond {n}"
        return tuple(
            dataclasses.replace(
                self,
                label=f"{self.label}, {name}",
                measurements=Table(tuple(some)),
                trained_to=None,
            )
            for some, name in (rows, others)
        )

    def plot(self, path: str | os.PathLike[str] | None = None) -> "Figure":
        """Draw all measurements against n on logarithmic axes; saved to `path`, if given."""
        return plot_curves([self], path)


def bound_curve(
    model: Transformer,
    lengths: Sequence[int] | None,
    *,
    inputs: str | InputSource = "random",
    num_inputs: int = 1,
    seed: int = 0,
    query: int | None = None,
    target: PlainTarget = "activation",
    method: str = "auto",
    ties: TieRule = "error",
    bounds: Sequence[str] = (),
    extend_to: int | None = None,
    trained_to: int | None = None,
    store: ResultStore | None = None,
) -> BoundCurve:
    """Measure the maximum influence of one symbol at each of several lengths.

    Args:
        model: A transformer.
        lengths: Increasing lengths n >= 1, in tokens; None: of given inputs, each its own.
        inputs: A language to sample from ("random": uniform strings), or a source such
            as `bounds.curves.inputs.GivenInputs`, which cuts sequences to each length.
        num_inputs: Sampled inputs per length.
        seed: Seed of the sampled inputs.
        query: Row that is read, from either end; by default a head's row, else the last.
        target: "activation" or "logits".
        method: Influence method; "auto" picks the cheapest exact one.
        ties: Treatment of an ambiguous tie of hard attention: "error" or "warn".
        bounds: Bounds to compute with the exact influence: some of `CURVE_BOUNDS`,
            "certified", "closed_forms", "estimate" and "supremum".
        extend_to: Closed forms, which need no forward pass, are evaluated on beyond the
            lengths, at powers of ten up to this n; by default not.
        trained_to: Longest n that the model was trained on: lengths up to it and beyond it
            are fitted apart, and a figure marks it.
        store: An open `bounds.store.results.ResultStore`: results that it holds are not
            computed again, new ones are kept, as by the command `curve`. By default
            nothing is kept.

    Returns:
        A table with one row per n: the largest influence over the inputs at that n.

    Raises:
        InputError: A name is unknown, a number is out of range, the lengths do not
            increase, `extend_to` is given without closed forms, or an input cannot be
            measured on the model.
        StoreError: A result could not be written.

    Example:
        >>> import jax, jax_models as jm
        >>> model = jm.random_transformer(
        ...     jax.random.key(0), num_layers=1, num_heads=1, d_model=4, d_ff=4,
        ...     vocab_size=2)
        >>> curve = bound_curve(model, [4, 8], inputs="parity", num_inputs=2)
        >>> [row["n"] for row in curve]
        [4, 8]
    """
    lengths = None if lengths is None else check_lengths(lengths)
    bounds = choose_names("bounds", bounds, tuple(CURVE_BOUNDS))
    for name, value, known in (
        ("target", target, get_args(PlainTarget)),
        ("method", method, METHOD_NAMES),
        ("ties", ties, get_args(TieRule)),
    ):
        choose_name(name, value, known)
    question = Question(choose_query(query, model), target, method, ties)
    source = open_inputs(model, inputs, num_inputs, seed)
    drawn = draw_inputs(source, lengths)
    named = sha256(model_bytes(model))
    subject = Subject(model, named, source, drawn, question, seed)
    if not any(CURVE_BOUNDS[name].of_weights for name in bounds):
        why = 'it is of bounds=("closed_forms",)'
        refuse_unread("extend_to", extend_to, None, why)
    if extend_to is not None:
        extend_to = expect_integer("extend_to", extend_to, 1, MAX_LENGTH)
    if trained_to is not None:
        trained_to = expect_integer("trained_to", trained_to, 1, MAX_LENGTH)
    longest = max(n for n, _ in drawn)
    cells = curve_cells(subject, bounds, lengths_beyond(longest, extend_to))
    # One way with a store and without: cells are computed into it, and rows are read from it.
    results = MemoryResults() if store is None else store
    expect_kind("store", results, ResultStore, "an open store of results, or None")
    finish_cells(results, [*cells.measurements, *cells.bounds])
    curve = read_curve(cells, results, trained_to)
    names = ("n", "input", *ROW, *bound_columns())
    rows = ({x: row[x] for x in names if x in row} for row in curve.measurements)
    return dataclasses.replace(curve, measurements=Table(tuple(rows)))


def read_curve(
    cells: CurveCells, store: ResultStore, trained_to: int | None = None
) -> BoundCurve:
    """Curve of the measurements and bounds that a store holds."""
    rows, without = cells.read(store)
    missing = len(cells.measurements) - len(rows)
    subject = cells.subject
    return BoundCurve(
        subject.label,
        subject.question.target,
        Table(tuple(rows)),
        missing,
        without,
        Table(tuple(cells.read_beyond(store))),
        trained_to,
    )


def plot_curves(
    curves: Sequence[BoundCurve], path: str | os.PathLike[str] | None = None
) -> "Figure":
    """Draw several curves in one figure.

    Args:
        curves: At most seven, of one target.
        path: File for the figure, PNG, PDF or SVG by its suffix; None saves nothing.

    Returns:
        The Matplotlib figure.

    Raises:
        InputError: The suffix names no such format.
        OSError: The file cannot be written.
    """
    from bounds.figures.curves import curve_figure
    from bounds.figures.primitives import save_as_named

    series = [
        Series(
            _legend(curve),
            *_points(curve.measurements),
            _decades(curve),
            corrected_gap(curve),
        )
        for curve in curves
    ]
    quantity = f"maximum influence ({TARGETS[curves[0].target].label})"
    ends = {one.trained_to for one in curves if one.trained_to is not None}
    figure = curve_figure(series, quantity, sorted(ends))
    if path is not None:
        save_as_named(figure, path)
    return figure


def corrected_gap(curve: BoundCurve) -> Gap | None:
    """Gap from largest influences to Lemma 5's corrected bound; None without bounds."""
    measured = [row for row in curve if row.get(CORRECTED) is not None]
    known = [*measured, *(r for r in curve.beyond if r[CORRECTED] is not None)]
    known = [row for row in known if row[HALF_WEIGHT] is not None]
    if not measured or not known:
        return None
    # The constant falls from n_half on, which may lie beyond every known length.
    reached = [r[HALF_WEIGHT] for r in known if math.log10(r["n"]) >= r[HALF_WEIGHT]]
    last, end = measured[-1], known[-1]
    value = influence_value(last)
    return Gap(
        last=last["n"],
        exact=math.log10(value) if value > 0 else None,
        corrected=last[CORRECTED],
        half_weight=end[HALF_WEIGHT],
        bend=reached[0] if reached else None,
        end=end["n"],
        at_end=end[CORRECTED],
    )


def _largest(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """First row of largest influence among rows of one n, with the number of zeros."""
    values = [influence_value(row) for row in rows]
    best = rows[int(np.argmax(values))]
    return {**best, "zeros": values.count(0.0)}


def _points(
    rows: Iterable[Mapping[str, Any]],
) -> tuple[Int[np.ndarray, "points"], Float[np.ndarray, "points"]]:
    """Lengths and influence values of rows of measurements."""
    rows = list(rows)
    return (
        np.array([row["n"] for row in rows], np.int64),
        np.array([influence_value(row) for row in rows], np.float64),
    )


def _decades(curve: BoundCurve) -> tuple[Decades, ...]:
    """Lines to draw, one for each bound: at each n the largest over the inputs."""
    lines = []
    for column in (column for kind in shown_bounds() for column in kind.columns):
        if column.legend is None:
            continue
        largest: dict[int, float] = {}
        for row in (*curve.measurements, *curve.beyond):
            value = column.decades(row.get(column.name))
            if value is not None:
                largest[row["n"]] = max(value, largest.get(row["n"], -math.inf))
        if largest:
            points = np.array(list(largest)), np.array(list(largest.values()))
            lines.append(Decades(column.legend, column.look, *points))
    return tuple(lines)


def _legend(curve: BoundCurve) -> str:
    """Legend of a curve: label, fitted exponents, counts of zeros and enclosures."""
    n, fits = curve.trained_to, [side.fit for side in curve.sides]
    where = ("",) if n is None else (f" to n = {n}", " beyond")
    notes = [
        f"exponent {show_exponent(fit.exponent)}{side}"
        for fit, side in zip(fits, where, strict=True)
        # An exponent with a wide interval says nothing in a legend.
        if fit.exponent is not None and fit.tells
    ]
    if zeros := sum(fit.zeros for fit in fits):
        notes.append(f"{zeros} of {len(curve.measurements)} zero")
    if curve.enclosed:
        notes.append(f"{curve.enclosed} enclosed")
    name = legend_label(curve.label)
    return f"{name} ({', '.join(notes)})" if notes else name
