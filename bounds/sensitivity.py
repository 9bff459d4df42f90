"""Average sensitivity of a scalar target f: as_n, the mean of s(x) over uniform inputs.

s(x) is the number of positions of x at which some substitution changes the sign of f,
or its real form (`average_sensitivity`). A substitution puts another symbol at one
position. The sign of f is a model's decision by default. Rounding leaves values, and
with them s(x), between a lower and an upper end; a scan is a table of the changes of f
by all substitutions in one input, each a cell; a line has f of the inputs that differ
from x at one position. A margin is a logit less a threshold.
`SensitivityCurve` has the means of several lengths, a fitted power of n and a figure.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped, UInt
from scipy.special import stdtrit

from bounds.curves.decay import (
    MIN_LENGTHS,
    DecayFit,
    describe_trend,
    exponent_interval,
    fit_decay,
    show_exponent,
)
from bounds.curves.inputs import SampledInputs, sampled_inputs
from bounds.curves.series import points
from bounds.influence.answer import answer
from bounds.influence.build import TableOptions, build_request
from bounds.influence.inputs.shared_base import SharedBase
from bounds.influence.method import Run, check_run
from bounds.influence.methods.exhaustive import base_outputs
from bounds.influence.moved import LEAST, radii_of, requests
from bounds.influence.request import InfluenceRequest
from bounds.influence.result import Ties, judge_ties, merge_ties
from bounds.influence.substitution import check_query, choose_query
from bounds.influence.targets.base import STATIC, Target
from bounds.influence.targets.change import value_of
from bounds.influence.targets.logit_difference import LogitDifference
from bounds.numbers.kind import Kind, OfKind, kind_of
from bounds.numbers.notation import column_table, ruled
from bounds.rounding.moved_inputs import RUNS
from bounds.rounding.radii import farthest
from jax_models import InputError, Transformer
from jax_models.arguments import (
    choose_name,
    expect_integer,
    expect_kind,
    expect_length,
    show,
)
from jax_models.format.model_check import check_model
from jax_models.model.pytree import pytree
from jax_models.model.reweight import at_length
from jax_models.model.transformer import reduce_reports
from jax_models.run.evaluate import TieRule, require_readout

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Tokens in one call of the compiled program.
BLOCK = 2**14
# One end of enclosed values, that of one input a scalar.
End: TypeAlias = Float[np.ndarray | np.float64, "*inputs"]


@pytree
class AcceptMargin(Target):
    """Logit `class_` less a threshold: not negative where a string is accepted."""

    name = "accept_margin"
    label = "|Δ margin|, nats"

    class_: int = dataclasses.field(metadata=STATIC)
    threshold: float = dataclasses.field(metadata=STATIC)

    def value(self, base: Float[Array, "*batch classes"]) -> Float[Array, "*batch 1"]:
        """Margin, from a row of logits."""
        return base[..., self.class_, None] - self.threshold

    def change(
        self, base: Float[Array, "classes"], change: Float[Array, "*batch classes"]
    ) -> Float[Array, "*batch 1"]:
        """Change of the margin, from the change of a row of logits."""
        return change[..., self.class_, None]


def decision_of(model: Transformer) -> Target:
    """Target f whose sign is the decision of a model's read-out."""
    require_readout(model, "a sensitivity counts changes of a decision: give a target")
    if model.accept is not None:
        return AcceptMargin(model.accept.class_, model.accept.threshold)
    if model.classes == 1:
        return AcceptMargin(0, 0.0)
    if model.classes == 2:
        return LogitDifference(1, 0)
    raise InputError(
        f"the model has {model.classes} logits and no accept rule, so no sign is its "
        "decision; give a target of one number, such as LogitDifference(s, t)"
    )


@jax.jit
def _outputs(
    model: Any,
    target: Any,
    inputs: Int[Array, "inputs tokens"],
    rows: Int[Array, "rows"],
    run: UInt[Array, ""],
) -> Any:
    """Values of `target` on `inputs`, largest magnitude of a float, ties of scores."""

    def one(tokens: Int[Array, "tokens"]) -> Any:
        outputs, largest, report = base_outputs(model, target, tokens, rows, run)
        return value_of(target, outputs), largest, report

    values, largest, reports = jax.vmap(one)(inputs)
    return values, largest.max(), reduce_reports(reports)


def scalar_values(
    request: InfluenceRequest, inputs: Int[np.ndarray, "inputs tokens"], ties: TieRule
) -> tuple[Float[np.ndarray, "inputs"], Float[np.ndarray, "inputs"]]:
    """Values f(x) of the target of `request` at all inputs x, and rounding radii."""
    size = max(1, BLOCK // inputs.shape[1])
    blocks = np.split(inputs, range(size, len(inputs), size))
    found, magnitude, met = [], 1.0, []
    for one in requests(request, RUNS):
        given = one.model, one.target_value
        rows, parts = jnp.asarray(one.rows), []
        for block in blocks:
            values, largest, report = _outputs(
                *given, jnp.asarray(block), rows, one.moved_run
            )
            parts.append(np.asarray(values, np.float64).ravel())
            if one.run == 0:
                magnitude = max(magnitude, float(largest))
                met += [Ties.of(report)] if request.model.is_hard else []
        found.append(np.concatenate(parts))
    judge_ties(request.model, merge_ties(met), "the watched row", ties)
    base, *moved = found
    if not (finite := np.isfinite(base)).all():
        raise InputError(
            f"the target has the value {base[~finite][0]} at an input: the model overflows "
            "or divides by zero"
        )
    moves = farthest(base.shape, (np.abs(x - base) for x in moved))
    moves = np.maximum(moves, LEAST)
    return base, radii_of(request, base, moves, magnitude, subtracted=True)


# Inputs of a length up to which all are listed.
ENUMERATED = 2**16
CONFIDENCE = 0.95
Form = Literal["sign", "real"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sensitivity(OfKind):
    """Average sensitivity at one length: the mean of s(x), with its ends.

    Attributes:
        length: Tokens n of an input, an end token included.
        positions: Positions that are replaced, at most n.
        form: "sign" counts positions; "real" is 1/4 of the sum of squared changes.
        lower: Mean of the lower ends of s(x) over the inputs considered.
        upper: Mean of the upper ends; above `lower` where rounding leaves signs open.
        interval: 95 % interval of as_n where inputs are sampled; None where all were
            listed.
        inputs: Number of inputs considered.
        undecided: Positions, over all inputs, at which rounding leaves the count open.
        kind: "exact" or "enclosure" where all inputs were listed, else "estimated".
    """

    length: int
    positions: int
    form: Form
    lower: float
    upper: float
    interval: tuple[float, float] | None
    inputs: int
    undecided: int
    kind: Kind

    @property
    def mean(self) -> float:
        """Mean of s(x): the middle of `lower` and `upper`."""
        return (self.lower + self.upper) / 2


def average_sensitivity(
    model: Transformer,
    length: int,
    *,
    form: Form = "sign",
    target: str | Target | None = None,
    query: int | None = None,
    num_inputs: int = 32,
    seed: int = 0,
    ties: TieRule = "error",
    run: Run | None = None,
) -> Sensitivity:
    """Computes the mean, over uniform inputs, of the number of sensitive positions.

        s(x) = |{i : some substitution at i changes whether f(x) >= 0}|   ("sign")
        s(x) = 1/4 sum_i |f(x) - f(x with x_i flipped)|^2                 ("real")

    Of f with the values -1 and 1 both are the same. Inputs are uniform over the symbols
    that the model substitutes; an end token stays. Up to 2^16 inputs all are listed, and
    the mean is exact; beyond that it is estimated by sampled ones, each s(x) from one scan
    of all neighbours. A position whose sign lies within the radius of rounding counts 0 in
    the lower end and 1 in the upper. The interval is that of Student's distribution; where
    all sampled s(x) may be alike it allows for a share 1 - 0.05^(1/inputs) of others.

    Args:
        model: A transformer with a read-out.
        length: Tokens n, an end token included.
        form: "sign", or "real" for f in [-1, 1] over two symbols.
        target: The scalar f: a name or value as in `compute_influence`, of one entry.
            By default the logit of the accept rule less its threshold; without a rule
            the only logit, or of two the second less the first.
        query: The row that is watched; by default that of a classifier's head, else the
            last.
        num_inputs: Inputs that are sampled where not all are listed, 2 or more.
        seed: Seed of the sampled inputs.
        ties: As in `compute_influence`.
        run: Devices, memory and progress (`Run`).

    Returns:
        A `Sensitivity`.

    Raises:
        InputError: The target is not one number, or for "real" a value lies outside
            [-1, 1] or the symbols are not two; or an argument does not fit the model.

    Source:
        Hahn and Rofin 2024; arXiv 2602.05896.
    """
    choose_name("form", form, get_args(Form))
    choose_name("ties", ties, get_args(TieRule))
    expect_integer("num_inputs", num_inputs, 2)
    length, run = expect_length(length), check_run(run)
    model = at_length(check_model(model), length)
    source = sampled_inputs(model, "random", num_inputs, seed)
    free, k = length - (source.end is not None), len(source.symbols)
    if not free or k < 2:
        lacks = "the model substitutes one symbol" if free else "n = 1 is the end token"
        raise InputError(f"{lacks}: nothing can be substituted; ask about more")
    if form == "real" and k != 2:
        raise InputError(
            f"form = 'real' is of two symbols, and the model substitutes {k}; take 'sign'"
        )
    watched = decision_of(model) if target is None else target
    if not isinstance(watched, str):
        wanted = "a name or a value of bounds.influence.targets"
        expect_kind("target", watched, Target, wanted)
    table = TableOptions(rows=check_query(choose_query(query, model), length, model))
    shared = SharedBase()  # moved models, of which there is one for all inputs

    def ask(tokens: Int[np.ndarray, "tokens"]) -> InfluenceRequest:
        given: Any = {"target": watched, "table": table, "run": run, "shared": shared}
        return build_request(model, tokens, **given)

    first = ask(source.draw(length, 0))
    layout, rule = first.layout, type(first.target_value)
    if layout is None or layout.width != 1 or rule.value is Target.value:
        raise InputError(
            f"target = {show(watched)} is not one number of one input; expected one, such "
            "as LogitDifference(s, t)"
        )
    if enumerated := is_listed(source, length):
        lower, upper = _of_all_inputs(first, source, form, ties)
    else:
        inputs = np.stack([source.draw(length, i) for i in range(num_inputs)])
        values, radii = scalar_values(first, inputs, ties)
        each = zip(inputs, values - radii, values + radii, strict=True)
        counts = [_of_input(ask(x), ends, form, ties, run) for x, *ends in each]
        lower, upper = np.transpose(counts)
    low, high = float(lower.mean()), float(upper.mean())
    return Sensitivity(
        length=length,
        positions=free,
        form=form,
        lower=low,
        upper=high,
        interval=None if enumerated else _interval(lower, upper, free),
        inputs=len(lower),
        undecided=int((upper - lower).sum()) if form == "sign" else 0,
        kind=kind_of((low + high) / 2, low, high) if enumerated else "estimated",
    )


def is_listed(source: SampledInputs, length: int) -> bool:
    """True if all inputs of a length are at most `ENUMERATED` in number."""
    free = length - (source.end is not None)
    return free * math.log(len(source.symbols)) <= math.log(ENUMERATED) + 1e-9


def _interval(
    lower: Shaped[np.ndarray, "inputs"], upper: Shaped[np.ndarray, "inputs"], most: int
) -> tuple[float, float]:
    """95 % interval of as_n within [0, most], from ends of s(x) of sampled inputs."""
    count = len(lower)
    quantile = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2))
    below, above = (
        quantile * float(ends.std(ddof=1)) / math.sqrt(count) for ends in (lower, upper)
    )
    low, high = float(lower.mean()) - below, float(upper.mean()) + above
    if lower.max() <= upper.min():  # all may be alike
        share = 1 - (1 - CONFIDENCE) ** (1 / count)
        low = min(low, (1 - share) * float(lower.max()))
        high = max(high, (1 - share) * float(upper.min()) + share * most)
    return max(0.0, low), min(float(most), high)


def _of_all_inputs(
    request: InfluenceRequest, source: SampledInputs, form: Form, ties: TieRule
) -> Float[np.ndarray, "2 inputs"]:
    """Lower and upper ends of s(x) for all inputs x as long as the request's input."""
    free = request.tokens.size - (source.end is not None)
    shape = (len(source.symbols),) * free
    tokens = np.asarray(source.symbols, np.int32)[np.indices(shape).reshape(free, -1).T]
    if source.end is not None:
        tokens = np.pad(tokens, ((0, 0), (0, 1)), constant_values=source.end)
    values, radii = scalar_values(request, tokens, ties)
    low, high = ends = tuple((values + x).reshape(shape) for x in (-radii, radii))
    counts = np.zeros((2, *shape))
    for axis in range(free):
        if form == "real":
            others = low - np.flip(high, axis), high - np.flip(low, axis)
            counts += _quarter_squares(ends, others)
        else:
            counts += _flips(ends, ends, axis)
    return counts.reshape(2, -1)


def _of_input(
    request: InfluenceRequest,
    ends: Sequence[float],  # of f(x)
    form: Form,
    ties: TieRule,
    run: Run,
) -> Shaped[np.ndarray, "2"]:
    """Lower and upper end of s(x) of one input x, from a scan of all substitutions."""
    # Every cell of a transformer has a radius, as "all" demands: no end is an estimate.
    found = answer(request, "auto", ties, run=run, rounding="all")
    assert found.enclosed[~np.isnan(found.values)].all()
    low, high = np.array(ends)
    # The symbol that stands at a position has no cell of its own, and no change.
    kept = ~np.isnan(found.values).all(axis=1)
    changes = tuple(np.nan_to_num(x[kept]) for x in (found.lower, found.upper))
    lines = low + changes[0], high + changes[1]
    if form == "real":
        counts = _quarter_squares(lines, changes)
    else:
        counts = _flips((low, high), lines, axis=1)
    return counts.sum(axis=(1, 2))


def _flips(
    ends: tuple[End, ...],
    lines: tuple[Float[np.ndarray, "*lines"], ...],
    axis: int,
) -> Bool[np.ndarray, "2 ..."]:
    """Masks of values f(x) on whose line the sign certainly, and possibly, differs."""
    # Lines go along an axis through all symbols of a position. Each has two or more, so
    # that one whose own sign is open possibly differs, as it does from itself.
    (low, high), (line_low, line_high) = ends, lines
    some = functools.partial(np.any, axis=axis, keepdims=True)
    surely = (low >= 0) & some(line_high < 0) | (high < 0) & some(line_low >= 0)
    maybe = (high >= 0) & some(line_low < 0) | (low < 0) & some(line_high >= 0)
    return np.stack([surely, maybe])


def _quarter_squares(
    values: tuple[Float[np.ndarray, "*values"], ...],
    changes: tuple[Float[np.ndarray, "*values"], ...],
) -> Float[np.ndarray, "2 *values"]:
    """Lower and upper ends of (change of f)^2 / 4; refuses values outside [-1, 1]."""
    low, high = values
    if (outside := (low > 1) | (high < -1)).any():
        value = float(((low + high) / 2)[outside][0])
        raise InputError(
            f"form = 'real' is of values in [-1, 1], and the target has the value "
            f"{value:.6g}; scale the read-out, or take form='sign'"
        )
    low, high = changes
    least = np.maximum(0.0, np.maximum(low, -high))
    return np.stack([least**2, np.maximum(low**2, high**2)]) / 4


def as_row(found: Sensitivity) -> dict[str, Any]:
    """Table row of the result at one length; interval ends None without an interval."""
    row = {**vars(found), "mean": found.mean, "n": found.length}
    ends = row.pop("interval") or (None, None)
    del row["length"], row["form"]
    return row | dict(zip(("interval_lower", "interval_upper"), ends, strict=True))


COLUMNS = (
    *("n", "positions", "mean", "lower", "upper", "interval_lower", "interval_upper"),
    *("inputs", "undecided", "kind"),
)
# Header and key of the columns that are printed.
SHOWN = (
    *(("n", "n"), ("mean", "mean"), ("95% from", "interval_lower")),
    *(("to", "interval_upper"), ("undecided", "undecided"), ("inputs", "inputs")),
    ("kind", "kind"),
)
COUNTED = {
    "sign": "positions that decide the sign",
    "real": "1/4 of the sum of squared changes",
}


@dataclasses.dataclass(frozen=True)
class SensitivityCurve:
    """Average sensitivity of the model `label` at several lengths, as rows of a table."""

    label: str
    rows: Sequence[Mapping[str, Any]]

    @functools.cached_property
    def fit(self) -> DecayFit:
        """Power law positions^-exponent fitted to the means: a negative exponent grows."""
        return fit_decay(*points(self.rows, "mean", "positions"))

    @functools.cached_property
    def power(self) -> str:
        """Text of the fitted power of n with its 95 % interval; "" without a fit."""
        ends, exponent = exponent_interval(self.fit), self.fit.exponent
        if ends is None or exponent is None:
            return ""
        low, power, high = map(show_exponent, (-ends[1], -exponent, -ends[0]))
        return f"fitted power of n {power} (95% interval {low} to {high})"

    @property
    def finding(self) -> str:
        """Sentence on the fitted power of n, or on why none is fitted."""
        fit = self.fit
        if not self.power:
            return (
                f"{self.label}: the average sensitivity is not 0 at {fit.lengths} "
                f"length{'s' * (fit.lengths != 1)}; "
                f"a power of n is fitted to {MIN_LENGTHS} or more."
            )
        return (
            f"{self.label}: the average sensitivity {describe_trend(fit)}; {self.power} "
            f"over {fit.lengths} lengths of {fit.first} to {fit.last} positions n."
        )

    def record(self) -> dict[str, Any]:
        """Rows, power-law fit with its interval, and finding, for a JSON file."""
        fit = dataclasses.asdict(self.fit) | {"interval": exponent_interval(self.fit)}
        return {"fit": fit, "finding": self.finding, "rows": self.rows}

    def report(self, form: Form) -> str:
        """Text of the table of means at each length, then the finding."""
        counted = (
            f"Average sensitivity over uniform inputs of n tokens: {COUNTED[form]}."
        )
        table = ruled(column_table(self.rows, SHOWN, ".4g"))
        return "\n".join(["", counted, *table, self.finding, ""])

    def plot(self) -> "Figure":
        """Figure of the means with their intervals, between the guides n and √n."""
        from bounds.figures.curves import sensitivity_figure

        label = f"{self.label}: {self.power}" if self.power else self.label
        return sensitivity_figure(self.rows, label)
