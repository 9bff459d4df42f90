"""Scans of known shapes: the same model and the same inputs for both sides."""

from typing import Any

import numpy as np
import pytest

import jax_models as jm
from benchmarks import scan_shapes
from benchmarks.trained import random_state

CONFIG: dict[str, Any] = {
    "model": "antiberty",
    "dtype": "float32",
    "num_layers": 1,
    "width": 4,
    "heads": 2,
    "hidden": 8,
    "n": 6,
    "positions": 9,
    "substitutes": 3,
    "row": 5,
    "torch": "2.13",
    "platform": "cpu",
    "seed": 0,
    "repeats": 1,
    "budget": 0.0,
}
OURS = {"float32_seconds": 2.0, "bfloat16_seconds": 1.0}


@pytest.fixture(autouse=True)
def parsed_flags():
    """The flags have their defaults, as after an empty command line."""
    scan_shapes.FLAGS.mark_as_parsed()


def test_inputs_differ_from_the_first_in_the_one_symbol_that_is_asked():
    tokens, positions, symbols = scan_shapes.draw_question(CONFIG)
    assert positions.tolist() == [1, 2, 3, 4]
    found = scan_shapes.changed_inputs(tokens, positions, symbols)
    np.testing.assert_array_equal(found[0], tokens)
    assert ((found[1:] != tokens).sum(axis=1) == 1).all()
    where = np.argwhere(found[1:] != tokens)[:, 1]
    np.testing.assert_array_equal(where, np.repeat(positions, 3))
    np.testing.assert_array_equal(found[1:][np.arange(12), where], symbols.ravel())


def test_a_random_state_is_one_of_an_encoder_of_the_shape():
    table = np.ones((4, 4), np.float32)
    state = random_state(CONFIG)
    model = jm.from_torch(state, 2, embedding=table, activation="gelu")
    assert (len(model.layers), model.width, model.dtype) == (1, 4, np.float32)
    assert model.layers[0].attention.num_heads == 2


@pytest.fixture
def beside(monkeypatch):
    """Compares values with a peer's that are off by a factor, in every type."""

    def run(factor):
        values = np.array([1.0, 4.0])
        one = {"seconds": 3.0, "way": [1, 0], "changes": (factor * values).tolist()}
        answer = dict.fromkeys(scan_shapes.TYPES, one)
        monkeypatch.setattr(scan_shapes, "ask_peer", lambda *_: answer)
        return scan_shapes.beside(CONFIG, OURS, values, {"inputs": np.zeros((3, 6))})

    return run


def test_half_precision_is_compared_with_half_precision(beside):
    found = beside(1.0005)
    ratios = [found[f"torch_{name}_ratio"] for name in scan_shapes.TYPES]
    assert ratios == [2 * 3.0 / 2.0, 2 * 3.0 / 1.0, 2 * 3.0 / 1.0]
    assert found["torch_float16_error"] == pytest.approx(0.0005)


def test_times_of_unlike_changes_are_not_compared(beside):
    with pytest.raises(scan_shapes.InputError, match=r"differ by 0\.002"):
        beside(1.002)


def test_a_peer_that_fails_is_an_error(monkeypatch):
    monkeypatch.setattr(scan_shapes, "ask_peer", lambda *_: {"error": "no memory"})
    with pytest.raises(scan_shapes.InputError, match="no memory"):
        scan_shapes.beside(CONFIG, OURS, np.ones(2), {"inputs": np.zeros((3, 6))})


@pytest.mark.slow
@pytest.mark.usefixtures("quick_compilation")
def test_a_scan_is_timed_alone_where_there_is_no_peer():
    config = {**CONFIG, "torch": None}
    row = scan_shapes.measure(config)
    assert row["substitutions"] == 12
    assert 0 <= row["bfloat16_error"] < 0.1
    assert not any(name.startswith("torch") for name in row)
    table = scan_shapes.table([(config, row)]).splitlines()
    assert table[0].count("|") == table[-1].count("|")
