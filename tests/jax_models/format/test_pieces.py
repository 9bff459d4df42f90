"""Pieces of a model in its file: what they mean, and what is refused by what is wrong."""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from benchmarks import reference
from jax_models.format.build import build_model
from jax_models.model.entry import TokenDropout
from jax_models.model.position import PairTable
from jax_models.model.pytree import in_bytes
from jax_models.model.rows import ACTIVATIONS, Affine, Product, RmsNorm
from jax_models.run.evaluate import linear_readout
from tests.architecture import HEADS, small_model, with_attention
from tests.bounds.attention_pieces import PIECES, model_of
from tests.bounds.influence.expect import refused
from tests.bounds.test_every_word import PIECES as WORDS
from tests.bounds.test_every_word import build
from tests.written import written

SHAPE = {"num_layers": 1, "num_heads": 2, "d_model": 4, "d_ff": 3, "vocab_size": 3}


@functools.cache
def draw(head="masked_lm", **options):
    shape = {**SHAPE, "num_classes": 5, "dtype": "float64", "layer_norm": "pre"}
    return small_model(**{**shape, **options}, head=head)


def with_parts(**parts):
    return dataclasses.replace(draw("linear", layer_norm="none"), **parts)


MODELS = {name: functools.partial(model_of, name) for name in PIECES}
MODELS |= {name: functools.partial(build, case) for name, case in WORDS.items()}
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


BAD_ROTARY = {
    "'dims'|dims = None": {},
    "rotary.dims = 3; expected an even number": {"dims": 3},
    "rotary.pairing = 'both'": {"dims": 4, "pairing": "both"},
    "rotary has an unknown key|'base'": {"dims": 4, "base": 10.0},
    "rotary.scaling.kind = 'yarn'": {"dims": 4, "scaling": {"kind": "yarn"}},
    "frequencies lists 3; expected 2": {
        "dims": 4,
        "scaling": {"kind": "listed", "frequencies": [1, 0.5, 0.1]},
    },
    "expected less than high_frequency_factor": {
        "dims": 4,
        "scaling": {
            "kind": "llama3",
            "factor": 8,
            "low_frequency_factor": 4,
            "high_frequency_factor": 1,
            "original_length": 32,
        },
    },
}


BAD_BIAS = {
    "distance_bias.kind = 'far'": {"kind": "far"},
    "'slope'": {"kind": "alibi", "slope": 2},
    "distance_bias.max_distance = 2; expected more than 2": {"max_distance": 2},
    "distance_bias.bidirectional = 1; expected": {"bidirectional": 1},
}
BAD_HEAD = {
    "head = 'linear'; expected a list": "linear",
    r"head\[1\] = 'swish'.*embedding.*gelu": ["linear", "swish"],
    r"head\[0\] = 'embedding' comes last": ["embedding", "tanh"],
    r"head\[1\].epsilon = None": ["linear", {"norm": "layer_norm"}],
    "tensor 'head.1.weight' is missing": ["tanh", "linear"],
}
BAD_REPEATS = {
    r"layers\[3\].same_as = 3; expected an earlier layer": {"same_as": 3},
    r"layers\[3\].same_as = 2.*has its own weights": {"same_as": 2},
    r"layers\[3\].same_as = '0'": {"same_as": "0"},
    r"layers\[3\].*unknown key 'mask'": {"same_as": 0, "mask": "none"},
}
BAD = [
    *(("window", f"window = {x!r}; expected", {"window": x}) for x in (0, 2.5, "3")),
    *(("rotary", said, {"rotary": x}) for said, x in BAD_ROTARY.items()),
    *(
        ("distance buckets", said, {"distance_bias": {"kind": "buckets", **x}})
        for said, x in BAD_BIAS.items()
    ),
    *(("head", said, {"head": x}) for said, x in BAD_HEAD.items()),
    *(("repeated", said, {"layers": x}) for said, x in BAD_REPEATS.items()),
    ("head", "pooling.kind = 'max'", {"pooling": {"kind": "max"}}),
]


@pytest.mark.parametrize(("name", "said", "change"), BAD)
def test_a_bad_entry_is_refused_by_name(name, said, change):
    others = {"head": draw, "repeated": lambda: REPEATED}
    config, tensors = written(others[name]() if name in others else model_of(name))
    if name == "repeated":
        change = {"layers": [*config["layers"][:3], change["layers"]]}
    with refused(said):
        build_model(config | change, tensors)


def test_rotary_goes_with_dot_products_alone():
    with refused("goes only with dot-product scores"):
        model_of("rotary", score="additive")


def altered(**parts):
    return with_attention(model_of("window"), parts)


@pytest.mark.parametrize(
    ("said", "parts"),
    [
        ("rotary = 4; expected Rotary", {"rotary": 4}),
        (
            r"has shape \(3,\); expected \(2,\)",
            {"distance_bias": jm.Alibi(jnp.ones(3))},
        ),
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


def test_the_reference_reads_the_file_as_the_same_model():
    tokens = np.asarray([0, 2, 1, 1, 0])
    expected = reference.forward(*written(REPEATED), tokens)
    np.testing.assert_allclose(jm.apply(REPEATED, tokens), expected, 1e-11, 1e-11)
