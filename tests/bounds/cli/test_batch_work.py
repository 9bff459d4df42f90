"""Estimates rest on the model and the inputs that a cell has, not on default shapes."""

import jax
import numpy as np
import pytest

import jax_models as jm
from bounds.batch.specification import Specification
from bounds.cli.batch_cells import make_cells
from bounds.cli.batch_work import Shape, model_shape
from jax_models.constructions import build_preset
from tests.bounds.cli.shape import SHAPE


def cell(command, **given):
    (found,) = make_cells(Specification(command, given, {}))
    return found


def shape(command, **given):
    import importlib

    options = importlib.import_module(f"bounds.cli.{command}").define_flags()
    options(["test", *(f"--{name}={value}" for name, value in given.items())])
    return model_shape(options, cell(command, **given).config)


def test_the_shape_of_a_file_is_its_own(model_file):
    path = str(model_file())
    expected = Shape(**SHAPE, vocab_size=2)
    assert shape("curve", model=path) == expected
    smaller, larger = (cell("curve", lengths="32", **m) for m in ({"model": path}, {}))
    assert smaller.work.terms["tokens"] == larger.work.terms["tokens"]
    assert smaller.work.terms["passes"] < larger.work.terms["passes"]


def test_a_layer_in_several_places_counts_in_each(tmp_path):
    sizes = {"num_heads": 2, "d_model": 8, "d_ff": 3, "vocab_size": 5}
    model = jm.random_transformer(
        jax.random.key(0), num_layers=3, same_layers=(0, 0, 0), **sizes
    )
    jm.save(model, path := tmp_path / "model.safetensors")
    assert shape("influence", model=str(path)) == Shape(num_layers=3, **sizes)


def test_the_shape_of_a_construction_is_its_own():
    model = build_preset("parity", dtype="float32")
    assert shape("influence", preset="parity") == Shape(
        len(model.layers),
        max(layer.attention.num_heads for layer in model.layers),
        model.width,
        max(len(layer.feed_forward.w1) for layer in model.layers),
        model.vocab_size,
    )


def test_a_random_model_has_the_symbols_of_its_inputs():
    given = {"num_layers": "3", "d_model": "8", "language": "dyck2"}
    assert shape("simulate", **given) == Shape(num_layers=3, d_model=8, vocab_size=4)


def test_inputs_are_counted_in_their_file(tmp_path):
    np.save(tmp_path / "tokens.npy", np.zeros((5, 12), int))
    found = cell(
        "curve", tokens=f"{tmp_path}/tokens.npy", lengths="4,8", weighting="softmax"
    )
    assert found.work.terms["runs"] == 5 * 2
    assert found.work.terms["tokens"] == 5 * (4 + 8)
    whole = cell("influence", tokens=f"{tmp_path}/tokens.npy")
    assert whole.work.terms["tokens"] == 5 * 12


def test_simulate_runs_all_inputs_of_a_length_where_its_budget_allows():
    runs = [
        cell("simulate", lengths=n, num_inputs="16", max_inputs="256").work.terms[
            "runs"
        ]
        for n in ("4", "8", "9")
    ]
    assert runs == [16, 256, 16]


@pytest.mark.parametrize("flag", ["model", "tokens"])
def test_a_file_that_cannot_be_read_is_left_to_the_cell(tmp_path, flag):
    (tmp_path / "broken").write_text("x y")
    assert cell("curve", **{flag: f"{tmp_path}/broken"}).work.terms["tokens"] > 0


def test_programs_are_shared_by_cells_with_a_length_or_weighting_in_common():
    def programs(**given):
        return set(cell("curve", d_model="8", **given).programs)

    both = programs(lengths="16,64", weighting="softmax,average_hard", seed="1")
    assert len(both) == 4
    for n in ("16", "64"):
        for weighting in ("softmax", "average_hard"):
            for count in ("2", "3"):
                one = programs(lengths=n, weighting=weighting, num_inputs=count)
                assert len(one) == 1
                assert one < both
    assert not programs(lengths="16", num_layers="2") & both
    few, many = (
        set(cell("simulate", lengths="4,64", num_inputs=count).programs)
        for count in "23"
    )
    assert len(few & many) == 1  # all inputs of 4 symbols are run, whatever the count
