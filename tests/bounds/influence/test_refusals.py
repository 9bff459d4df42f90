"""Questions, values and functions that do not fit are refused by name, on one line."""

import dataclasses
import math
import re
from typing import Any

import jax
import numpy as np
import pytest

import bounds
from bounds.influence import (
    LogitDifference,
    LogOdds,
    LogProbability,
    LogProbabilitySum,
    Loss,
    TargetFunction,
)
from bounds.influence.answer import MOVED_OF_BOTH, MOVED_OF_INFLUENCE
from bounds.influence.table.frobenius import Frobenius
from bounds.influence.targets.table import parse_target
from jax_models.constructions import build_preset
from jax_models.model.readout import Pooling
from tests.bounds.influence.asking import on_host
from tests.bounds.influence.expect import refused
from tests.bounds.influence.models import build

MODEL = build({"num_layers": 1, "vocab_size": 5})
INPUT = np.array([0, 3, 1, 4, 2, 2])
N, V = INPUT.size, 5


def counted(tokens):
    """Numbers of each symbol [b, V] in tokens [b, n], on the host."""
    return np.eye(V)[tokens].sum(axis=1)


def host(apply=counted, **options):
    return on_host(apply, V, **{"batched": True, **options})


def traced(apply, **options):
    given = {"params": None, "batched": False, "vocab_size": V, **options}
    return bounds.Callable(apply, **given)


ONE, SEVERAL = LogProbability(1), LogProbabilitySum((1,))
POOLED = build({"position": None, "vocab_size": 5})
POOLED = dataclasses.replace(POOLED, pooling=Pooling())
UNMASKED = {"num_layers": 1, "mask": "none", "position": None}
HEADLESS, NO_LAYER = {"num_classes": None}, {"num_layers": 0}
HARD: dict[str, Any] = {"num_layers": 1, "weighting": "average_hard"}
METHODS = "expected a name, or a value of one of "
OF_INFLUENCES = "Exhaustive, Incremental, Lumped, Partial, Proposed, Screened$"
ROWS = np.arange(3 * N).reshape(N, 3) % V
FIRST = {"positions": [0, 1]}
HALF, FLOAT32 = bounds.Incremental, bounds.Proposed("float32")
CHECKPOINT, SHORT = bounds.Run(checkpoint="kept.npz"), bounds.Run(memory_limit=99)
SCREENED, THREE = {"method": "screened"}, {"num_layers": 3}
LONE = {"model": build_preset("first"), "tokens": [2, 0, 1]}

INFLUENCES: list[tuple[dict[str, Any], str]] = [
    ({"query": N}, r"query = 6 .* n = 6; expected -6 to 5"),
    ({"query": -N - 1}, r"query = -7"),
    ({"query": 0.5}, "query = 0.5; expected an integer"),
    ({"symbols": [0, 5]}, r"symbols\[1\] = 5; .* 0 to 4"),
    ({"symbols": [0, -1]}, r"symbols\[1\] = -1"),
    ({"positions": [N]}, r"positions\[0\] = 6; .* 0 to 5"),
    ({"positions": [-1]}, r"positions\[0\] = -1"),
    ({"positions": [0.5]}, r"positions\[0\] = 0.5; expected an integer"),
    ({"positions": "ab"}, "positions = 'ab'; expected a sequence"),
    ({"keep": "all"}, "keep = 'all'.*pairs.*position_max"),
    ({"ties": "maybe"}, "ties = 'maybe'.*error.*warn.*ignore"),
    ({"dtype": "float32"}, "dtype = float32 .* float64"),
    ({"tokens": [INPUT, INPUT], "run": CHECKPOINT}, "keeps the state of one input"),
    # Symbols by position.
    ({"symbols": ROWS[:3]}, r"shape \(3, 3\); expected integers \[P, K\].* P = 6 pos"),
    ({**FIRST, "symbols": ROWS}, r"shape \(6, 3\).* P = 2 positions"),
    ({"symbols": ROWS.astype(float)}, "symbols is float64"),
    ({"symbols": ROWS > 0}, "symbols is bool"),
    ({**FIRST, "symbols": [[0], [1, 2]]}, r"\[\[0\], \[1, 2\]\]; .* fill .* with -1"),
    ({"symbols": [[], []], "positions": [0, 1, 2]}, r"row for each of the P = 3 posit"),
    ({**FIRST, "symbols": [0, [1]]}, r"fill up shorter ones with -1"),
    ({**FIRST, "symbols": [[0, 5], [1, 2]]}, r"\[0\]\[1\] = 5; .* from 0 to 4, or"),
    ({**FIRST, "symbols": [[0, 1], [-2, 2]]}, r"symbols\[1\]\[0\] = -2"),
    ({"symbols": [[0], [1]], "positions": [0, 6]}, r"positions\[1\] = 6"),
    ({"symbols": [[[0]]], "positions": [0]}, r"\[0\] = \[\[0\]\]; expected an integer"),
    # Methods.
    ({"method": "lumpedd"}, "method = 'lumpedd'; .*auto.*incremental.*exhaustive"),
    *(
        ({"method": x}, f"method = .*; {METHODS}{OF_INFLUENCES}")
        for x in (3, None, object(), np.zeros(2), bounds.Screened)
    ),
    ({"method": HALF("int8")}, "precision.*'int8'.*bfloat16"),
    ({"model": HARD, "method": HALF("float16")}, "attention, whose winners"),
    ({"model": NO_LAYER, "method": HALF("float16")}, "are not: it has no layers"),
    ({"model": host(), "method": HALF("bfloat16")}, "Transformer, and a function has"),
    ({"method": HALF("bfloat16"), "rounding": "all"}, "'all', but .* are estimates"),
    *(
        ({**question, "method": bounds.Proposed(low, method)}, message.format(low))
        for low in ("float32", "bfloat16")
        for question, method, message in (
            ({"model": {"dtype": "float32"}}, "auto", "float64 is to decide"),
            ({"model": HARD}, "auto", "hard attention's winners in {}"),
            ({}, "screened", "method = 'screened'; expected"),
            ({"model": UNMASKED}, "lumped", "'lumped' does not compute"),
            ({"model": host()}, "auto", "no {} form"),
        )
    ),
    ({"target": TargetFunction(np.asarray), "method": FLOAT32}, "that is not ours"),
    ({"model": NO_LAYER, "method": bounds.Proposed("bfloat16")}, "it needs a layer"),
    *(
        ({"model": {}, "method": x, "run": SHORT}, "a block of one substitution takes")
        for x in ("incremental", "exhaustive", "partial", "screened")
    ),
    ({**SCREENED, "model": {**HARD, "num_layers": 3}}, "layer 1 is average_hard"),
    ({**SCREENED, "model": {"num_layers": 1}}, "two layers, and the model has 1"),
    (
        {**SCREENED, "model": {**THREE, "score": "additive"}},
        "layer 2 has additive ones",
    ),
    # Targets.
    *(
        ({**LONE, "target": parse_target(x, int)}, "one logit, whose .* is always 1")
        for x in ("kl", "jensen_shannon", "log_probabilities", "loss:0")
    ),
    ({"target": LogProbability(5)}, "names the symbol 5; the model has 3 logits"),
    ({"target": LogOdds((0, 5))}, "names the symbol 5"),
    ({"target": LogitDifference(7, 0)}, "names the symbol 7"),
    ({"target": LogProbabilitySum((3,))}, "names the symbol 3"),
    ({"target": LogProbabilitySum((1,), (6,))}, "row 6; the input has rows 0 to 5"),
    ({"target": "row"}, "target = 'row'.*activation.*log_probabilities"),
    ({"target": 3}, "target = 3"),
    *(
        ({"model": HEADLESS, "target": target}, "no read-out")
        for target in ("logits", "log_probabilities", ONE, TargetFunction(np.asarray))
    ),
    ({"model": HARD, "target": TargetFunction(np.asarray)}, "hard attention"),
    ({"model": HARD, "target": "pooled"}, "this has none"),
    ({"target": "cosine_distance"}, "cosine_distance.*needs a model with a pooling"),
    *(
        ({"model": POOLED, "target": "pooled", "method": x}, "the target is of many")
        for x in ("lumped", "screened")
    ),
    ({"model": {}, "target": ONE, "method": "screened"}, "LogProbability"),
    *(
        ({"target": SEVERAL, name: value}, f"{name} = .*reads rows of its own")
        for name, value in (("query", 1), ("include_query", True))
    ),
    ({"model": on_host, "target": "logits"}, "in a bounds.Callable"),
]

TENSOR = {"model": {"vocab_size": 3}, "tokens": [0, 1, 2], "rows": "all"}
TENSOR |= {"reduce": Frobenius(symmetrize="tensor"), "target": "logits"}
SCANS: list[tuple[dict[str, Any], str]] = [
    ({"rows": 6}, r"^rows = 6; expected an integer from -6 to 5"),
    ({"rows": [1, -5]}, "2 rows, 1 of them different"),
    ({"rows": []}, "0 rows"),
    ({"rows": "every"}, "rows = 'every'; expected one of all, own"),
    ({"positions": [1, 1]}, "positions lists one twice"),
    ({"symbols": [1, 1]}, "symbols lists one twice"),
    ({"reduce": "sum"}, "reduce = 'sum'"),
    ({"target_symbols": [0]}, 'use "logits"'),
    ({"target": "logits", "target_symbols": [3]}, "target_symbols"),
    ({"target": SEVERAL, "rows": [1]}, "leave rows out"),
    ({"target": SEVERAL, "rows": "own"}, "rows of its own"),
    ({**FIRST, "symbols": [[0, 1], [1, 2]], "reduce": Frobenius()}, "the same at all"),
    ({"rows": [1], "reduce": Frobenius(symmetrize="map")}, "1 rows and 6"),
    ({**FIRST, "symbols": [[0, 0], [1, 2]]}, "lists one twice; give each"),
    ({"symbols": [1], "positions": [2]}, "nothing can be substituted: at every posit"),
    ({"positions": []}, "name other symbols or positions"),
    ({"diagonal": "no"}, "diagonal = 'no'; expected True or False"),
    ({"rows": "own", "diagonal": False}, "diagonal = False leaves these out"),
    ({"rows": "own", "reduce": Frobenius(), "target": "logits"}, "leaves these"),
    ({"method": "lumped"}, "method = 'lumped'"),
    *(
        ({"method": x}, f"{METHODS}Exhaustive, Incremental, Partial$")
        for x in (bounds.Screened(), bounds.Lumped(), bounds.Proposed())
    ),
    (
        {**TENSOR, "target_symbols": [0, 1], "symbols": [0, 2]},
        "come in to be the target",
    ),
    ({**TENSOR, "symbols": [0, 2]}, "symbols that come in to be the target"),
    ({**TENSOR, "target": "activation"}, "the target is of no symbols"),
    # Inputs.
    ({"tokens": np.zeros((2, 2, 2), int)}, r"\(2, 2, 2\); expected one .*, or ma"),
    ({"tokens": [[0, 1], [0, [1]]]}, r"tokens = \[0, \[1\]\]"),
    ({"tokens": "01"}, r"tokens = '01'; expected integers, one for each symbol"),
    ({"tokens": None}, r"tokens = None; expected integers"),
    ({"tokens": [[0, 1], [0.5, 1]]}, "tokens have type float64; expected integers"),
    ({"tokens": 3}, r"tokens have shape \(\); expected one sequence"),
    ({"tokens": [0, 7]}, "token 7 at position 1"),
    # Functions.
    ({"model": traced(lambda p, x: x), "tokens": [0, V]}, "token"),
    ({"model": on_host}, "or a function in a bounds.Callable"),
    ({"model": host(), "rows": "all"}, "rows = 'all', but Callable"),
    ({"model": host(), "rows": 0}, "rows = 0, but Callable"),
    ({"model": host(), "reduce": Frobenius()}, "Frobenius.*of no one row"),
    ({"model": host(), "method": "incremental"}, "'incremental' cannot do this model"),
    ({"model": host(), "diagonal": False}, "diagonal = False .* and here are none"),
]

# What functions return, on the host and traced.
RETURNED: list[tuple[Any, str]] = [
    (lambda x: np.ones((len(x), N, 2, 2)), r"shape \(6, 2, 2\) for one input"),
    (lambda x: np.ones((len(x), N + 1, 2)), r"shape \(7, 2\) for one input"),
    (lambda x: np.ones((len(x) + 1, 2)), r"\(33, 2\) for a batch of 32"),
    (lambda x: None, "expected real numbers|for a batch"),
    (lambda x: 1.0, r"shape \(\) for a batch of 32 inputs"),
    (lambda x: np.ones((len(x), 0)), "not empty"),
    (lambda x: [[0.0] * (1 + k % 2) for k in range(len(x))], "no array of one"),
    (lambda x: 1j * np.ones(len(x)), "array of complex128; expected real"),
    (lambda x: np.full(len(x), "a"), "expected real numbers"),
    (lambda x: np.full(len(x), 2**60), r"int64 beyond 2\^53"),
    (lambda x: np.full(len(x), np.inf), "input itself is not a finite number"),
    (
        lambda x: np.where(x[:, 0] == INPUT[0], 1.0, np.nan),
        "influence of position 0, symbol . is not a finite",
    ),
]
TRACED: list[tuple[Any, str]] = [
    (lambda p, x: (x, x), "returned a tuple; expected one array"),
    (lambda p, x: None, "returned a NoneType"),
    (lambda p, x: np.asarray(x), "traced arrays .*host=True"),
    (lambda p, x: x if x[0] else -x, "traced arrays .*host=True"),
]


def following(batched):
    """A function whose results have shapes that follow the input."""

    def apply(tokens):
        size = 1 + tokens.flat[0]
        return np.ones((len(tokens), size)) if batched else np.ones(size)

    return host(apply, batched=batched, check=False)


FUNCTIONS = [
    *(({"model": host(f)}, message) for f, message in RETURNED),
    *(({"model": traced(f)}, message) for f, message in TRACED),
    *(({"model": following(x)}, "array of shape") for x in (False, True)),
]
NO_RADII = [-1e-9, math.nan, math.inf, "1e-9", [0.1], 10**400, True]
NO_RADII += [lambda tokens, x=x: x for x in [*NO_RADII, None]]
VALUES: list[tuple[Any, str]] = [
    (lambda: traced("model"), "apply = 'model'; expected a function"),
    (lambda: traced(len, batched=1), "batched = 1; expected True or False"),
    (lambda: traced(len, vocab_size=0), "vocab_size = 0"),
    (lambda: traced(len, radius=-1.0), "radius = -1"),
    (lambda: bounds.Screened(rtol=-1.0), "rtol = -1"),
    (lambda: bounds.Screened(rtol=np.nan), "rtol = nan"),
    (lambda: bounds.Screened(budget=0), "budget, in exact evaluations, = 0"),
    (lambda: bounds.Screened(budget=1.5), "budget.* = 1.5; expected an integer"),
    (lambda: bounds.Proposed("float8"), "precision = 'float8'; .*float32.*bfloat16"),
    (lambda: bounds.Proposed("float32", HALF("float16")), "float16 .* decide nothing"),
    (lambda: bounds.Run(memory_limit=0), "memory_limit = 0"),
    (lambda: bounds.Run(checkpoint=3), "checkpoint = 3"),
    (lambda: bounds.Run(mesh="gpu"), "mesh"),
    (lambda: bounds.device_mesh(0), "0 devices .* ask for 1 to 8"),
    (lambda: bounds.device_mesh(9), "9 devices .* ask for 1 to 8"),
    (lambda: Frobenius("tensor"), "center = 'tensor'; expected True or False"),
    (lambda: LogProbability(-1), "symbol = -1"),
    (lambda: Loss(1.5), "symbol = 1.5"),
    (lambda: LogitDifference(0, "1"), "other = '1'"),
    (lambda: LogitDifference(1, 1), "expected two different symbols"),
    (lambda: LogOdds((1,)), "two or more different"),
    (lambda: LogOdds((1, 1)), "two or more different"),
    (lambda: LogOdds(3), "symbols = 3"),
    (lambda: LogOdds((0, 1), -1), "epsilon = -1"),
    (lambda: LogProbabilitySum(()), "0 symbols"),
    (lambda: LogProbabilitySum((1, 2), (0,)), "2 symbols and 1 rows"),
    (lambda: LogProbabilitySum((1, 2), (3, 3)), "2 symbols and 1 rows"),
    (lambda: LogProbabilitySum((1.5,)), "1.5"),
    (lambda: Pooling("max"), "max"),
    (lambda: Pooling("mean", 1), "true or false"),
    (lambda: TargetFunction("log"), "apply = 'log'; expected a function"),
    (lambda: TargetFunction(len, radius=-1.0), "radius = -1"),
    (lambda: TargetFunction(len, radius=np.nan), "radius = nan"),
    # Of other questions, what they cannot watch.
    (lambda: bounds.certify_influence(MODEL, INPUT, target=ONE), "LogProbability"),
    (lambda: bounds.closed_form_bounds(MODEL, 6, target=ONE), "LogProbability"),
    (lambda: bounds.supremum(MODEL, 4, target=ONE), "LogProbability"),
    (lambda: bounds.certify_influence(POOLED, INPUT, target="pooled"), "pooled"),
]


@pytest.mark.parametrize(
    ("ask", "question", "message"),
    [
        *((bounds.compute_influence, *case) for case in INFLUENCES),
        *((bounds.scan, *case) for case in [*SCANS, *FUNCTIONS]),
    ],
)
def test_a_question_that_does_not_fit_is_refused(ask, question, message):
    question = {"model": MODEL, "tokens": INPUT, **question}
    if isinstance(case := question["model"], dict):
        question["model"] = build({"vocab_size": V, **case})
    with refused(message):
        ask(**question)


@pytest.mark.parametrize("name", ["compute_influence", "scan", "certify_influence"])
@pytest.mark.parametrize("wrong", ["exchanged", "model.safetensors", None])
def test_what_is_no_model_is_told_what_was_expected(name, wrong):
    given = (INPUT, MODEL) if wrong == "exchanged" else (wrong, INPUT)
    with refused(r"of a Transformer|expected a Transformer"):
        getattr(bounds, name)(*given)


def test_float64_needs_x64():
    with jax.enable_x64(False), refused("enable"):
        bounds.compute_influence(MODEL, INPUT)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        *((bounds.compute_influence, name) for name in MOVED_OF_INFLUENCE),
        *((bounds.scan, name) for name in MOVED_OF_BOTH),
    ],
)
def test_a_keyword_that_moved_names_its_new_place(name, call):
    said = f"{re.escape(repr(name))} since 0.2: it is {re.escape(MOVED_OF_INFLUENCE[name])}"
    with pytest.raises(TypeError, match=said):
        call(MODEL, INPUT, **{name: None})


def test_a_scan_does_not_advise_methods_that_it_refuses():
    with pytest.raises(TypeError, match="unexpected keyword argument 'budget'"):
        bounds.scan(MODEL, INPUT, budget=3)  # pyright: ignore[reportCallIssue]


def test_a_radius_is_a_finite_number_of_at_least_0():
    for given in NO_RADII:
        with refused(r"radius.* = .*at least 0"):
            model = host(lambda x: np.ones(len(x)), radius=given, check=False)
            bounds.compute_influence(model, INPUT)


@pytest.mark.parametrize(("make", "message"), VALUES)
def test_a_value_is_checked_where_it_is_made(make, message):
    with refused(message):
        make()
