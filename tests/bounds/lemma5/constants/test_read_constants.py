"""Every constant is above what it bounds, and as small as its formula allows."""

import dataclasses
import math
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from benchmarks import reference
from bounds.lemma5.closed_form import Additive, DotProduct
from bounds.lemma5.constants import read_constants
from bounds.lemma5.constants.model_constants import lowest_temperature
from bounds.lemma5.constants.row_form import path_gain, residual_lipschitz
from bounds.numbers.interval import lower, upper
from bounds.numbers.spectral import Enclosure
from jax_models.format.build import build_model
from jax_models.model.layer import FeedForward
from jax_models.model.reweight import with_dtype, with_weighting
from jax_models.model.rows import Gelu
from tests.bounds.lemma5.constants.drawn import FACTORS, allowed, draw, power
from tests.covering import cover

N = 9
PAIRS = [case for case in cover(FACTORS, 2, allowed) if case["num_layers"] < 3]


def layers_of(drawn):
    """The oracle's activations after 0, 1, … layers, on a few inputs of n tokens."""
    rng = np.random.default_rng(0)
    inputs = rng.integers(0, len(drawn.tensors["embedding"]), (6, N))
    tensors = {k: v for k, v in drawn.tensors.items() if "final_norm" not in k}
    layers, found = drawn.config["layers"], []
    for depth in range(len(layers) + 1):
        config = {**drawn.config, "layers": layers[:depth]}
        rows = [reference.forward(config, tensors, tokens) for tokens in inputs]
        found.append(np.stack(rows))
    return found


def constants_of(drawn):
    """The constants of a model whose tensors may have changed since it was drawn."""
    return read_constants(build_model(drawn.config, drawn.tensors), N)


@pytest.mark.parametrize("index", range(len(PAIRS)))
def test_norms_bound_the_activations(index):
    drawn = draw(index, **PAIRS[index])
    constants = read_constants(drawn.model, N)
    norms = (constants.embedding.norm, *constants.norms)
    for norm, rows in zip(norms, layers_of(drawn), strict=True):
        assert np.linalg.norm(rows, axis=-1).max() <= norm
    for k, layer in enumerate(constants.layers, start=1):
        # Two outputs differ by no more than the cap, which no norm bound exceeds.
        assert layer.output_cap <= 2 * norms[k] * (1 + 1e-12)
        assert constants.attended_norm(k) >= layer.norm
    growth = constants.growth()
    assert growth is not None
    assert growth >= 1
    for k, norm in enumerate(norms):
        assert norm <= growth**k * constants.embedding.separate * (1 + 1e-12)


@pytest.mark.parametrize("position", FACTORS["position"])
@pytest.mark.parametrize("length", [2, 33])
def test_embedding_norms_are_the_maxima(position, length):
    drawn = draw(1, position=position)
    found = read_constants(drawn.model, length).embedding
    e = drawn.tensors["embedding"]
    p = reference.position_table(drawn.config, drawn.tensors, length)
    sums = np.linalg.norm(e[:, None] + p[None], axis=-1)
    assert found.norm == pytest.approx(sums.max(), rel=1e-13)
    assert found.norm >= sums.max()
    separate = np.linalg.norm(e, axis=-1).max() + np.linalg.norm(p, axis=-1).max()
    assert separate <= found.separate <= separate * (1 + 1e-13)
    distances = np.linalg.norm(e[:, None] - e[None], axis=-1)
    assert distances.max() <= found.distance <= distances.max() * (1 + 1e-13)


def test_only_symbols_that_may_be_exchanged_count_for_the_distance():
    drawn = draw(2)
    e = drawn.tensors["embedding"]
    config = {**drawn.config, "substitutable": [0, 2]}
    found = read_constants(build_model(config, drawn.tensors), 4).embedding
    assert found.distance == pytest.approx(np.linalg.norm(e[0] - e[2]), rel=1e-13)
    # The norm is that of every input, so all symbols count for it.
    assert found.norm == read_constants(drawn.model, 4).embedding.norm
    alone = {**drawn.config, "substitutable": [1]}
    assert read_constants(build_model(alone, drawn.tensors), 4).embedding.distance == 0


def test_positions_count_at_this_length_only():
    drawn = draw(3, position="table")
    drawn.tensors["position"][20] *= 100
    model = build_model(drawn.config, drawn.tensors)
    near, far = (read_constants(model, n).embedding.norm for n in (20, 21))
    assert far > 10 * near


SCHEDULES = {
    "1": (None, 1.0),
    "constant": (jm.ConstantTemperature(0.6), 0.6),
    "inverse_log": (jm.InverseLogTemperature(1.5), 1.5 / math.log(N)),
    "power": (jm.PowerTemperature(1.2, -0.2), 1.2 * N**-0.2),
    "falls with position": (jm.PowerTemperature(1.2, -0.2, "position"), 1.2 * N**-0.2),
    "grows with position": (jm.PowerTemperature(0.8, 0.3, "position"), 0.8),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_lowest_temperature_is_the_minimum_over_the_rows(name):
    schedule, expected = SCHEDULES[name]
    found = lowest_temperature(schedule, N)
    assert lower(found) <= upper(found)
    assert lower(found) == pytest.approx(expected, rel=1e-15)
    if schedule is not None:
        rows = schedule(N, jnp.arange(N), jnp.float64)
        assert lower(found) <= float(jnp.min(rows)) * (1 + 1e-15)


@pytest.mark.parametrize("temperature", ["1", "inverse_log", "grows with position"])
@pytest.mark.parametrize("score", FACTORS["score"])
def test_scores_are_the_norms_of_the_definition(score, temperature):
    drawn = draw(4, score=score, temperature=temperature, masks=("future",))
    tensors, divisor = drawn.tensors, SCHEDULES[temperature][1]
    if score == "scaled_dot_product":
        divisor *= math.sqrt(tensors["layers.0.attention.query"].shape[1])
    heads = read_constants(drawn.model, N).layers[0].heads
    for h, head in enumerate(heads):
        q, k = (tensors[f"layers.0.attention.{x}"][h] for x in ("query", "key"))
        if score == "additive":
            u = tensors["layers.0.attention.score_vector"][h]
            size = np.linalg.norm(u)
            expected = [size * np.linalg.norm(x, 2) for x in (q, k)] + [np.abs(u).sum()]
            assert isinstance(head.score, Additive)
            found = [head.score.m1, head.score.m2, head.score.sup]
        else:
            b = tensors["layers.0.attention.query_bias"][h]
            expected = [np.linalg.norm(q.T @ k, 2), np.linalg.norm(k.T @ b)]
            assert isinstance(head.score, DotProduct)
            found = [head.score.mu, head.score.c]
        np.testing.assert_allclose(found, np.array(expected) / divisor, rtol=1e-12)


def test_a_head_gain_is_the_norm_of_its_value_and_output_matrices():
    drawn = draw(5, num_heads=2, num_layers=2, biases=False)
    for k, layer in enumerate(read_constants(drawn.model, N).layers):
        value = drawn.tensors[f"layers.{k}.attention.value"]
        output = drawn.tensors[f"layers.{k}.attention.output"]
        width = value.shape[1]
        assert len(layer.heads) == len(value) == 2 + k
        for h, head in enumerate(layer.heads):
            part = output[:, h * width : (h + 1) * width] @ value[h]
            expected = np.linalg.norm(part, 2) * layer.skip_gain
            assert head.gain == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("activation", FACTORS["activation"])
@pytest.mark.parametrize("combine", FACTORS["combine"])
@pytest.mark.parametrize("scale", FACTORS["scale"])
def test_the_block_stretches_no_difference_more_than_its_constants(
    activation, combine, scale
):
    drawn = draw(6, activation=activation, combine=combine, scale=scale, num_heads=3)
    t = drawn.tensors
    # Heads of very different size, so that none can stand for another.
    t["layers.0.attention.value"] *= 10.0 ** np.arange(3)[:, None, None]
    layer = constants_of(drawn).layers[0]
    w1, w2 = t["layers.0.ffn.w1"], t["layers.0.ffn.w2"]
    d = len(w2)
    rng = np.random.default_rng(0)
    # Jacobians I + W2 S W1 over slopes of the activation, extreme ones among them.
    top = Gelu.steepest if activation == "gelu" else 1.0
    stretched = 0.0
    for _ in range(200):
        slopes = rng.choice([1 - top, top], len(w1))
        jacobian = np.eye(d) + w2 * slopes @ w1[:, :d]
        stretched = max(stretched, np.linalg.norm(jacobian, 2))
        if combine == "concat":
            value = t["layers.0.attention.value"]
            for h, head in enumerate(layer.heads):
                size = value.shape[1]
                columns = w1[:, d + h * size : d + (h + 1) * size] @ value[h]
                assert np.linalg.norm(w2 * slopes @ columns, 2) <= head.gain
    assert stretched <= layer.skip_gain
    # Better than the plain product of norms wherever that is not small.
    plain = 1 + top * np.linalg.norm(w1[:, :d], 2) * np.linalg.norm(w2, 2)
    assert layer.skip_gain <= plain * (1 + 1e-12)


def test_every_layer_norm_enters_where_it_stands():
    constants = {}
    for kind in ("pre", "post"):
        drawn = draw(13, layer_norm=kind, scale=1.0, epsilon=0.1)
        constants[kind] = read_constants(drawn.model, N).layers[0]
    t = drawn.tensors
    scales = [np.abs(t[f"layers.0.norm{i}.scale"]).max() for i in (1, 2)]
    one, two = (scale / math.sqrt(0.1) for scale in scales)
    block = FeedForward(*(t[f"layers.0.ffn.{x}"] for x in ("w1", "b1", "w2", "b2")))
    w1 = Enclosure(t["layers.0.ffn.w1"])
    pre, post = constants["pre"], constants["post"]
    assert pre.input_gain == pytest.approx(one, rel=1e-13)
    assert pre.skip_gain == pytest.approx(
        1 + two * path_gain(1.0, block.w2, w1), rel=1e-13
    )
    read = scales[0] * math.sqrt(6) + np.linalg.norm(t["layers.0.norm1.bias"])
    assert pre.norm == pytest.approx(read, rel=1e-13)
    assert post.input_gain == 1
    through = one * residual_lipschitz(1.0, block.w2, w1) * two
    assert post.skip_gain == pytest.approx(through, rel=1e-13)


def test_the_feed_forward_block_counts_for_the_norm_under_pre_norm():
    drawn = draw(14, layer_norm="pre", scale=1.0).scaled(100, "ffn.w2")
    largest = np.linalg.norm(layers_of(drawn)[1], axis=-1).max()
    assert 50 < largest <= constants_of(drawn).norms[0]


@pytest.mark.parametrize("layer_norm", ["none", "pre"])
def test_what_a_block_adds_whatever_enters_it_counts_for_the_norm(layer_norm):
    """Without attention and W1, the activations gain W2 act(b1) + b2."""
    drawn = draw(15, layer_norm=layer_norm, activation="gelu")
    drawn = drawn.scaled(0, "attention.output", "ffn.w1")
    t = drawn.tensors
    t["layers.0.ffn.b1"] = 40.0 * np.arange(1, len(t["layers.0.ffn.b1"]) + 1)
    before, after = layers_of(drawn)
    added = np.linalg.norm((after - before)[0, 0])
    largest = np.linalg.norm(after, axis=-1).max()
    found = constants_of(drawn)
    assert added > 10 * found.embedding.norm
    assert largest <= found.norms[0] <= (found.embedding.norm + added) * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_a_position_that_nearly_cancels_a_symbol_leaves_no_norm_too_small(seed):
    """Exact rationals: |e|² + |p|² + 2 e·p has lost what is left of e + p."""
    drawn = draw(seed, position="table")
    t, rng = drawn.tensors, np.random.default_rng(seed)
    e = rng.normal(size=t["embedding"].shape[1])
    t["embedding"][:] = e
    t["position"][:] = -e + 1e-9 * rng.normal(size=e.shape)
    found = constants_of(drawn).embedding
    sums = [
        sum((Fraction(x) + Fraction(y)) ** 2 for x, y in zip(e, p, strict=True))
        for p in t["position"][:N]
    ]
    assert Fraction(found.norm) ** 2 >= max(sums)
    # Not the plain sum of the two norms: it is about them that this is small.
    assert found.norm < 1e-6 * found.separate


def test_the_diagonal_scaling_is_used():
    """W1 large and W2 small for one neuron, the other way round for the next."""
    drawn = draw(7, biases=False)
    t = drawn.tensors
    uneven = 10.0 ** np.arange(-3, 4)
    t["layers.0.ffn.w1"] *= uneven[:, None]
    even = read_constants(draw(7, biases=False).model, N).layers[0]
    t["layers.0.ffn.w2"] /= uneven
    layer = constants_of(drawn).layers[0]
    # The map is the same, so the constant is not much larger; T = I would give 1e3.
    assert layer.skip_gain <= 1.1 * even.skip_gain
    assert (
        np.linalg.norm(t["layers.0.ffn.w1"], 2)
        * np.linalg.norm(t["layers.0.ffn.w2"], 2)
        > 1e3
    )


def test_a_block_of_zeros_is_the_identity():
    assert constants_of(draw(8).scaled(0, "ffn.w")).layers[0].skip_gain == 1


@pytest.mark.parametrize("mask", ["strict_future", "strict_past"])
@pytest.mark.parametrize("combine", FACTORS["combine"])
def test_rows_that_see_nothing_count_for_the_norms(mask, combine):
    """Value biases that cancel the other offsets are absent from a blind row."""
    drawn = draw(9, masks=(mask,), combine=combine, scale=0.1)
    t = drawn.tensors
    if combine == "residual":
        pull = 50 * np.ones(len(t["layers.0.attention.output"]))
        t["layers.0.attention.output_bias"] = pull
        o = t["layers.0.attention.output"]
        values = -np.linalg.pinv(o) @ pull
    else:
        t["layers.0.ffn.b1"] = np.full(len(t["layers.0.ffn.b1"]), 50.0)
        d = t["embedding"].shape[1]
        values = -np.linalg.pinv(t["layers.0.ffn.w1"][:, d:]) @ t["layers.0.ffn.b1"]
    shape = t["layers.0.attention.value_bias"].shape
    t["layers.0.attention.value_bias"] = values.reshape(shape)
    rows = layers_of(drawn)[1]
    blind = rows[:, 0 if mask == "strict_future" else -1]
    largest = np.linalg.norm(rows, axis=-1).max()
    assert largest == pytest.approx(np.linalg.norm(blind, axis=-1).max(), rel=1e-12)
    assert largest <= constants_of(drawn).norms[0]


def test_layer_norms_bound_the_activations_whatever_the_weights():
    small, large = (
        read_constants(draw(10, layer_norm="post", scale=scale).model, N)
        for scale in (1.0, 3.0)
    )
    assert large.norms[-1] < 2 * small.norms[-1]
    tensors = draw(10, layer_norm="post", scale=1.0).tensors
    gamma = np.abs(tensors["layers.0.norm2.scale"]).max()
    expected = gamma * math.sqrt(6) + np.linalg.norm(tensors["layers.0.norm2.bias"])
    assert small.norms[0] == pytest.approx(expected, rel=1e-13)
    assert small.layers[0].output_cap <= 2 * gamma * math.sqrt(6) * (1 + 1e-13)


def test_float32_weights_are_taken_as_the_numbers_they_are():
    model = with_dtype(draw(11, position="table").model, "float32")
    found = read_constants(model, N)
    assert found == read_constants(with_dtype(model, "float64"), N)
    assert found != read_constants(draw(11, position="table").model, N)


def test_a_temperature_below_every_float_is_refused():
    drawn = draw(0)
    drawn.config["layers"][0]["temperature"] = power(1.0, -500.0)
    with pytest.raises(jm.InputError, match=r"layers.0: the temperature"):
        constants_of(drawn)


def hard(name):
    return lambda: with_weighting(draw(0, num_layers=2).model, name)


def drawn(**case):
    return lambda: draw(0, **case).model


@pytest.mark.parametrize(
    ("model", "length", "message"),
    [
        *((drawn(), n, "n >= 2") for n in (1, 0, -3)),
        (drawn(), 8.5, r"length n = 8.5; expected an integer"),
        *(
            (hard(x), N, f"layers.0: the weighting {x} is hard")
            for x in ("leftmost_hard", "rightmost_hard", "average_hard")
        ),
        *(
            (drawn(epsilon=0.0, **case), N, f"{norm}: layer_norm_epsilon is 0")
            for norm, case in (
                ("layers.0.norm1", {"layer_norm": "pre"}),
                ("layers.0.norm1", {"layer_norm": "post"}),
                ("final_norm", {"final_norm": True}),
            )
        ),
        (drawn(position="table"), 65, "beyond the model's position table"),
        (lambda: dataclasses.replace(draw(0).model, layers=()), N, "no layers"),
    ],
)
def test_what_has_no_constants_is_refused(model, length, message):
    with pytest.raises(jm.InputError, match=message):
        read_constants(model(), length)
