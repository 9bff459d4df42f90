"""A model's cross-entropy at one length, and the floor that its own ε leaves.

A theorem (`floor_theorem`) pairs prefixes that differ in one symbol; the less the
model's log-odds move within a pair, the higher is the floor, a lower bound on the
pair's mean loss. The loss of each prefix is averaged with that of its partner, by their
probabilities: the mean is the same, its error is smaller, and in a sample too no floor
under a pair is above the loss that stands beside it. The floor is the mean of the
floors under the pairs. A prediction is read at the prefix's last symbol (reading
"last", R1) or at an end token after it ("query", R2); pairs of one kind have one floor
at equal ε.

ε is the largest change of the log-odds within a pair of prefixes, Λ their largest
change per unit of the activation that is read (`log_odds_norm`). ε is bounded from
above by one of three methods:

* "closed_form": Λ times the corrected Lemma 5, one ε for all inputs of the length.
* "certificate": Λ times a certified bound on the influence of exchanging the one symbol
  in which a pair differs.
* "exact": the change of the log-odds themselves, from two forward passes a pair, with
  the radius of their rounding added.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from bounds.entropy.closed_form import READINGS
from bounds.entropy.predictions import (
    Population,
    Predictions,
    check_predictor,
    enumerate_prefixes,
    log_probabilities,
    model_tokens,
    predict,
    sample_prefixes,
)
from bounds.entropy.theorems import OUTSIDE, FloorTheorem, Pairs, floor_theorem
from bounds.lemma5.certificate import certify_influence
from bounds.lemma5.constants import closed_form_bounds
from bounds.numbers.interval import Interval, exp, interval, log, maximum, sqrt, upper
from bounds.numbers.notation import column_table
from bounds.numbers.rounding import gamma_upper, unit_roundoff
from jax_models import InputError, Transformer
from jax_models.arguments import choose_name, expect_integer, expect_length
from jax_models.format.model_check import check_model
from jax_models.jax_arguments import check_float_type
from jax_models.languages import Source
from jax_models.run.evaluate import linear_readout

ByInput: TypeAlias = Float[np.ndarray, "inputs"]

CLOSENESS = ("exact", "certificate", "closed_form")


def log_odds_norm(model: Transformer, pairs: Sequence[tuple[int, int]]) -> float:
    """Bound Λ, the largest move of log-odds per unit of the activation that is read.

    |Δ ln(q_s/q_t)| = |(W_s - W_t) Δy| <= Λ |Δy|, Λ = max over the pairs of |W_s - W_t|.

    Args:
        model: A transformer with a read-out.
        pairs: Classes (s, t) whose log-odds matter.

    Returns:
        Λ in nats per unit, rounded up.

    Raises:
        InputError: There is no read-out, or no such class.

    Source:
        Hahn 2020, Theorem 6, corrected: from influence to log-odds.
    """
    weight = np.asarray(linear_readout(model).weight, np.float64)
    if not pairs:  # the floor is an optimum, which no closeness moves
        return 0.0
    most = max(max(pair) for pair in pairs)
    if most >= len(weight):
        raise InputError(
            f"the read-out has {len(weight)} classes; class {most} is needed"
        )

    def distance(s: int, t: int) -> Interval:
        both = zip(weight[s].tolist(), weight[t].tolist(), strict=True)
        return sqrt(sum((interval(a) - interval(b)) ** 2 for a, b in both))

    return upper(maximum(*(distance(s, t) for s, t in pairs)))


def exact_closeness(
    own: Predictions, other: Predictions, class_pairs: Sequence[tuple[int, int]]
) -> ByInput:
    """Returns each prefix's ε to its partner over `class_pairs`, in nats, rounding added."""
    s, t = np.array(class_pairs).T
    moved = own.logits - other.logits
    # A difference of two logits of one prefix is off by at most that prefix's radius.
    return np.abs(moved[:, s] - moved[:, t]).max(axis=1) + own.radius + other.radius


# Groups of each kind of pair; up to as many pairs each stands alone. By Lemma E the floor
# φ under a pair is convex in ε: φ at the mean ε of a group is at most the mean of φ over
# the group, and the loss is of second order in the group's spread.
GROUPS = 256
ENUMERATED = 14  # the longest prefixes that are enumerated
MOST_CERTIFIED = 4096  # the most prefixes whose pairs all get a certificate


def entropy_levels(source: Source, length: int) -> dict[str, Any]:
    """Returns a source's optimum, simple predictions and floors at ε = 0, as a row.

    Args:
        source: A source with a theorem.
        length: n >= 1 symbols.

    Returns:
        `n`, `optimal`, `unigram` (the best constant prediction), `last_symbol` (the best
        from x_n alone), `floor_r1` and `floor_r2` at `eps` = 0, and `p0` where the
        theorem rests on it.

    Raises:
        InputError: There is no theorem or no such prefix.
    """
    theorem, levels = floor_theorem(source), source.levels(length)
    return {
        "n": length,
        **{x: getattr(levels, x) for x in ("optimal", "unigram", "last_symbol")},
        "floor_r1": theorem.bound(length, "last", 0.0).value,
        "floor_r2": theorem.bound(length, "query", 0.0).value,
        "eps": 0.0,
        "p0": theorem.closing_above_ground(length),
        "eps_kind": "limit",
        "floor_kind": "certified",
    }


@dataclasses.dataclass(frozen=True)
class Floor:
    """Lower bound on a model's cross-entropy from ε, the most its log-odds move in pairs.

    Attributes:
        value: Nats.
        standard_error: 0 where it is not an estimate.
        kind: "certified", "exact" (to a rounding radius, which is taken off) or
            "estimated" (from sampled pairs).
        closeness: ε, the mean over the prefixes with a pair; infinite beyond float
            range, NaN without pairs.
        log10_closeness: Its decimal logarithm, for a closed form beyond float range.
    """

    value: float
    standard_error: float
    kind: str
    closeness: float
    log10_closeness: float | None


def averaged_floor(
    theorem: FloorTheorem,
    reading: str,
    population: Population,
    pairs: Pairs,
    epsilons: ByInput,
) -> Floor:
    """Lower bound on the mean, over a population of prefixes, of the floors of its pairs."""
    # Each prefix has the floor at the mean ε of a group of pairs, its own among them.
    n, weights = population.strings.shape[1], population.weights
    values = np.empty(weights.size)
    for kind in np.unique(pairs.kinds):
        rows = np.flatnonzero(pairs.kinds == kind)
        if kind == OUTSIDE:
            values[rows] = theorem.pair_bound(n, reading, OUTSIDE, math.inf).value
            continue
        # Sorted, so that the ε of a group lie close together.
        rows = rows[np.argsort(epsilons[rows], kind="stable")]
        for group in np.array_split(rows, min(GROUPS, rows.size)):
            mean = _mean_from_above(epsilons[group], weights[group])
            values[group] = theorem.pair_bound(n, reading, int(kind), mean).value
    paired = pairs.kinds != OUTSIDE
    closeness = math.nan
    if paired.any():
        closeness = float(np.average(epsilons[paired], weights=weights[paired]))
    # A weight is e to a sum of n logarithms, so off by as many roundoffs of the sum.
    u = unit_roundoff(jnp.float64)
    off = (n + 4) * u * (2 + float(-np.log(weights.min())))
    mean = population.mean(values) * (1 - 2 * off - gamma_upper(2 * weights.size + 4))
    kind = "exact" if population.is_complete else "estimated"
    return Floor(mean, population.standard_error(values), kind, closeness, None)


def _mean_from_above(epsilons: ByInput, weights: ByInput) -> float:
    """Weighted mean of numbers >= 0, rounded up but not above the largest."""
    if np.isinf(epsilons).any():
        return math.inf
    mean = float(np.average(epsilons, weights=weights))
    return min(mean * (1 + gamma_upper(4 * epsilons.size + 4)), float(epsilons.max()))


@dataclasses.dataclass(frozen=True)
class ModelEntropy:
    """A model's cross-entropy on a source at one length, and the floor beneath it.

    Attributes:
        length: n, in symbols.
        reading: "last" or "query".
        cross_entropy: The model's, nats.
        standard_error: Its standard error, 0 where all prefixes were enumerated.
        floor: The floor that the model's ε leaves.
        method: Method that gave ε: "exact", "certificate" or "closed_form".
    """

    length: int
    reading: str
    cross_entropy: float
    standard_error: float
    floor: Floor
    method: str

    def as_row(self, source: Source) -> dict[str, Any]:
        """Table row of the command `entropy`, with the source's optimum and floors."""
        # The row has both readings' floors; the model's ε replaces that of its own
        # reading.
        mine, other = ("floor_r1", "floor_r2")[:: 1 if self.reading == "last" else -1]
        return {
            **entropy_levels(source, self.length),
            mine: self.floor.value,
            other: None,
            "eps": self.floor.closeness,
            "model": self.cross_entropy,
            "model_stderr": self.standard_error,
            "eps_kind": self.method,
            "floor_kind": self.floor.kind,
            "floor_stderr": self.floor.standard_error,
            "log10_eps": self.floor.log10_closeness,
        }


def measure_entropy(
    model: Transformer,
    source: Source,
    length: int,
    *,
    reading: str = "last",
    closeness: str = "exact",
    num_inputs: int = 256,
    seed: int = 0,
) -> ModelEntropy:
    """Returns a model's cross-entropy on prefixes of a length and the floor beneath it.

    Up to 14 symbols all prefixes are enumerated, beyond that they are sampled.

    Args:
        model: A transformer with a read-out of the source's classes.
        source: PARITY, 2DYCK, or an automaton (whose floor is the optimum).
        length: n >= 1 symbols; under "query" the model is given n + 1 tokens.
        reading: "last" (R1) or "query" (R2).
        closeness: Method for ε: "exact", "certificate" or "closed_form".
        num_inputs: Sampled prefixes, at least 2.
        seed: Of the sample.

    Returns:
        The measurement.

    Raises:
        InputError: The model does not fit the source, or has no such ε.

    Source:
        Hahn 2020, Theorem 6, corrected: Theorems F and G.
    """
    check_float_type(jnp.float64, "every floor")
    model = check_model(model)
    choose_name("reading", reading, READINGS)
    choose_name("closeness", closeness, CLOSENESS)
    length = expect_length(length)
    expect_integer("seed", seed, 0, 2**31 - 1)
    theorem = floor_theorem(source)  # refuses a source without one
    source.levels(length)  # and a length without prefixes
    sample = functools.partial(sample_prefixes, source, length, num_inputs, seed)
    enumerated = length <= ENUMERATED
    population = enumerate_prefixes(source, length) if enumerated else sample()
    check_predictor(model, source, length, reading)
    question = _Question(model, source, theorem, reading)
    # Bounds that may refuse the model come before its evaluation, which takes longer.
    floor = None
    if closeness == "closed_form":
        floor = question.closed_form(length)
    elif closeness == "certificate":
        # A certificate a pair is too slow for all pairs of a long length: a sample
        # estimates the floor.
        chosen = population
        if population.is_complete and len(population.strings) > MOST_CERTIFIED:
            chosen = sample()
        floor = question.certified(chosen)
    population, pairs = question.pair(population)
    losses, epsilons = question.evaluate(population.strings, pairs)
    if floor is None:
        floor = averaged_floor(theorem, reading, population, pairs, epsilons)
    loss = population.mean(losses), population.standard_error(losses)
    return ModelEntropy(length, reading, *loss, floor, closeness)


@dataclasses.dataclass(frozen=True)
class _Question:
    """A model with source, theorem and reading; computes its losses, pairs, ε and floors."""

    model: Transformer
    source: Source
    theorem: FloorTheorem
    reading: str

    def evaluate(
        self, strings: Int[np.ndarray, "inputs tokens"], pairs: Pairs
    ) -> tuple[ByInput, ByInput]:
        """Losses of prefixes, each averaged with its partner's, and each pair's exact ε."""
        source, rows = self.source, np.flatnonzero(pairs.kinds != OUTSIDE)
        partners, count = pairs.partners[rows], len(strings)
        # In one call, so that one program is compiled.
        both = np.concatenate([strings, partners])
        both = predict(self.model, source, both, self.reading)
        own, other = both[np.arange(count)], both[count + np.arange(rows.size)]
        losses, closeness = own.losses.copy(), np.zeros(count)
        if rows.size:
            gain = log_probabilities(source, partners)
            gain -= log_probabilities(source, strings[rows])
            # Share of the prefix in the probability of its pair.
            share = 1 / (1 + np.exp(gain))
            losses[rows] = share * losses[rows] + (1 - share) * other.losses
            classes = self.theorem.class_pairs
            closeness[rows] = exact_closeness(own[rows], other, classes)
        return losses, closeness

    def pair(self, population: Population) -> tuple[Population, Pairs]:
        """Population, its weights made exact by kind of pair if possible, and its pairs."""
        length = population.strings.shape[1]
        pairs = self.theorem.pairs(population.strings, self.reading)
        shares = self.theorem.kind_shares(length, self.reading)
        return population.stratified(pairs.kinds, shares), pairs

    def closed_form(self, length: int) -> Floor:
        """Certified floor from one ε for all inputs: Λ times Lemma 5's influence bound."""
        num_tokens = length + (self.reading == "query")
        epsilon = log10 = math.inf
        if num_tokens > 1:  # with one token there is nothing beside what is read
            norm = log_odds_norm(self.model, self.theorem.class_pairs)
            change = closed_form_bounds(self.model, num_tokens).corrected.others
            epsilon, log10 = 0.0, -math.inf
            # A factor of zero has no logarithm.
            if norm and change.log_value > -math.inf:
                # ε may be beyond float range where its logarithm is not.
                total = log(interval(norm)) + interval(change.log_value)
                epsilon, log10 = upper(exp(total)), upper(total / log(interval(10)))
        value = self.theorem.bound(length, self.reading, epsilon).value
        return Floor(value, 0.0, "certified", epsilon, log10)

    def certified(self, population: Population) -> Floor:
        """Mean floor of a population's pairs, each with its own certified ε."""
        population, pairs = self.pair(population)
        strings, known = population.strings, {}
        norm = interval(log_odds_norm(self.model, self.theorem.class_pairs))
        epsilons = np.zeros(len(strings))
        for row in np.flatnonzero(pairs.kinds != OUTSIDE):
            # Both members of a pair share one certificate, that of the smaller one.
            members = sorted((strings[row].tolist(), pairs.partners[row].tolist()))
            at = int(pairs.positions[row])
            key = tuple(members[0]), at
            if key not in known:
                prefix = np.array(members[:1], np.int32)
                certificate = certify_influence(
                    self.model,
                    model_tokens(self.source, prefix, self.reading)[0],
                    positions=[at],
                    symbols=[members[1][at]],
                )
                known[key] = upper(norm * interval(certificate.max_upper))
            epsilons[row] = known[key]
        theorem, reading = self.theorem, self.reading
        floor = averaged_floor(theorem, reading, population, pairs, epsilons)
        kind = "certified" if population.is_complete else "estimated"
        return dataclasses.replace(floor, kind=kind)


COLUMNS = (
    *("n", "optimal", "unigram", "last_symbol", "floor_r1", "floor_r2", "eps", "model"),
    *("model_stderr", "p0", "eps_kind", "floor_kind", "floor_stderr", "log10_eps"),
)
NUM_SHOWN = 10  # columns that are printed, the first
FLOORS = {"last": "floor_r1", "query": "floor_r2"}  # by the reading


def entropy_report(
    rows: Sequence[Mapping[str, Any]],  # one for each length
    has_theorem: bool,  # that puts a floor above the optimum
    reading: str | None,  # of the measured model; None without one
) -> str:
    """Table of levels and floors by length n, and a sentence on a model and its floor."""
    last, said = rows[-1], []
    floors = "the floors are those of a model in which one symbol has no influence"
    if not has_theorem:
        floors = "no theorem puts a floor above the optimum"
    if reading is not None:
        floors = f"floors are {last['floor_kind']} at n = {last['n']}"
        above = last["model"] - last[FLOORS[reading]]
        gap = last["unigram"] - last["model"]
        said = [
            "",
            f"At n = {last['n']} the model has {last['model']:.6g} (standard error "
            f"{last['model_stderr']:.2g}): {above:.3g} above its floor, {abs(gap):.3g} "
            f"{'below' if gap >= 0 else 'above'} the best constant prediction.",
        ]
    table = column_table(rows, [(name, name) for name in COLUMNS[:NUM_SHOWN]], ".6g")
    return "\n".join(["", f"Cross-entropies in nats; {floors}:", *table, *said, ""])
