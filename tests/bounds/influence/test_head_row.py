"""A head of one row, as poolers and classifiers of sequences are, is watched there alone."""

import dataclasses

import numpy as np
import pytest

import bounds
import jax_models as jm
from bounds.influence import LogProbability, LogProbabilitySum, TargetFunction
from tests.bounds.influence.expect import refused
from tests.bounds.influence.models import build

pytestmark = pytest.mark.usefixtures("quick_compilation")
TOKENS = np.array([0, 1, 1, 0])
FIRST, LAST = 0, len(TOKENS) - 1


@pytest.fixture(scope="module", params=["first", "last"])
def model(request):
    case = {"num_layers": 1, "vocab_size": 2, "num_classes": 2}
    return dataclasses.replace(build(case), head_row=request.param)


def of_input(function, name="query", many=False):
    return lambda model, row, target: function(
        model, TOKENS, target=target, **{name: [row] if many else row}
    )


def of_length(function, **options):
    return lambda model, row, target: function(
        model, len(TOKENS), query=row, target=target, **options
    )


influence = of_input(bounds.compute_influence)
ENTRANCES = (
    *(influence, of_input(bounds.scan, "rows"), of_input(bounds.scan, "rows", True)),
    *(of_input(bounds.certify_influence), of_length(bounds.closed_form_bounds)),
    of_length(bounds.estimate_lipschitz, searches=("substitution",)),
    of_length(bounds.supremum),
)


@pytest.mark.parametrize("ask", ENTRANCES)
def test_logits_are_watched_at_the_heads_row_alone(ask, model):
    own, other = (FIRST, LAST) if model.head_row == "first" else (LAST, FIRST)
    ask(model, own, "logits")
    ask(model, other, "activation")
    said = (
        rf"row {other} is watched, and .* of the {model.head_row} row alone; watch row"
    )
    with refused(said):
        ask(model, other, "logits")


@pytest.mark.parametrize("ask", [*ENTRANCES[:2], *ENTRANCES[3:]])
def test_the_heads_row_is_watched_by_default(ask, model):
    own = FIRST if model.head_row == "first" else LAST
    for target in ("logits", "activation"):
        default, asked = ask(model, None, target), ask(model, own, target)
        assert repr(default) == repr(asked)


@pytest.mark.parametrize(
    "target",
    [
        LogProbability(1),
        LogProbabilitySum((0, 1), (FIRST, LAST)),
        TargetFunction(lambda logits: logits),
    ],
    ids=["a logit's", "of rows of its own", "a function"],
)
def test_other_targets_of_the_head_are_too(target, model):
    other = LAST if model.head_row == "first" else FIRST
    with refused("row alone"):
        influence(model, other, target)


def test_a_model_without_a_head_has_no_row_of_it(model):
    with refused(r"head_row = .* has no head"):
        jm.apply(dataclasses.replace(model, readout=None), TOKENS)


def test_it_is_kept_in_a_file_of_version_2(model, tmp_path):
    jm.save(model, tmp_path / "model.safetensors")
    assert b"attention-bounds/2" in (tmp_path / "model.safetensors").read_bytes()
    assert jm.load(tmp_path / "model.safetensors").head_row == model.head_row
    with refused(r"head_row = 'middle'; expected one of"):
        jm.apply(dataclasses.replace(model, head_row="middle"), TOKENS)
