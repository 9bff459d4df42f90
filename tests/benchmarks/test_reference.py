"""Hand-worked values for the oracle itself, of what no other library computes.

Norms, activations, biases, heads and tables of positions are those of `transformers`
(tests/jax_models/format/pretrained/test_families.py), with which oracle and engine agree.
"""

import math

import numpy as np
import pytest

import jax_models as jm
from benchmarks import reference
from tests.architecture import small_model
from tests.written import written

LN3 = math.log(3.0)


def one_layer(embedding, score=None, **settings):
    """A one-head layer that adds its attended embedding; the feed-forward adds 0."""
    embedding = np.asarray(embedding, dtype=np.float64)
    d = embedding.shape[1]
    score = np.zeros(len(embedding)) if score is None else np.asarray(score)
    key = np.linalg.lstsq(embedding, score, rcond=None)[0]
    layer = {"weighting": "softmax", "mask": "none", "score": "dot_product"}
    config = {"format": "attention-bounds/1", "layers": [layer]}
    for name, value in settings.items():
        target = layer if name in ("weighting", "mask", "score") else config
        (layer if name == "temperature" else target)[name] = value
    tensors = {
        "embedding": embedding,
        "layers.0.attention.query": np.zeros((1, 1, d)),
        "layers.0.attention.query_bias": np.ones((1, 1)),
        "layers.0.attention.key": key[None, None, :],
        "layers.0.attention.value": np.eye(d)[None],
        "layers.0.attention.output": np.eye(d),
        "layers.0.ffn.w1": np.zeros((1, d)),
        "layers.0.ffn.b1": np.zeros(1),
        "layers.0.ffn.w2": np.zeros((d, 1)),
        "layers.0.ffn.b2": np.zeros(d),
    }
    return config, tensors


def attended(config, tensors, tokens, **options):
    y = reference.forward(config, tensors, tokens, **options)
    return y - tensors["embedding"][np.asarray(tokens)]


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        ("none", [8 / 4, 8 / 4, 8 / 4, 8 / 4]),
        ("future", [1, 1, 4 / 3, 2]),
        ("past", [2, 7 / 3, 3, 4]),
        ("strict_future", [0, 1, 1, 4 / 3]),
        ("strict_past", [7 / 3, 3, 4, 0]),
    ],
)
def test_zero_scores_average_what_the_mask_shows(mask, expected):
    # The values are 1, 1, 2, 4; a row that sees nothing attends to zero.
    config, tensors = one_layer([[1.0], [2.0], [4.0]], mask=mask)
    np.testing.assert_allclose(
        attended(config, tensors, [0, 0, 1, 2])[:, 0], expected, rtol=1e-15
    )


def test_additive_scores_take_the_tanh_of_query_plus_key():
    # q = artanh 1/2, k = 0 or artanh(4/5) - artanh(1/2): tanh 1/2 and 4/5. With
    # w = 10 ln 3 / 3 the scores differ by ln 3.
    config, tensors = one_layer(np.eye(2), score=[0.0, 0.0])
    shift = math.atanh(4 / 5) - math.atanh(1 / 2)
    tensors["layers.0.attention.query_bias"] = np.array([[math.atanh(1 / 2)]])
    tensors["layers.0.attention.key"] = np.array([[[0.0, shift]]])
    tensors["layers.0.attention.score_vector"] = np.array([[10 * LN3 / 3]])
    config["layers"][0]["score"] = "additive"
    weights = attended(config, tensors, [0, 1])[0]
    np.testing.assert_allclose(weights, [1 / 4, 3 / 4], rtol=1e-14)


@pytest.mark.parametrize(
    ("temperature", "tokens", "row", "expected"),
    [
        # Scores 0 and 4 ln 3 divided by tau; three tokens, the last one the odd one.
        (None, [0, 0, 1], 2, 81 / 83),
        ({"kind": "constant", "value": 4.0}, [0, 0, 1], 2, 3 / 5),
        ({"kind": "power", "scale": 36.0, "exponent": -2.0}, [0, 0, 1], 2, 3 / 5),
        # 1 / ln 3 at n = 3: the odd weight is e^{4 (ln 3)^2}.
        (
            {"kind": "inverse_log", "scale": 1.0},
            [0, 0, 1],
            2,
            1 / (1 + 2 * math.exp(-4 * LN3**2)),
        ),
        # One token: the temperature is 1 whatever the scale; weight 1.
        ({"kind": "inverse_log", "scale": 0.1}, [1], 0, 1.0),
        # The row's own index 2 stands for n: tau = 2 * 2 = 4 in row 1.
        (
            {"kind": "power", "scale": 2.0, "exponent": 1.0, "of": "position"},
            [0, 1, 0],
            1,
            3 / 4,
        ),
    ],
)
def test_scores_are_divided_by_the_temperature(temperature, tokens, row, expected):
    mask = "future" if temperature and temperature.get("of") else "none"
    config, tensors = one_layer(
        np.eye(2), score=[0.0, 4 * LN3], temperature=temperature, mask=mask
    )
    weight = attended(config, tensors, tokens)[row, 1]
    assert weight == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(
    ("weighting", "expected"),
    [("leftmost_hard", 5.0), ("rightmost_hard", 7.0), ("average_hard", 6.0)],
)
def test_hard_weightings_decide_ties_on_cells(weighting, expected):
    # Values 5, 7, 1 score 2, 2 + 1e-10, 0: one cell of width 1e-9 for the first two.
    embedding = [[5.0, 2.0], [7.0, 2.0 + 1e-10], [1.0, 0.0]]
    config, tensors = one_layer(embedding, weighting=weighting)
    tensors["layers.0.attention.key"] = np.array([[[0.0, 1.0]]])
    for tokens in ([0, 1, 2], [2, 0, 1]):
        row = attended(config, tensors, tokens)[0]
        assert row[0] == expected
    config["tie_resolution"] = 1e-12
    assert attended(config, tensors, [0, 1, 2])[0, 0] == 7.0
    # The layer's own entry wins over the model's.
    config["layers"][0]["tie_resolution"] = 1e-9
    assert attended(config, tensors, [0, 1, 2])[0, 0] == expected


def test_a_best_cell_beside_an_occupied_one_is_ambiguous():
    embedding = [[5.0, 2.0], [7.0, 2.0 - 1e-9], [1.0, 0.0]]
    config, tensors = one_layer(embedding, weighting="leftmost_hard")
    tensors["layers.0.attention.key"] = np.array([[[0.0, 1.0]]])
    with pytest.raises(ValueError, match="ambiguous"):
        reference.forward(config, tensors, [1, 0, 2])
    assert attended(config, tensors, [1, 0, 2], ties="ignore")[0, 0] == 5.0
    # A masked neighbour does not make a row ambiguous: row 0 sees itself alone.
    config["layers"][0]["mask"] = "strict_future"
    with pytest.raises(ValueError, match="ambiguous"):
        reference.forward(config, tensors, [1, 0, 2])
    assert attended(config, tensors, [1, 0])[1, 0] == 7.0


def test_float32_tensors_have_wider_cells_and_rounded_positions():
    embedding = np.array([[5.0, 2.0], [7.0, 2.0 + 1e-5]], dtype=np.float32)
    config, tensors = one_layer(embedding, weighting="leftmost_hard")
    tensors = {name: tensor.astype(np.float32) for name, tensor in tensors.items()}
    tensors["layers.0.attention.key"] = np.array([[[0.0, 1.0]]], dtype=np.float32)
    assert attended(config, tensors, [0, 1])[0, 0] == 5.0
    config["layers"][0]["weighting"] = "softmax"
    config["position"] = {
        "kind": "coordinates",
        "terms": [{"coordinate": 0, "position_power": -1}],
    }
    tensors["layers.0.attention.output"] = np.zeros((2, 2), dtype=np.float32)
    y = reference.forward(config, tensors, [0, 0, 0])
    assert y[2, 0] == 5.0 + float(np.float32(1 / 3))


def test_concat_feeds_the_activation_and_all_heads_in_order():
    config, tensors = one_layer([[1.0], [2.0]], combine="concat")
    del tensors["layers.0.attention.output"]
    tensors["layers.0.attention.query"] = np.zeros((2, 1, 1))
    tensors["layers.0.attention.query_bias"] = np.ones((2, 1))
    tensors["layers.0.attention.key"] = np.zeros((2, 1, 1))
    tensors["layers.0.attention.value"] = np.array([[[1.0]], [[3.0]]])
    tensors["layers.0.ffn.w1"] = np.array([[1.0, 10.0, 100.0]])
    tensors["layers.0.ffn.w2"] = np.ones((1, 1))
    # Means 3/2 and 9/2; row 0: 1 + (1 + 15 + 450), row 1: 2 + (2 + 15 + 450).
    np.testing.assert_allclose(
        reference.forward(config, tensors, [0, 1]), [[467.0], [469.0]]
    )
    config["combine"] = "residual"
    config["layers"][0]["combine"] = "concat"
    np.testing.assert_allclose(
        reference.forward(config, tensors, [0, 1]), [[467.0], [469.0]]
    )


def test_sinusoidal_positions():
    config, tensors = one_layer(np.zeros((1, 4)))
    config["position"] = {"kind": "sinusoidal", "base": 100, "scale": 2.0}
    table = reference.position_table(config, tensors, 3)
    # Angles j and j / 100^(2/4) = j / 10.
    expected = [
        [2 * math.sin(j), 2 * math.sin(j / 10), 2 * math.cos(j), 2 * math.cos(j / 10)]
        for j in range(3)
    ]
    np.testing.assert_allclose(table, expected, rtol=1e-15)


def test_coordinate_positions():
    config, tensors = one_layer(np.zeros((1, 6)))
    terms = [
        {"coordinate": 0, "position_power": 1, "length_power": -1, "offset": 0},
        {"coordinate": 1, "alternating": True},
        {"coordinate": 2, "length_power": 1},
        {"coordinate": 2, "position_power": 1, "scale": -0.5},
        {"coordinate": 3, "position_power": -1},
        {"coordinate": 4, "modulus": 3, "residues": [0, 2]},
        {"coordinate": 5, "modulus": 2, "residues": [1], "offset": 0},
    ]
    config["position"] = {"kind": "coordinates", "terms": terms}
    np.testing.assert_allclose(
        reference.position_table(config, tensors, 4),
        [
            [0, -1, 3.5, 1, 0, 0],
            [1 / 4, 1, 3, 1 / 2, 1, 1],
            [2 / 4, -1, 2.5, 1 / 3, 1, 0],
            [3 / 4, 1, 2, 1 / 4, 0, 1],
        ],
        rtol=1e-15,
    )


def test_influence_of_an_average_is_the_change_over_n():
    config, tensors = one_layer([[1.0, 0.0], [4.0, 4.0], [0.0, 0.0]])
    config["substitutable"] = [0, 1]
    found = reference.influence(config, tensors, [0, 1, 0, 2])
    expected = np.full((4, 3), np.nan)
    # The change (3, 4) has norm 5 and weight 1/4; the last token is not listed.
    expected[[0, 1, 2], [1, 0, 1]] = 5 / 4
    np.testing.assert_allclose(found, expected)
    tensors["readout.weight"] = np.array([[2.0, 0.0]])
    tensors["readout.bias"] = np.array([7.0])
    found = reference.influence(config, tensors, [0, 1, 0, 2], target="logits")
    np.testing.assert_allclose(found, expected * 6 / 5)
    config["accept"] = {"class": 0, "threshold": 7 + 2 * 6 / 4}
    assert reference.accepts(config, tensors, [0, 1, 0, 2])
    assert not reference.accepts(config, tensors, [0, 0, 0, 2])


def whole_model(layer_norm):
    """A model that has every optional tensor, as a file holds it."""
    shape = {"num_layers": 2, "num_heads": 2, "vocab_size": 3, "num_classes": 2}
    parts = {"score": "additive", "activation": "gelu", "position": "table"}
    parts |= {"temperature": jm.InverseLogTemperature(0.5), "mask": "future"}
    model = small_model(
        2,
        **{**shape, **parts},
        final_norm=True,
        layer_norm=layer_norm,
        layer_norm_epsilon=0.1,
        dtype="float64",
    )
    return written(model)


@pytest.mark.parametrize("layer_norm", ["none", "pre", "post"])
def test_fifty_digits_agree_with_float64(layer_norm):
    config, tensors = whole_model(layer_norm)
    tokens = [0, 2, 1, 1, 0]
    exact = reference.forward(config, tensors, tokens, reference.multiprecision(50))
    plain = reference.forward(config, tensors, tokens)
    np.testing.assert_allclose(plain, exact.astype(np.float64), rtol=1e-12)
    # They are two computations, not one: the rounding of the second is visible.
    assert (plain != exact).any()


def test_every_tensor_is_read():
    """The oracle that ignored one would agree with an engine that ignores it too."""
    config, tensors = whole_model("post")
    before = reference.logits(config, tensors, [0, 1, 1, 2])
    for name in tensors:
        # Not the whole tensor: a common scale of a normed row would go unseen.
        changed = {**tensors, name: tensors[name].copy()}
        changed[name].flat[0] += 0.5
        after = reference.logits(config, changed, [0, 1, 1, 2])
        assert np.abs(after - before).max() > 1e-8, name
