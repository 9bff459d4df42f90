"""Pieces of a model in its file: what they mean, and what is refused by what is wrong."""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from jax_models.format.build import build_model
from jax_models.model.entry import TokenDropout
from jax_models.model.position import PairTable
from jax_models.model.pytree import in_bytes
from jax_models.model.rows import ACTIVATIONS, Affine, Product, RmsNorm
from jax_models.run.evaluate import linear_readout
from tests.architecture import HEADS, small_model, with_attention
from tests.bounds.influence.expect import refused
from tests.bounds.test_every_word import ALL, model_of
from tests.written import written

SHAPE = {"num_layers": 1, "num_heads": 2, "d_model": 4, "d_ff": 3, "vocab_size": 3}


@functools.cache
def draw(head="masked_lm", **options):
    shape = {**SHAPE, "num_classes": 5, "dtype": "float64", "layer_norm": "pre"}
    return small_model(**{**shape, **options}, head=head)


def with_parts(**parts):
    return dataclasses.replace(draw("linear", layer_norm="none"), **parts)


MODELS = {name: functools.partial(model_of, name) for name in ALL}
PARTS = {
    "pooling": {"pooling": jm.Pooling("last", True)},
    "padding": {"padding": jm.Padding(2), "substitutable": (0, 1)},
    "special": {"special": (2,), "substitutable": (0, 1)},
    "head row": {"head_row": "first"},
    "token dropout": {"token_dropout": TokenDropout(2, 0.12)},
    "pairs": {"position": PairTable(jnp.ones((5, 4)), jnp.ones(4), 2)},
}
MODELS |= {name: functools.partial(with_parts, **PARTS[name]) for name in PARTS}
models = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)


@models
def test_a_file_means_the_same_model(make, tmp_path):
    model, path = make(), tmp_path / "model.safetensors"
    jm.save(model, path)
    assert in_bytes(jm.load(path)) == in_bytes(model)
    assert b"attention-bounds/2" in path.read_bytes()


@models
def test_version_1_does_not_have_it(make):
    config, tensors = written(make())
    with refused("attention-bounds/1' does not have"):
        build_model(config | {"format": "attention-bounds/1"}, tensors)


# Entries of docs/model-format.md, and no key more: what belongs to one input is not in them.
ENTRIES = {
    "pooling": {"pooling": {"kind": "last", "normalised": True}},
    "padding": {"padding": 2, "substitutable": [0, 1]},
    "token dropout": {"token_dropout": {"mask": 2, "share": 0.12}},
    "pairs": {"position": {"kind": "pairs", "separator": 2}},
}


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_has_the_keys_of_the_page(name):
    config, _ = written(MODELS[name]())
    assert {key: config[key] for key in ENTRIES[name]} == ENTRIES[name]


def rotary(**said):
    return {"rotary": {"dims": 4, **said}}


def buckets(**said):
    return {"distance_bias": {"kind": "buckets", **said}}


LISTED = {"kind": "listed", "frequencies": [1, 0.5, 0.1]}
LLAMA = {"kind": "llama3", "factor": 8, "original_length": 32}
LLAMA |= {"low_frequency_factor": 4, "high_frequency_factor": 1}
# Of which model what is changed, and what is said of it.
BAD = [
    *(("window", f"window = {x!r}; expected", {"window": x}) for x in (0, 2.5, "3")),
    ("rotary", "'dims'|dims = None", {"rotary": {}}),
    ("rotary", "rotary.dims = 3; expected an even number", rotary(dims=3)),
    ("rotary", "rotary.pairing = 'both'", rotary(pairing="both")),
    ("rotary", "rotary has an unknown key|'base'", rotary(base=10.0)),
    ("rotary", "rotary.scaling.kind = 'yarn'", rotary(scaling={"kind": "yarn"})),
    ("rotary", "frequencies lists 3; expected 2", rotary(scaling=LISTED)),
    ("rotary", "expected less than high_frequency_factor", rotary(scaling=LLAMA)),
    ("distance buckets", "distance_bias.kind = 'far'", buckets(kind="far")),
    ("distance buckets", "'slope'", buckets(kind="alibi", slope=2)),
    ("distance buckets", "max_distance = 2; expected more", buckets(max_distance=2)),
    ("distance buckets", "bidirectional = 1; expected", buckets(bidirectional=1)),
    ("head", "head = 'linear'; expected a list", {"head": "linear"}),
    ("head", r"head\[1\] = 'swish'.*embedding.*gelu", {"head": ["linear", "swish"]}),
    ("head", r"head\[0\] = 'embedding' comes last", {"head": ["embedding", "tanh"]}),
    ("head", r"head\[1\].epsilon = None", {"head": ["linear", {"norm": "layer_norm"}]}),
    ("head", "tensor 'head.1.weight' is missing", {"head": ["tanh", "linear"]}),
    ("head", "pooling.kind = 'max'", {"pooling": {"kind": "max"}}),
    ("repeated", r"layers\[3\].same_as = 3; expected an earlier", {"same_as": 3}),
    ("repeated", r"layers\[3\].same_as = 2.*has its own weights", {"same_as": 2}),
    ("repeated", r"layers\[3\].same_as = '0'", {"same_as": "0"}),
    ("repeated", r"layers\[3\].*key 'mask'", {"same_as": 0, "mask": "none"}),
]


@pytest.mark.parametrize(("name", "said", "change"), BAD)
def test_a_bad_entry_is_refused_by_name(name, said, change):
    others = {"head": draw, "repeated": lambda: REPEATED}
    config, tensors = written(others[name]() if name in others else model_of(name))
    if name == "repeated":
        change = {"layers": [*config["layers"][:3], change]}
    with refused(said):
        build_model(config | change, tensors)


def test_rotary_goes_with_dot_products_alone():
    with refused("goes only with dot-product scores"):
        model_of("rotary", score="additive")


def altered(**parts):
    return with_attention(model_of("window"), parts)


SLOPES = jm.Alibi(jnp.ones(3))


@pytest.mark.parametrize(
    ("said", "parts"),
    [
        ("rotary = 4; expected Rotary", {"rotary": 4}),
        (r"has shape \(3,\); expected \(2,\)", {"distance_bias": SLOPES}),
        (r"has shape \(8,\); expected \(4,\)", {"key_norm": RmsNorm(jnp.ones(8))}),
        (r"key' has shape \(\)", {"key": jnp.ones(())}),
    ],
)
def test_a_bad_piece_in_memory_is_refused_by_name(said, parts):
    with refused(said):
        jm.model_bytes(altered(**parts))


def test_a_window_of_numpy_is_a_number():
    assert jm.model_bytes(altered(window=np.int64(3))) == jm.model_bytes(altered())


def test_an_odd_number_of_buckets_has_no_two_sides():
    config, tensors = written(model_of("distance buckets"))
    name = "layers.0.attention.distance_bias"
    tensors = tensors | {name: tensors[name][:, :7]}
    with refused("has 7 buckets; expected an even number"):
        build_model(config, tensors)


@pytest.mark.parametrize("head", HEADS)
def test_logits_have_the_width_that_the_model_says(head):
    model = draw(head)
    assert jm.apply_logits(model, np.asarray([0, 2, 1])).shape == (3, model.classes)


def test_the_embedding_is_stored_once():
    model = draw("masked_lm")
    _, tensors = written(model)
    assert "head.3.weight" not in tensors
    assert tensors["head.3.bias"].shape == (model.vocab_size,)


def test_a_tied_head_is_an_affine_read_out():
    readout = linear_readout(draw("tied"))
    assert readout.weight.shape == (3, 4)


@pytest.mark.parametrize("head", ["masked_lm", "pooler", "classifier"])
def test_what_needs_one_map_names_the_operations_of_another_head(head):
    with refused(r"head is made of Affine, (Relu|Tanh)"):
        linear_readout(draw(head))


def test_an_embedding_of_another_width_is_no_decoder():
    config, tensors = written(draw())
    narrow = {"head.0.weight": np.ones((2, 4)), "head.0.bias": np.ones(2)}
    norm = {f"head.2.{name}": np.ones(2) for name in ("scale", "bias")}
    with refused(r"rows of width 4; what comes before.* 2"):
        build_model(config, {**tensors, **narrow, **norm})


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ((Product(),), r"head\[0\] = 'Product'"),
        ((Affine(jnp.ones((2, 3))),), r"head.0.weight.*\(2, 3\)"),
        (("tanh",), r"model.readout.steps\[0\] = 'tanh'"),
    ],
)
def test_a_bad_head_in_memory_is_refused_too(steps, message):
    with refused(message):
        jm.apply_logits(
            dataclasses.replace(draw(), readout=jm.Head(steps)), np.asarray([0, 1])
        )


def test_a_bias_of_the_embedding_without_the_embedding_is_refused():
    head = jm.Head((ACTIVATIONS["tanh"],), jnp.ones(3))
    with refused(r"unexpected tensors.*head.1.bias"):
        jm.apply_logits(dataclasses.replace(draw(), readout=head), np.asarray([0, 1]))


FOUR_LAYERS = SHAPE | {"num_layers": 4}
REPEATED = small_model(**FOUR_LAYERS, dtype="float64", same_layers=(0, 1, 1, 0))


def test_a_layer_in_several_places_is_stored_once(tmp_path):
    path = tmp_path / "model.safetensors"
    jm.save(REPEATED, path)
    loaded = jm.load(path)
    assert path.read_bytes() == jm.model_bytes(loaded)
    one, two, three, four = loaded.layers
    assert one is four
    assert two is three
    assert one is not two
    assert not [
        x for x in written(REPEATED)[1] if x.startswith(("layers.2", "layers.3"))
    ]
