"""The checkpoint that imports are timed on is one, and what is measured is the import."""

import jax.numpy as jnp
import pytest

import jax_models as jm
from benchmarks.import_cost import measure, write_checkpoint

CONFIG = {
    **{"layers": 1, "width": 8, "hidden": 12, "heads": 2, "vocab": 9},
    **{"family": "bert", "dtype": "float32", "seed": 0, "repeats": 1},
}


def test_the_checkpoint_is_whole(tmp_path):
    size = write_checkpoint(tmp_path, CONFIG)
    model = jm.from_pretrained(tmp_path)
    assert (model.vocab_size, model.width, len(model.layers)) == (9, 8, 1)
    assert model.dtype == jnp.float32
    assert size < (tmp_path / "model.safetensors").stat().st_size < size + 4000


@pytest.mark.slow
def test_a_row_says_what_both_took():
    row = measure({**CONFIG, "vocab": 10**6, "repeats": 2})  # 32 MB
    assert row["bytes"] > 3e7
    assert 0 < row["read_seconds"] < row["import_seconds"]
    assert 1 < row["ratio"] <= row["ratio_slowest"]
    assert 0.9 < row["import_memory"] < 10
