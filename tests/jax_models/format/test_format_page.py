"""docs/model-format.md says what the reader of files does: words, defaults, an example."""

import dataclasses
import json
import re
from pathlib import Path

import jax.numpy as jnp
import pytest

from jax_models.format import config, pieces
from jax_models.format.build import name_tensors
from jax_models.model.layer import COMBINATIONS, NORM_PLACEMENTS
from jax_models.model.mask import MASKS
from jax_models.model.position import PairTable, PowerTerm, ResidueTerm
from jax_models.model.readout import Head, Readout
from jax_models.model.relative import Alibi
from jax_models.model.rows import ACTIVATIONS, NORMS, Affine, LayerNorm
from jax_models.model.scores import SCORES
from jax_models.weighting import WEIGHTINGS
from jax_models.weighting.hard import default_resolution
from tests.architecture import small_model

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "model-format.md").read_text()
KINDS = (
    "constant inverse_log power length position sinusoidal coordinates pairs".split()
)

# Tensors that a layer of version 1 has.
NAMES = [f"layers.{k}.{name}" for k in range(4) for name in config.ALWAYS_IN_1]


def words(page):
    """Returns the words of a page that stand as code: in backticks, blocks, quotes."""
    code = re.findall(r"```.*?```|`[^`]+`|(?m:^    .*$)|\"\w+\"", page, re.DOTALL)
    return set(re.findall(r"[\w./]+", " ".join(code)))


@pytest.mark.parametrize(
    "word",
    sorted(
        {
            *("format", "layers", *config.LAYER, *config.TOP),
            *(x.name for x in dataclasses.fields(PowerTerm)),
            *(x.name for x in dataclasses.fields(ResidueTerm)),
            *(*MASKS, *WEIGHTINGS, *SCORES, *ACTIVATIONS, *NORMS),
            *(*COMBINATIONS, *NORM_PLACEMENTS, *KINDS),
            *(pieces.LINEAR, pieces.EMBEDDING),
        }
    ),
)
def test_every_word_of_the_format_is_on_the_page(word):
    assert word in words(PAGE)


def test_a_word_that_is_missing_is_noticed():
    assert "residues" not in words(PAGE.replace("residues", "rests"))


ONE, NORM = Affine(jnp.ones((1, 1)), jnp.ones(1)), LayerNorm(jnp.ones(1), jnp.ones(1))


@pytest.mark.parametrize(
    ("readout", "count"),
    [
        (Readout(ONE.weight, ONE.bias), 2),
        (Head((ONE, NORM), jnp.ones(1), tied=True), 5),
    ],
)
def test_every_tensor_is_on_the_page(readout, count):
    model = small_model(
        score="additive",
        layer_norm="pre",
        gated=True,
        query_key_norm="layer_norm",
        distance_bias=Alibi(jnp.ones(1)),
        final_norm=True,
        entry_norm=True,
        d_embedding=2,
    )
    position = PairTable(jnp.zeros((1, 1)), jnp.zeros(1), 0)
    whole = dataclasses.replace(model, position=position, readout=readout)
    shown, named = words(PAGE), name_tensors(whole)
    assert len(named) == 33 + count
    for name in named:
        part = "." + name.split(".")[-1]
        numbered = re.sub(r"^(layers|head)\.\d", r"\1.K", name)
        assert {numbered, part} & shown, name


def test_the_example_is_a_config():
    (example,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    read = config.decode_config(json.loads(example), NAMES)
    assert read["layers"][0]["mask"] == "future"


def test_what_is_not_said_is_what_the_page_says():
    short = {"format": config.FORMATS[0], "layers": [{"weighting": "softmax"}]}
    (layer,) = config.decode_config(short, NAMES)["layers"]
    assert {k: value for k, value in layer.items() if value is not None} == {
        "norm": "layer_norm",
        "layer_norm": "none",
        "layer_norm_epsilon": 1e-5,
        "activation": "relu",
        "weighting": "softmax",
        "mask": "none",
        "score": "scaled_dot_product",
        "combine": "residual",
        "norm1": True,
    }
    assert '| `mask`, `score`, `temperature` | layer | `"none"`, `"scaled_dot' in PAGE
    assert [default_resolution(x) for x in ("float64", "float32")] == [1e-9, 1e-4]
    assert "1e-9 in float64 and 1e-4 in float32" in PAGE
