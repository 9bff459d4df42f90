"""The constants of a model at one length: all that closed forms of Lemma 5 need.

A layer's programs (steps at one position, before and after attention) give rows as forms,
sums of linear maps and activations of other rows (`row_form`); between them stands attention,
whose averages a_h, one per head, are no longer than the rows it reads. Position encodings
are read at one length, so that no encoding beyond it is evaluated: block by block where they
are a table or few enough, else in closed form. The rounding of their formulas is counted:
that of a sine, a power, a sum of terms, and of the model's float type. A hard weighting,
which gives all weight to the keys of largest score, has no constants.
"""

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator
from typing import TypeAlias

import numpy as np
from jaxtyping import Array, Float, Int

from bounds.lemma5.closed_form import (
    Additive,
    DotProduct,
    HeadConstants,
    LayerConstants,
    Score,
    growth_constant,
    largest_weight,
)
from bounds.lemma5.constants.row_form import (
    Corner,
    Form,
    NormConstants,
    Reader,
    read_norm,
    read_rows,
)
from bounds.numbers.interval import (
    Interval,
    exp,
    interval,
    log,
    lower,
    maximum,
    minimum,
    sqrt,
    upper,
)
from bounds.numbers.rounding import SCALAR_STEPS, gamma, gamma_upper, unit_roundoff
from bounds.numbers.spectral import (
    Enclosure,
    frobenius_upper,
    largest_row_norm,
    norm_upper,
)
from bounds.readings import no_rule, unsupported_model
from jax_models import InputError, Transformer
from jax_models.arguments import BriefRepr, expect_integer
from jax_models.format.model_check import check_model
from jax_models.model import scores
from jax_models.model.attention import Attention, Schedule
from jax_models.model.layer import Layer
from jax_models.model.mask import SIGHTS
from jax_models.model.position import (
    Coordinates,
    PositionTable,
    PowerTerm,
    ResidueTerm,
    Sinusoidal,
)
from jax_models.model.rows import Affine, Norm, Operation, Steady
from jax_models.model.temperature import ConstantTemperature, InverseLogTemperature

Symbols: TypeAlias = Float[np.ndarray, "symbols width"]

MOST_CLASSES = 2**18  # numbers in the classes of positions that are told apart
LARGEST_EXACT = 2**52  # halves are exact below it
# Numbers in one block of symbols against positions, and in all that are looked at.
_BLOCK, _MOST = 2**18, 2**24


def largest_sum_in_closed_form(
    symbols: Symbols, position: Sinusoidal | Coordinates, length: int, dtype: np.dtype
) -> float:
    """Upper bound on |e + p| over symbols e and the encodings p of all n positions."""
    # For one row of zeros as `symbols` it bounds |p|. Encodings are rounded to `dtype`;
    # the bound is infinite where one may leave its range.
    if isinstance(position, Coordinates):
        return _coordinates(symbols, position, length, dtype)
    position.encode(1, symbols.shape[1])  # refuses an odd width
    # A pair of coordinates is s (sin θ, cos θ) at every position, so with (a, b) those
    # of a symbol it is at most |(a, b)| + |s| long.
    half, scale = symbols.shape[1] // 2, abs(position.scale)
    smallest, largest = _range_of(dtype)
    off = scale * _rounding(1, dtype) + smallest
    if not scale + off < largest:
        return math.inf
    with np.errstate(over="ignore"):
        pairs = np.hypot(symbols[:, :half], symbols[:, half:])
        reach = (pairs + scale) * (1 + gamma_upper(SCALAR_STEPS)) + smallest
    # Each coordinate is off by itself.
    apart = interval(off) * sqrt(interval(2 * half))
    return upper(interval(largest_row_norm(reach)) + apart)


def _coordinates(
    symbols: Symbols, position: Coordinates, length: int, dtype: np.dtype
) -> float:
    width, terms = symbols.shape[1], position.terms
    if length > _range_of(np.dtype(np.float64))[1]:
        raise InputError(
            "length n is beyond float64, in which the model's position terms are "
            "evaluated; use a shorter one"
        )
    # Refuses what has no value, a pole or another width, and what overflows at an end.
    ends = [_turning_points(t, length) for t in terms if isinstance(t, PowerTerm)]
    position.encode(length, width, np.concatenate([np.zeros(1), *ends]))
    # Residues and alternating signs repeat, with a common period. In each class of
    # positions modulo the period they are numbers, and the rest, powers of p, is
    # monotone on either side of p = 0: it is largest and smallest at an end or next to
    # 0. So every class lies in a box, and the sum with a symbol is longest at a corner.
    period = 2
    for modulus in (x.modulus for x in terms if isinstance(x, ResidueTerm)):
        common = math.lcm(period, modulus)
        # A common period of too many classes is not followed: `_range` then takes
        # [0, 1].
        period = common if common * width <= MOST_CLASSES else period
    classes = np.arange(period)
    low, high, size = np.zeros((3, period, width))
    for term in terms:
        ends = _range(term, length, classes)
        low[:, term.coordinate] += ends[0]
        high[:, term.coordinate] += ends[1]
        size[:, term.coordinate] += np.abs(ends).max(axis=0)
    found, (smallest, largest) = 0.0, _range_of(dtype)
    for e in symbols:
        off = (size + np.abs(e)) * _rounding(len(terms), dtype) + smallest
        reach = np.maximum(np.abs(e + low - off), np.abs(e + high + off))
        if not np.max(size + off, initial=0.0) < largest:
            return math.inf
        found = max(found, largest_row_norm(reach))
    return found


def _range(
    term: PowerTerm | ResidueTerm, length: int, classes: Int[np.ndarray, "classes"]
) -> tuple[Float[np.ndarray, "classes"], Float[np.ndarray, "classes"]]:
    """Lower and upper bounds on a position term's values, by residue class of positions."""
    ones = np.ones(len(classes))
    # Beyond it p is not the float that it is computed as, and its classes are lost.
    exact = abs(term.offset) + length < LARGEST_EXACT
    if isinstance(term, ResidueTerm):
        if not exact or len(classes) % term.modulus:
            return 0 * ones, ones
        value = term.evaluate(length, classes)
        return value, value
    plain = dataclasses.replace(term, alternating=False)
    value = plain.evaluate(length, _turning_points(term, length))
    if not term.alternating:
        return value.min() * ones, value.max() * ones
    if not exact:
        return -np.abs(value).max() * ones, np.abs(value).max() * ones
    sign = np.where((classes + term.offset) % 2 == 0, 1.0, -1.0)
    ends = sign * value.min(), sign * value.max()
    return np.minimum(*ends), np.maximum(*ends)


def _turning_points(term: PowerTerm, length: int) -> Float[np.ndarray, "positions"]:
    """Positions among which a term, a power of position + offset, has its extremes."""
    zero = math.floor(-term.offset)
    inside = {min(max(at, 0), length - 1) for at in (zero, zero + 1)}
    return np.asarray(sorted({0, length - 1} | inside), np.float64)


def _rounding(terms: int, dtype: np.dtype) -> float:
    """Upper bound on the relative error of a sum of position terms in a float type."""
    # Sines and powers of the libraries are taken to be within 16 units in the last
    # place.
    return 2 * gamma_upper(terms + 2 * SCALAR_STEPS) + 2 * unit_roundoff(dtype)


def _range_of(dtype: np.dtype) -> tuple[float, float]:
    """Smallest normal and largest number of a float type."""
    limits = np.finfo(dtype)
    return float(limits.smallest_normal), float(limits.max)


@dataclasses.dataclass(frozen=True)
class EmbeddingNorms:
    """Upper bounds on norms of embeddings, over all symbols and the n positions.

    Attributes:
        norm: F_0, of symbol plus position.
        separate: max |position| + max |symbol|, which Hahn 2020 uses for F_0.
        distance: D, between the embeddings of two symbols that may be exchanged.
    """

    norm: float
    separate: float
    distance: float


def read_embeddings(model: Transformer, length: int) -> EmbeddingNorms:
    """Upper bounds on the norms of a model's embeddings at one length."""
    symbols = np.asarray(model.embedding, np.float64)
    formula = model.position
    few = length * model.width <= _MOST
    if few or formula is None or isinstance(formula, PositionTable):
        # Block by block, in memory that the length does not change; else in closed
        # form.
        place = together = 0.0
        for positions in _position_blocks(model, length):
            place = max(place, largest_row_norm(positions))
            together = max(together, _largest_sum(symbols, positions))
    else:
        question = formula, length, np.dtype(model.dtype)
        none = np.zeros((1, model.width))
        place = largest_sum_in_closed_form(none, *question)
        together = largest_sum_in_closed_form(symbols, *question)
    separate = upper(interval(largest_row_norm(symbols)) + interval(place))
    listed = model.substitutable
    chosen = symbols if listed is None else symbols[list(listed)]
    distance = max((largest_row_norm(chosen - one) for one in chosen), default=0.0)
    # A float difference is within a factor 1 ± u of the true one.
    distance = upper(interval(distance) / (1 - gamma(1)))
    return EmbeddingNorms(min(separate, together), separate, distance)


def _position_blocks(
    model: Transformer, length: int
) -> Iterator[Float[np.ndarray, "positions width"]]:
    """Yields blocks of all positions' encodings, in the model's floats; zeros for none."""
    formula = model.position
    if formula is None:
        yield np.zeros((1, model.width))
        return
    if isinstance(formula, PositionTable):
        read = np.asarray(formula.encode(length, model.width)).__getitem__
    else:
        read = functools.partial(formula.encode, length, model.width)
    rows = max(1, _BLOCK // max(model.embedding.shape))
    for start in range(0, length, rows):
        at = np.arange(start, min(start + rows, length))
        yield read(at).astype(model.dtype).astype(np.float64)


def _largest_sum(
    symbols: Symbols, positions: Float[np.ndarray, "positions width"]
) -> float:
    """Upper bound on |e + p| over symbols e and encodings p, by |e|² + |p|² + 2 e·p."""
    # Scaled by a power of two, so that squares stay within the floats.
    scale = np.frexp(max(np.max(np.abs(symbols)), np.max(np.abs(positions))))[1]
    e, p = np.ldexp(symbols, -scale), np.ldexp(positions, -scale)
    of_e, of_p = (np.einsum("ij,ij->i", x, x) for x in (e, p))
    largest = float(np.max(of_e + of_p[:, None] + 2 * (p @ e.T), initial=0.0))
    reach = interval(largest_row_norm(e)) + interval(largest_row_norm(p))
    # Every term is an inner product of d terms and there are two more additions, so the
    # computed square is off by at most γ_{d+2} (|e| + |p|)².
    hidden = gamma(e.shape[1] + 2) * reach**2
    return upper(sqrt(interval(largest) + hidden) * interval(2) ** int(scale))


def read_scores(attention: Attention, name: str, length: int) -> tuple[Score, ...]:
    """Norms that bound every head's logits, temperature and 1/√d_k included."""
    # `name` is the layer's name in the model format, "layers.0".
    divisor = lowest_temperature(attention.temperature, length)
    if lower(divisor) == 0:
        raise InputError(
            f"{name}: the temperature {attention.temperature} is below every float at "
            f"n = {length}, expected a positive number; use a larger one"
        )
    scoring = attention.scoring
    square = scoring.square_scale(attention.key_width)
    if square != 1:
        divisor *= sqrt(interval(square))
    return tuple(
        read_score(scoring, attention, head).at_temperature(lower(divisor))
        for head in range(attention.num_heads)
    )


def lowest_temperature(schedule: Schedule | None, length: int) -> Interval:
    """Interval around the smallest temperature of the rows 1 … n of a sequence."""
    # Every bound grows with 1/τ, so that the bound for the smallest τ holds for all
    # rows.
    match schedule:
        case None:
            return interval(1)
        case ConstantTemperature():
            return interval(float(schedule.value))
        case InverseLogTemperature():
            return interval(float(schedule.scale)) / log(interval(length))
    # A power of the position is monotone: its smallest value is at an end.
    ends = [length] if schedule.of == "length" else [1, length]
    powers = [exp(interval(schedule.exponent) * log(interval(m))) for m in ends]
    return interval(float(schedule.scale)) * minimum(*powers)


def as_float64(array: Float[Array, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Parameter array converted to float64, exactly."""
    return np.asarray(array, np.float64)


@functools.singledispatch
def read_score(score: scores.Score, attention: Attention, head: int) -> Score:
    """Norms that bound a head's logits before temperature and √d_k, or an InputError."""
    raise InputError(f"{score.word} scores have no constants; use compute_influence")


@read_score.register
def _(score: scores.DotProductScore, attention: Attention, head: int) -> DotProduct:
    query = Enclosure(as_float64(attention.query)[head])
    key = Enclosure(as_float64(attention.key_by_head)[head]).transposed
    c = 0.0
    # The bias of the keys adds the same to all logits of a row and drops out.
    if attention.query_bias is not None:
        bias = as_float64(attention.query_bias)[head]
        c = (key @ Enclosure(bias[:, None])).norm_upper()
    return DotProduct((key @ query).norm_upper(), c)


@read_score.register
def _(score: scores.AdditiveScore, attention: Attention, head: int) -> Additive:
    vector = as_float64(score.vector)[head]
    size = interval(frobenius_upper(vector))
    # A sum of m terms >= 0 is at most 1/(1 - γ_m) times its computed value.
    total = interval(float(np.sum(np.abs(vector)))) / (1 - gamma(len(vector)))
    m1, m2 = (
        upper(size * interval(norm_upper(as_float64(weight)[head])))
        for weight in (attention.query, attention.key_by_head)
    )
    return Additive(m1, m2, upper(total))


def read_layer(
    layer: Layer, name: str, norm: float, length: int
) -> tuple[LayerConstants, float]:
    """Constants of a softmax layer, and an upper bound on the norm of its output rows."""
    # `name` is the layer's name in the model format, `norm` bounds its input.
    attention = layer.attention
    scores = read_scores(attention, name, length)
    names = {id(layer.norm1): f"{name}.norm1", id(layer.norm2): f"{name}.norm2"}
    start = Form(attention.query.shape[2], {"y": None})
    reader = Reader({"y": Corner(norm, math.inf, {"y": 1.0})}, names)
    read = read_rows(reader, layer.reads, {"y": start})
    # An average is no longer than the longest row that attention reads.
    averages = [f"average {head}" for head in range(attention.num_heads)]
    for average in averages:
        reader.corners[average] = Corner(read.size, math.inf, {average: 1.0})
    rows = {"y": start, "heads": _heads(attention, averages)}
    out = read_rows(reader, layer.writes, rows)
    heads = map(HeadConstants, scores, (out.gains[x] for x in averages))
    if "y" not in out.gains or "y" not in read.gains:
        raise InputError(f"{name} has a program that leaves its input rows out")
    constants = LayerConstants(
        norm=read.size,
        heads=tuple(heads),
        skip_gain=out.gains["y"],
        input_gain=read.gains["y"],
        output_cap=min(out.cap, 2 * out.size),
    )
    return constants, out.size


def _heads(attention: Attention, averages: list[str]) -> Form:
    """Form of the heads' outputs V_h a_h + b_h side by side; 0 where a row sees nothing."""
    size, parts = attention.value_width, []
    for head, average in enumerate(averages):
        offsets: tuple[Enclosure | None, ...] = (None,)
        if attention.value_bias_by_head is not None:
            bias = Enclosure(as_float64(attention.value_bias_by_head)[head][:, None])
            # A row that sees nothing has output 0, without the bias.
            offsets = (bias,) if attention.sight.itself else (bias, None)
        value = Enclosure(as_float64(attention.value_by_head)[head])
        parts.append(Form(size, {average: value}, at_zero=offsets))
    return Form(size * len(parts), parts=tuple(parts))


@dataclasses.dataclass(frozen=True)
class ReadoutConstants:
    """Constants of a model's map from activations to logits, its head, rounded up."""

    lipschitz: float  # its Lipschitz constant; the spectral norm of a linear map
    change_cap: float  # on the distance of any two outputs; infinite where unknown

    def moved(
        self, before: Float[np.ndarray, "substitutions"]
    ) -> Float[np.ndarray, "substitutions"]:
        """Upper bounds on the logits' changes, from those on the activation's, `before`."""
        with np.errstate(over="ignore", invalid="ignore"):
            # One step up covers the rounding of the product.
            found = np.nextafter(self.lipschitz * before, np.inf)
        # An infinite constant times no change is NaN, and no change.
        found = np.where(before == 0, 0.0, np.where(np.isnan(found), np.inf, found))
        return np.minimum(found, self.change_cap)


def is_one_map(model: Transformer) -> bool:
    """Whether a model's logits are one affine map of its final activation."""
    operations = [step.operation for step in model.head.steps]
    return len(operations) == 1 and isinstance(operations[0], Affine)


def read_head(model: Transformer) -> ReadoutConstants:
    """Constants of a model's map to logits; an InputError for ε = 0 or unknown operations."""
    steps = (lipschitz(step.operation, step.name) for step in model.head.steps)
    return ReadoutConstants(*compose(steps))


def compose(maps: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Lipschitz constant of composed maps, and a bound on the distance of two outputs."""
    gain, cap = interval(1), math.inf
    for steep, most in maps:
        gain *= interval(steep)
        # Later maps scale the distance that earlier ones allow.
        if cap < math.inf:
            cap = upper(interval(cap) * interval(steep))
        cap = min(cap, most)
    return upper(gain), cap


@functools.singledispatch
def lipschitz(operation: Operation, name: str) -> tuple[float, float]:
    """Upper bounds on an operation's Lipschitz constant and the distance of two outputs."""
    raise no_rule("lipschitz", operation)


@lipschitz.register
def _(operation: Affine, name: str) -> tuple[float, float]:
    return norm_upper(as_float64(operation.weight)), math.inf


@lipschitz.register
def _(operation: Steady, name: str) -> tuple[float, float]:
    return operation.steepest, math.inf


@lipschitz.register
def _(operation: Norm, name: str) -> tuple[float, float]:
    known = read_norm(operation, name)
    return known.lipschitz, known.change_cap


@dataclasses.dataclass(frozen=True, repr=False)
class ModelConstants(BriefRepr):
    """Upper bounds that hold for all inputs of one length; layer k is `layers[k - 1]`.

    Attributes:
        length: n.
        embedding: F_0, D and the norms that the printed F starts from.
        layers: Constants of layers 1 … L at the temperature of this length.
        masks: One per layer.
        norms: F_1 … F_L, of the activations after each layer.
        final: Constants of the final LayerNorm; None where there is none.
        readout: Constants of the read-out, or another head; None where there is none.
    """

    length: int
    embedding: EmbeddingNorms
    layers: tuple[LayerConstants, ...]
    masks: tuple[str, ...]
    norms: tuple[float, ...]
    final: NormConstants | None
    readout: ReadoutConstants | None

    @property
    def is_masked(self) -> bool:
        """Whether some row of some layer does not see every position."""
        return not all(SIGHTS[mask].everything for mask in self.masks)

    def attended_norm(self, layer: int) -> float:
        """F: upper bound on the norms of rows that the attention of layers 1 … k reads."""
        return max(x.norm for x in self.layers[:layer])

    def half_oscillation(self, layer: int) -> float:
        """A: upper bound on half the difference of a row's logits, layers 1 … k; nats."""
        return upper(maximum(*map(_half_oscillation, self.layers[:layer])))

    def log10_half_weight(self, layer: int) -> float:
        """log10(1 + e^{2A}): the n at which the bound on a weight of a row of n is 1/2.

        A is that of this length, layers 1 … k. In shorter rows the bound is larger and
        says next to nothing; in longer ones it falls like 1/n.
        """
        half = interval(self.half_oscillation(layer))
        return upper(log(1 + exp(2 * half)) / log(interval(10)))

    def attention_weight(self, layer: int, query: int) -> float:
        """ᾱ: upper bound on the query row's weights, layers 1 … k; 0 if it sees nothing."""
        pairs = zip(self.layers[:layer], self.masks[:layer], strict=True)
        weights = (
            largest_weight(upper(_half_oscillation(constants)), visible).value
            for constants, mask in pairs
            if (visible := SIGHTS[mask].count(query, self.length))
        )
        return max(weights, default=0.0)

    def growth(self) -> float | None:
        """C_fact, growth of activation norms per layer; None where only biases are not 0.

        Covers what leaves each layer and what its attention reads, which under pre-norm
        is not a layer's output.
        """
        norms = list(map(max, self.norms, (layer.norm for layer in self.layers)))
        if self.embedding.separate == 0 and max(norms) > 0:
            return None
        return growth_constant(self.embedding.separate, norms)


def read_constants(model: Transformer, length: int) -> ModelConstants:
    """Read every constant of the closed forms off a model, as rigorous upper bounds.

    Spectral norms are computed singular values, enlarged by what rounding can hide
    (`bounds.numbers.spectral`); everything made of them is rounded upwards.

    Args:
        model: A transformer with softmax attention in every layer.
        length: n >= 2; temperatures and position encodings may depend on it.

    Returns:
        The constants.

    Raises:
        InputError: n is below 2 or beyond the position table; there is no layer; a
            weighting is hard, a LayerNorm has ε = 0 or a temperature is zero as a
            float, so that no constant exists; a score or operation has no rule.

    Source:
        Hahn 2020, Lemma 5 and its proof: F, A, C_att, L_fact, made explicit.
    """
    model = check_model(model)
    length = expect_integer("length n", length, most=math.inf)
    if length < 2:
        raise InputError(
            f"length n = {length}; the closed forms compare two positions, so they "
            "need n >= 2"
        )
    if not model.layers:
        raise InputError("the model has no layers; the closed forms need at least one")
    refuse_hard(model, "and Lemma 5 does not apply; re-weight the model with softmax")
    if lack := unsupported_model(model):
        raise InputError(f"the closed forms cannot follow the model: {lack}")
    embedding = read_embeddings(model, length)
    norm, layers, norms = embedding.norm, [], []
    for k, layer in enumerate(model.layers):
        constants, norm = read_layer(layer, f"layers.{k}", norm, length)
        layers.append(constants)
        norms.append(norm)
    final = model.final_norm
    return ModelConstants(
        length=length,
        embedding=embedding,
        layers=tuple(layers),
        masks=tuple(layer.attention.mask for layer in model.layers),
        norms=tuple(norms),
        final=None if final is None else read_norm(final, "final_norm"),
        readout=None if model.readout is None else read_head(model),
    )


def refuse_hard(model: Transformer, remedy: str) -> None:
    """Raises `InputError` for a hard weighting; the message ends with `remedy`."""
    for depth, layer in enumerate(model.layers):
        weighting = layer.attention.weighting
        if weighting.hard:
            raise InputError(
                f"layers.{depth}: the weighting {weighting.name} is hard: a winner "
                f"changes by a jump, so there is no Lipschitz constant {remedy}"
            )


def _half_oscillation(layer: LayerConstants):
    norm = interval(layer.norm)
    return maximum(*(head.score.half_oscillation(norm) for head in layer.heads))
