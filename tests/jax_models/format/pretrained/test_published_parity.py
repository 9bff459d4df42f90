"""The published layer-norm transformer for PARITY: its state, its comparisons, its margins.

Chiang & Cholak 2022: activations (y, -y) of d = 2 x 10 entries, two heads, post-norm,
3 neurons in layer 1 and 20 in layer 2; layer 2 erases every entry of a row but the answer,
so that a bit's row is what rounding leaves of it.
"""

import numpy as np
import pytest
from safetensors.numpy import save_file

import jax_models as jm
from benchmarks import reference
from jax_models.constructions import (
    normalised_parity_transformer,
    published_parity_transformer,
)
from jax_models.format.pretrained.load import compare_outputs
from tests.bounds.influence.expect import refused
from tests.jax_models.format.pretrained.folders import assert_is_plain

WIDTH, HEADS, HALF = 20, 2, 10
# Entries of the first half: is the token 1, the query; p/N, (-1)^p; k/N, 1/N; the mark.
ONE, QUERY, PLACE, SIGN, SHARE, UNIT, MARK, OUT = range(1, 9)
EPSILON = 1e-5


def matrix(rows, columns, entries):
    made = np.zeros((rows, columns))
    for at, value in entries.items():
        made[at] = value
    return made


def layer(number, inputs, output, w1, w2):
    begin = f"layers.{number}."
    maps = {
        "self_attn.in_proj_": inputs,
        "self_attn.out_proj.": output,
        "linear1.": w1,
        "linear2.": w2,
    }
    made = {}
    for name, weight in maps.items():
        made |= {f"{begin}{name}weight": weight, f"{begin}{name}bias": 0 * weight[:, 0]}
    for name in ("norm1", "norm2"):
        made[f"{begin}{name}.weight"] = np.ones(WIDTH)
        made[f"{begin}{name}.bias"] = np.zeros(WIDTH)
    return made


def state():
    """What `state_dict()` holds of the two layers and the read-out of OUT."""
    value, key, second = 2 * WIDTH, WIDTH, HALF  # rows of in_proj; head 2's rows
    counting = matrix(3 * WIDTH, WIDTH, {(value, ONE): 1, (value + 1, QUERY): 1})
    counted = {(SHARE, 0): 1, (UNIT, 1): 1, (SHARE + HALF, 0): -1, (UNIT + HALF, 1): -1}
    hat = [{PLACE: -1, SHARE: 1, UNIT: shift} for shift in (-1, 0, 1)]
    hat = {(row, at): x for row, form in enumerate(hat) for at, x in form.items()}
    mark = {
        (MARK + half, neuron): sign * slope
        for half, sign in ((0, 1), (HALF, -1))
        for neuron, slope in enumerate((1, -2, 1))
    }
    reading = {(0, QUERY): 1, (second, QUERY): 1, (key, SIGN): 1}
    reading |= {(key + second, SIGN): -1, (value, MARK): 1, (value + second, MARK): 1}
    answer = {(OUT, 0): -1, (OUT, second): 1}
    answer |= {(OUT + HALF, 0): 1, (OUT + HALF, second): -1}
    erase = np.diag([float(at != OUT) for at in range(HALF)])
    return (
        layer(
            0,
            counting,
            matrix(WIDTH, WIDTH, counted),
            matrix(3, WIDTH, hat),
            matrix(WIDTH, 3, mark),
        )
        | layer(
            1,
            matrix(3 * WIDTH, WIDTH, reading),
            matrix(WIDTH, WIDTH, answer),
            np.eye(WIDTH),
            np.block([[-erase, erase], [erase, -erase]]),
        )
        | {
            "classes.weight": matrix(1, WIDTH, {(0, OUT): 1}),
            "classes.bias": np.zeros(1),
        }
    )


def twofold(rows):
    return np.concatenate([rows, -rows], axis=-1)


def published(length, dtype="float64"):
    places = np.zeros((length, HALF))
    places[:, PLACE] = np.arange(length) / length
    places[:, SIGN] = (-1.0) ** np.arange(length)
    return jm.from_torch(
        state(),
        HEADS,
        embedding=twofold(np.eye(3, HALF)),
        position=twofold(places),
        readout="classes",
        layer_norm_eps=EPSILON,
        dtype=dtype,
    )


def strings(length):
    """Four strings, of both answers, as `benchmarks/parity_margin.py` draws them."""
    bits = np.random.default_rng(length).integers(0, 2, (4, length - 1))
    bits[1::2, 0] ^= (bits[0::2].sum(1) + bits[1::2].sum(1) + 1) % 2
    return bits


def margin(model, length, odd):
    """The least of |logit| over the strings; all are decided rightly."""
    found = []
    for row in strings(length):
        logit = jm.apply_logits(model, np.append(row, 2))[-1, 0]
        found.append(float(logit) * (odd if row.sum() % 2 else -odd))
    return min(found)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_model_whose_rows_vanish_is_imported(dtype):
    model = published(16, dtype)
    assert_is_plain(model)
    assert [x.feed_forward.w1.shape[0] for x in model.layers] == [3, 20]
    rows = np.linalg.norm(jm.apply(model, np.append(strings(16)[0], 2)), axis=-1)
    assert rows[:-1].max() < 1e4 * np.finfo(dtype).eps < 1 < rows[-1]
    assert margin(model, 16, odd=1) > 2


# docs/theory/parity.md, section 2.
MARGINS = {
    16: (2.48, 0.998),
    64: (0.227, 0.973),
    256: (0.0153, 0.656),
    1024: (0.000963, 0.0309),
}


@pytest.mark.parametrize("length", MARGINS)
def test_margins_are_those_of_the_page(length):
    ours = normalised_parity_transformer(epsilon=EPSILON, dtype="float64")
    found = margin(published(length), length, odd=1), margin(ours, length, odd=-1)
    np.testing.assert_allclose(found, MARGINS[length], rtol=5e-3)


@pytest.mark.parametrize("length", [2, 5, 16, 199, 200])
def test_the_preset_has_the_logits_of_the_published_weights(length):
    preset = published_parity_transformer(c=10**-0.5, epsilon=EPSILON, dtype="float64")
    for row in strings(length):
        tokens = np.append(row, 2)
        found, wanted = (
            float(jm.apply_logits(x, tokens)[-1, 0])
            for x in (preset, published(length))
        )
        assert (found > 0) == (row.sum() % 2 == 0)
        assert found == pytest.approx(-wanted, rel=length**2 * 2.0**-50)


def test_stored_rows_that_vanish_differ_by_their_roundings_alone(tmp_path):
    model, tokens = published(16), np.append(strings(16)[0], 2)
    rows = np.array(jm.apply(model, tokens))
    rows[:-1] *= -1  # other roundings of what cancels
    path = tmp_path / "rows.safetensors"
    save_file({"tokens": tokens, "rows": rows}, path)
    assert compare_outputs(model, path)["rows"] < 1e-13


@pytest.mark.parametrize("row", [0, -1])
def test_an_error_in_any_row_is_noticed(monkeypatch, row, tmp_path):
    forward = reference.forward

    def wrong(*given):
        rows = forward(*given)
        rows[row] += 1e-6 * np.linalg.norm(rows, axis=-1).max()
        return rows

    model, tokens = published(16), np.append(strings(16)[0], 2)
    monkeypatch.setattr(reference, "forward", wrong)
    with pytest.raises(AssertionError, match="rows differ by"):
        assert_is_plain(model)
    rows = np.array(jm.apply(model, tokens))
    rows[row] += 1e-6 * np.linalg.norm(rows, axis=-1).max()
    path = tmp_path / "rows.safetensors"
    save_file({"tokens": tokens, "rows": rows}, path)
    with refused("of the largest row; expected at most"):
        compare_outputs(model, path)
