"""A wrong argument of a closed form is a ValueError of one line that names it.

Every public callable has a row of right arguments; each of them is replaced by whatever
there is. What is in the argument's range is taken, and nothing else.
"""

import contextlib
import dataclasses
import inspect
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from bounds.entropy import closed_form as ce
from bounds.lemma5 import closed_form as cf
from bounds.numbers.interval import interval
from bounds.numbers.statements import nonnegative, positive, probability, whole
from bounds.restriction import closed_form as de
from bounds.restriction.closed_form.dyck import CERTIFIED
from bounds.simulation import closed_form as ap

VALUES = [
    *(None, True, 0, -1, 3.5, math.nan, math.inf, 1j, np.float32(0.5), Fraction(1, 3)),
    *("", "a", "a\nb", "1/2", "1/0", b"a", object(), object, range(0), {}),
    *(np.zeros(2), -(10**400)),
    *([], [None], ["a"], [1.0], (0,), [[0]], [math.nan]),
]

SCORE = cf.DotProduct(0.5, 0.25)
HEAD = cf.HeadConstants(SCORE, 0.5)
LAYER = cf.LayerConstants(1.0, (HEAD,), 1.0)
UNIFORM = cf.UniformConstants(0.5, 1.0, 1, 2)
SHAPE = ap.NetworkShape(2, 2, 2, 2, 1.5)
STEP = de.SwitchingStep(Fraction(1, 3), 2)
PROVES = de.SwitchingStep(Fraction(7, 20), 9)
DYCK = de.DyckParameters(1, (STEP,), (Fraction(1, 99),), (None,), Fraction(1, 5))
SHARE = Fraction(1, 2)

# Made by closed forms and by nobody else: they hold what they are given. Their methods
# that take an argument have rows of their own.
RECORDS = {
    *("LayerInfluence", "MaskedInfluence", "PrintedConstants"),
    *("HeightShares", "Route", "SwitchingProof", "Tower"),
}
NO_FUNCTIONS = {"MASKS", "Score", "READINGS", "Reading", "Weight"}

printed = {"scores": [SCORE], "output_lipschitz": 1.0, "num_heads": 1}
PRINTED = cf.printed_tight(norm=1.0, **printed)
MASKED = cf.masked_recursion([LAYER], ["none"], 3, 1.0)
whole_input = {"layers": [LAYER, LAYER], "length": 3, "distance": 1.0}
final = {"constants": UNIFORM, "length": 3, "distance": 1.0}
network = {"shape": SHAPE, "embedding": 1.0, "gap": 1.0, "length": 3, "error": 1e-9}
tie = {"gap": 1.0, "length": 3, "temperature": 0.5}
perturbed = {"gap": 1.0, "error": 0.25, "temperature": 0.5, "visible": 3}
end, up = {"end_probability": 0.25}, {"up_probability": 0.25}
read = {"length": 3, "reading": "last"}
size = {"num_layers": 2, "num_heads": 1}
free = {"num_layers": 1, "num_heads": 1, "free": SHARE}
chain = {"most": 2, "star_probability": SHARE, "digits": 20}

RIGHT: dict[str, dict[str, Any]] = {
    "Additive": {"m1": 1.0, "m2": 1.0, "sup": 1.0},
    "Additive.at_temperature": {"self": cf.Additive(1, 1, 1), "temperature": 0.5},
    "DotProduct": {"mu": 1.0, "c": 1.0},
    "DotProduct.at_temperature": {"self": SCORE, "temperature": 0.5},
    "HeadConstants": {"score": SCORE, "gain": 1.0},
    "LayerConstants": {
        **{"norm": 1.0, "heads": (HEAD,), "skip_gain": 1.0},
        **{"input_gain": 1.0, "output_cap": 1.0},
    },
    "MaskedInfluence.others": {"self": MASKED, "query": 0},
    "PrintedConstants.others": {
        **{"self": PRINTED, "layer": 1, "length": 3, "distance": 1.0}
    },
    "PrintedConstants.own": {"self": PRINTED, "layer": 1, "distance": 1.0},
    "UniformConstants": {
        **{"half_oscillation": 0.5, "output_lipschitz": 1.0},
        **{"num_heads": 1, "num_layers": 2},
    },
    "causal_bound": {**whole_input, "position": 1},
    "feed_forward_lipschitz": {"product": 1.0, "half_norm": 1.0, "slope": 1.0},
    "growth_constant": {"embedding_norm": 1.0, "norms": [2.0]},
    "influence_recursion": {**whole_input, "saturating": True},
    "largest_weight": {"half_oscillation": 0.5, "visible": 3},
    "layer_norm_change_cap": {"scale": 1.0, "width": 2},
    "layer_norm_lipschitz": {"scale": 1.0, "epsilon": 0.1},
    "layer_norm_output_norm": {"scale": 1.0, "shift_norm": 1.0, "width": 2},
    "masked_recursion": {
        **{**whole_input, "masks": ["future", "none"], "saturating": True},
    },
    "printed": {**printed, "embedding_norm": 1.0, "growth": 1.0, "num_layers": 2},
    "printed_tight": {**printed, "norm": 1.0},
    "printed_shape_bound": final,
    "scaled_causal_average_influence": {"length": 3, "num_layers": 2},
    "single_exponential_bound": final,
    "uniform_constants": {"layers": [LAYER, LAYER]},
    "NetworkShape": dataclasses.asdict(SHAPE),
    "activation_bound": {"shape": SHAPE, "embedding": 1.0, "layer": 1},
    "amplifier_weight": {"score": 1.0, "visible": 3},
    "boolean_tie_break": {"sharpness": 1.0},
    "constant_gap_distance": {"gap": 1.0, "temperature": 0.5, "visible": 3},
    "constant_gap_temperature": {"gap": 1.0, "visible": 3, "error": 0.25},
    "cubic_lookup_error": {"kappa": 2.0, "temperature": 1.0},
    "cubic_lookup_weight": {"kappa": 2.0, "temperature": 1.0},
    "distinct_multiples_distance": {"step": 1.0, "temperature": 0.5},
    "gated_rounding_error": {"error": 0.25, "gates": 1},
    "growing_amplifier_weight": {"sharpness": 1.0, "number": 1, "visible": 3},
    "layer_error": {**network, "temperature": 0.5},
    "leftmost_tie_break": tie,
    "linear_decay_distance": {"slope": 1.0, "temperature": 0.5},
    "lookup_error": {"sharpness": 1.0, "temperature": 1.0},
    "lookup_weight": {"sharpness": 1.0, "temperature": 1.0},
    "one_sided_decay_distance": {"slope": 1.0, "temperature": 0.5},
    "perturbed_distance": perturbed,
    "perturbed_ties_distance": {**perturbed, "tied": 2},
    "quadratic_decay_distance": {"curvature": 1.0, "temperature": 0.5},
    "reciprocal_tie_break": tie,
    "rightmost_tie_break": tie,
    "rounding_error": {"error": 0.25, "low": 0.25, "high": 0.75},
    "rounding_width": {"bits": 2, "hidden_layers": 2, "preimages": "all"},
    "simulation_temperature": network,
    "tie_break_range": {"visible": 3},
    "tied_simulation_temperature": network,
    "two_preimages": {"outputs": [0.0, 0.0, 1.0]},
    "value_transfer": {"spread": 1.0, "distance": 1.0},
    "dyck_floor": {**up, **read, "closeness": 0.5},
    "dyck_pair_floor": {**up, "reading": "last", "closeness": 0.5},
    "even_shares": {**end, **read},
    "height_shares": {**up, "length": 3},
    "pair_optimum": {**end, "share": interval(0.5), "closeness": 0.5},
    "pair_tangent": {**end, "share": interval(0.5), "closeness": 0.5},
    "parity_floor": {**end, **read, "closeness": 0.5},
    "parity_pair_floor": {**end, **read, "last_symbol": 1, "closeness": 0.5},
    "DyckParameters": {f.name: getattr(DYCK, f.name) for f in dataclasses.fields(DYCK)},
    "SwitchingStep": {"star_probability": SHARE, "depth": 2},
    "Tower.of": {"number": 2},
    "alteration_route": free,
    "closed_form_dyck": size,
    "closed_form_switching": {**size, "free": 2, "read_out": False},
    "computable_length": {**size, "read_out": True},
    "deep_probability": {"depth": 2, "num_heads": 1, **chain},
    "depth_tails": {"width": 2, "num_lists": 1, **chain},
    "dyck_routes": size,
    "dyck_threshold": {"parameters": DYCK, "numbers": CERTIFIED},
    "one_layer_dyck_threshold": {"num_heads": 1},
    "one_layer_parity_threshold": {"num_heads": 1, "read_out": True},
    "paper_route": {**free, "weight": de.Weight.PAPER},
    "parity_routes": {**free, "read_out": False},
    "switching_proof": {
        **{"num_heads": 1, "steps": [PROVES], "free": 1, "start": Fraction(1)},
        **{"read_out": False, "digits": 20},
    },
    "switching_routes": {**size, "needed": 1, "read_out": False},
}

THIRD, INF = Fraction(1, 3), math.inf
PROBES = (-1, 0, THIRD, 0.5, 1, 2, 3.5, INF, math.nan, None, "a", [])
# Which of them an argument takes, by its name or FUNCTION:ARGUMENT; none if by neither.
RANGES: list[tuple[list[Any], str]] = [
    (
        [0, THIRD, 0.5, 1, 2, 3.5, INF],
        "c closeness distance embedding_norm gain half_norm half_oscillation input_gain "
        "m1 m2 mu norm output_cap output_lipschitz product scale shift_norm skip_gain "
        "spread sup gated_rounding_error:error rounding_error:error",
    ),
    ([THIRD, 0.5, 1, 2, 3.5, INF], "growth_constant:embedding_norm"),
    ([0.5, 1, 2, 3.5, INF], "feed_forward_lipschitz:slope"),
    ([1, 2, 3.5, INF], "growth"),
    (
        [THIRD, 0.5, 1, 2, 3.5],
        "curvature epsilon gap kappa sharpness slope step temperature",
    ),
    ([0.5, 1, 2, 3.5], "lookup_error:sharpness"),
    (
        [1, 2, 3.5],
        "embedding parameter cubic_lookup_error:kappa perturbed_distance:gap "
        "perturbed_ties_distance:gap",
    ),
    ([THIRD, 0.5, 1, 2], "cubic_lookup_error:temperature lookup_error:temperature"),
    (
        [THIRD, 0.5, 1],
        "high simulation_temperature:error tied_simulation_temperature:error",
    ),
    ([THIRD, 0.5], "end_probability error up_probability"),
    # As exact numbers alone.
    ([THIRD, 1], "start"),
    ([THIRD], "free star_probability"),
    ([0, THIRD, 0.5], "low"),
    ([0, THIRD], "perturbed_distance:error perturbed_ties_distance:error"),
    ([0], "layer_error:error"),
    ([-1, THIRD, 0.5, 1, 2, 3.5], "amplifier_weight:score"),
    ([-1, 0, 1, 2], "growing_amplifier_weight:number"),
    ([-1, 0, 1, 2], "MaskedInfluence.others:query"),
    ([0, 1, 2], "activation_bound:layer gates number"),
    ([0, 1], "last_symbol position"),
    (
        [1, 2],
        "bits depth digits hidden hidden_layers key_width layer length most needed "
        "num_heads num_layers num_lists tied visible width NetworkShape:heads "
        "NetworkShape:layers closed_form_switching:free switching_proof:free",
    ),
    (
        [2],
        "PrintedConstants.others:length influence_recursion:length "
        "printed_shape_bound:length single_exponential_bound:length "
        "parity_pair_floor:length closed_form_dyck:num_layers amplifier_weight:visible "
        "constant_gap_temperature:visible growing_amplifier_weight:visible "
        "perturbed_ties_distance:visible tie_break_range:visible",
    ),
    ([], "causal_bound:length"),
    ([[]], "norms switching_proof:steps"),
]
TAKEN = {name: taken for taken, names in RANGES for name in names.split()}

Call = Callable[..., Any]


def found_by(name: str) -> Call:
    first, *rest = name.split(".")
    found = next(getattr(m, first) for m in (cf, ap, ce, de) if hasattr(m, first))
    return getattr(found, rest[0]) if rest else found


def replacements(right: Any) -> Iterator[Any]:
    """Every value; in a sequence also as one of its elements, in a record as a field."""
    yield from VALUES
    if isinstance(right, list | tuple):
        for value in (x for element in right[:1] for x in replacements(element)):
            yield [value, *right[1:]]
            yield [*right, value]
    elif type(right).__name__ in RIGHT:
        for field in dataclasses.fields(right):
            for value in VALUES:
                try:
                    yield dataclasses.replace(right, **{field.name: value})
                except ValueError:
                    continue


def run(call: Call, arguments: dict[str, Any]) -> None:
    """A call, and all that it yields."""
    result = call(**arguments)
    if inspect.isgenerator(result):
        list(result)


def fault(call: Call, name: str, arguments: dict[str, Any]) -> str | None:
    """What is wrong with how a call takes its argument, None where nothing is."""
    try:
        run(call, arguments)
    except ValueError as error:
        said = str(error)
        if "\n" in said or "expected" not in said or name not in said:
            return f"says {said!r}"
    except Exception as error:
        return f"ends in {type(error).__name__}: {error}"
    return None


def faults(call: Call, right: dict[str, Any]) -> list[str]:
    found = []
    for name in right.keys() - {"self"}:
        for value in replacements(right[name]):
            what = fault(call, name, {**right, name: value})
            if what is not None:
                found.append(f"{name} = {value!r} {what}")
    return found


def test_every_closed_form_has_a_row_of_all_its_arguments():
    modules: tuple[ModuleType, ...] = (cf, ap, ce, de)
    public = {name for module in modules for name in module.__all__}
    assert public - RECORDS - NO_FUNCTIONS == {x for x in RIGHT if "." not in x}
    for name, right in RIGHT.items():
        assert set(inspect.signature(found_by(name)).parameters) == set(right), name
    assert len(VALUES) * sum(map(len, RIGHT.values())) > 4_500


@pytest.mark.parametrize("name", RIGHT)
def test_right_arguments_are_taken_and_whatever_else_is_named(name):
    call, right = found_by(name), RIGHT[name]
    call(**right)
    found = faults(call, right)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_in_its_range_is_taken_and_nothing_else(name):
    for argument in RIGHT[name].keys() - {"self"}:
        found = []
        for value in PROBES:
            with contextlib.suppress(ValueError):
                run(found_by(name), {**RIGHT[name], argument: value})
                found.append(value)
        expected = TAKEN.get(f"{name}:{argument}", TAKEN.get(argument, []))
        assert found == expected, argument


def test_a_raw_error_and_one_that_names_nothing_are_noticed():
    def raw(norm):
        return [x.gain for x in norm]

    def nameless(norm):
        raise ValueError(f"{norm} is wrong, expected another")

    def lines(norm):
        raise ValueError(f"norm is wrong,\nexpected another than {norm}")

    for call in (raw, nameless, lines):
        assert len(faults(call, {"norm": 1.0})) >= len(VALUES) - 5


def test_numbers_of_every_kind_are_taken():
    assert nonnegative("size", np.float32(2)) == 2.0
    assert positive("size", Fraction(1, 2)) == 0.5
    assert whole("size", 10**400, 1) == 10**400
    assert whole("size", np.int32(3), 1) == whole("size", 3.0, 1) == 3
    assert probability("share", "7/20") == Fraction(7, 20)
