"""Activations and norms of version 2: each method does them, or refuses them by name.

Those of version 1 are factors of the other tests.
"""

import functools
import itertools
import math

import numpy as np
import pytest

import bounds
import jax_models as jm
from bounds.restriction.checker import check_certificate
from jax_models.format.config import VERSION_1, decode_config
from jax_models.model.pytree import in_bytes
from jax_models.model.rows import ACTIVATIONS, NORMS
from tests.bounds.influence.models import TOKENS, build

pytestmark = pytest.mark.usefixtures("quick_compilation")


def newer(name, table):
    """The words that version 1 does not have."""
    return [word for word in table if word not in VERSION_1[name]]


WORDS = [
    *({"activation": word} for word in newer("activation", ACTIVATIONS)),
    *(
        {"norm": word, "layer_norm": place, "final_norm": True}
        for word, place in itertools.product(newer("norm", NORMS), ("pre", "post"))
    ),
]
IDS = ["-".join(map(str, case.values())) for case in WORDS]


def influence(model, tokens, truth, method):
    found = bounds.compute_influence(model, tokens, method=method)
    assert found.max_lower <= truth.max_upper
    assert truth.max_lower <= found.max_upper <= 1.05 * truth.max_upper


def certificate(model, tokens, truth):
    found = bounds.certify_influence(model, tokens)
    there = ~np.isnan(found.upper)
    assert (found.upper[there] >= truth.lower[there]).all()
    assert found.max_upper <= 1.05 * truth.max_upper


def closed_form(model, tokens, truth):
    found = bounds.closed_form_bounds(model, len(tokens))
    assert math.exp(found.corrected.others.log_value) >= truth.max_lower


METHODS = {
    "incremental": functools.partial(influence, method="incremental"),
    "certificate": certificate,
    "closed form": closed_form,
    "screened": functools.partial(influence, method="screened"),
}
SLOW = [
    pytest.param(name, marks=[pytest.mark.slow] if name == "screened" else [])
    for name in METHODS
]


def refused(call):
    """What a call finds; None where it is refused by name."""
    try:
        return call()
    except jm.InputError as error:
        said = str(error)
    assert "rule for" in said
    return None


@functools.cache
def brute_force(at):
    model = build(WORDS[at])
    return model, bounds.compute_influence(model, TOKENS[:7], method="exhaustive")


@pytest.mark.parametrize("at", range(len(WORDS)), ids=IDS)
@pytest.mark.parametrize("method", SLOW)
def test_every_method_holds_or_refuses_by_name(method, at):
    model, truth = brute_force(at)
    refused(lambda: METHODS[method](model, TOKENS[:7], truth))


@pytest.mark.parametrize("case", WORDS, ids=IDS)
def test_a_restriction_is_found_and_checked_or_refused_by_name(case):
    hard = build({**case, "weighting": "leftmost_hard", "num_classes": None})
    found = refused(lambda: bounds.find_restriction(hard, 9))
    if found is not None:
        refused(lambda: check_certificate(hard, found.certificate))


@pytest.mark.parametrize("case", WORDS, ids=IDS)
def test_a_file_means_the_same_model(case, tmp_path):
    model, path = build(case), tmp_path / "model.safetensors"
    jm.save(model, path)
    assert in_bytes(jm.load(path)) == in_bytes(model)
    assert b"attention-bounds/2" in path.read_bytes()


@pytest.mark.parametrize("case", WORDS, ids=IDS)
def test_version_1_does_not_have_them(case):
    config = {"format": "attention-bounds/1", "layers": [], **case}
    config.pop("final_norm", None)
    with pytest.raises(jm.InputError, match="attention-bounds/1' does not have"):
        decode_config(config)
