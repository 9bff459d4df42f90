"""A wrong argument of a closed form is a ValueError of one line that names it.

Every public callable is given right arguments, by their names; each of them is replaced
by whatever there is. What is in the argument's range is taken, and nothing else.
"""

import contextlib
import dataclasses
import inspect
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
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
    *("LayerInfluence", "PrintedConstants"),
    *("HeightShares", "Route", "SwitchingProof", "Tower"),
}
NO_FUNCTIONS = {"MASKS", "Score", "READINGS", "Weight"}

PRINTED = cf.printed_tight(scores=[SCORE], norm=1.0, output_lipschitz=1.0, num_heads=1)

# A right argument by its name, whatever takes it; next what some take in its place.
ARGUMENTS: dict[str, Any] = {
    **dict.fromkeys("closeness half_oscillation temperature".split(), 0.5),
    **dict.fromkeys("end_probability error low up_probability".split(), 0.25),
    **dict.fromkeys(
        "c curvature distance embedding embedding_norm gain gap growth half_norm "
        "input_gain m1 m2 mu norm output_cap output_lipschitz product scale sharpness "
        "shift_norm skip_gain slope spread step sup".split(),
        1.0,
    ),
    **dict.fromkeys(
        "gates last_symbol layer num_heads num_lists number position".split(), 1
    ),
    **dict.fromkeys(
        "bits depth hidden_layers kappa most num_layers tied width".split(), 2
    ),
    **{"length": 3, "visible": 3, "query": 0, "digits": 20, "epsilon": 0.1},
    **{"free": SHARE, "star_probability": SHARE, "high": 0.75},
    **{"saturating": True, "reading": "last", "preimages": "all"},
    **{"score": SCORE, "scores": [SCORE], "heads": (HEAD,), "layers": [LAYER, LAYER]},
    **{"masks": ["future", "none"], "norms": [2.0], "outputs": [0.0, 0.0, 1.0]},
    **{"constants": UNIFORM, "shape": SHAPE, "share": interval(0.5)},
    **{"steps": [PROVES], "weight": de.Weight.PAPER},
    **{"parameters": DYCK, "numbers": CERTIFIED},
}
NETWORKS = "layer_error", "simulation_temperature", "tied_simulation_temperature"
ONE_LAYER = "alteration_route", "paper_route", "parity_routes"
LOOKUPS = "lookup_error", "lookup_weight", "cubic_lookup_error", "cubic_lookup_weight"
OWN: dict[str, dict[str, Any]] = {
    "Additive.at_temperature": {"self": cf.Additive(1, 1, 1)},
    "DotProduct.at_temperature": {"self": SCORE},
    "DyckParameters": vars(DYCK),
    "NetworkShape": vars(SHAPE),
    "PrintedConstants.others": {"self": PRINTED},
    "PrintedConstants.own": {"self": PRINTED},
    "Tower.of": {},
    "amplifier_weight": {"score": 1.0},
    "closed_form_switching": {"free": 2},
    "switching_proof": {"free": 1},
    **{name: {"num_layers": 1} for name in ONE_LAYER},
    **{name: {"error": 1e-9} for name in NETWORKS},
    **{name: {"temperature": 1.0} for name in LOOKUPS},
}

Call = Callable[..., Any]


def found_by(name: str) -> Call:
    first, *rest = name.split(".")
    found = next(getattr(m, first) for m in (cf, ap, ce, de) if hasattr(m, first))
    return getattr(found, rest[0]) if rest else found


def right_of(name: str) -> dict[str, Any]:
    """Right arguments of a call, every one of its own."""
    known = ARGUMENTS | OWN.get(name, {})
    return {x: known[x] for x in inspect.signature(found_by(name)).parameters}


PUBLIC = {name for module in (cf, ap, ce, de) for name in module.__all__}
CALLS = sorted({*PUBLIC, *OWN} - RECORDS - NO_FUNCTIONS)
RIGHT = {name: right_of(name) for name in CALLS}

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
    ([-1, 0, 1, 2], "masked_recursion:query"),
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


def test_arguments_and_values_are_many():
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
