"""Every construction against its language, on all strings up to a length."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from benchmarks import reference
from jax_models import languages
from jax_models.constructions import (
    PRESET_LANGUAGES,
    PRESETS,
    average_parity_transformer,
    build_preset,
    first_transformer,
    hard_parity_transformer,
    preset_parameters,
)
from jax_models.model.reweight import with_weighting
from tests.bounds.influence.expect import refused
from tests.written import written

LANGUAGES = {
    "parity": lambda string: sum(string) % 2 == 0,
    "first": lambda string: string[:1] == (1,),
    "ones": lambda string: 0 not in string,
    "anbn": lambda string: (
        len(string) % 2 == 0
        and sorted(string) == list(string)
        and 2 * sum(string) == len(string)
    ),
}
LANGUAGES["anbn_one_layer"] = LANGUAGES["anbn"]
LANGUAGES["published_first"] = LANGUAGES["first"]
for _name in ("normalised", "hard", "average", "published"):
    LANGUAGES[f"{_name}_parity"] = LANGUAGES["parity"]
# A construction for one length: by default two layers of one head.
ONLY_LENGTH = {"hard_parity": 4}
MAX_LENGTH = 7


@functools.cache
def end_of(name):
    return (2,) if "$" in (PRESETS[name]().vocabulary or ()) else ()


def strings(name, length):
    """All inputs with `length` symbols: the end token follows where there is one."""
    end = end_of(name)
    for string in itertools.product((0, 1), repeat=length):
        if string or end:
            yield string, (*string, *end)


def mistake(name, config, tensors, max_length):
    """The first string of at most that many symbols that is not decided rightly."""
    for length in range(max_length + 1):
        if length == ONLY_LENGTH.get(name, length):
            for string, tokens in strings(name, length):
                found = reference.accepts(config, tensors, tokens)
                if found != LANGUAGES[name](string):
                    return string
    return None


every_preset = pytest.mark.parametrize("name", PRESETS)


@every_preset
def test_accepts_exactly_the_language(name):
    config, tensors = written(build_preset(name))
    assert {tensor.dtype.name for tensor in tensors.values()} == {"float32"}
    assert mistake(name, config, tensors, MAX_LENGTH) is None


@every_preset
def test_the_engine_computes_the_same_logits(name):
    model = build_preset(name, dtype="float64")
    config, tensors = written(model)
    pairs = list(strings(name, 4))
    tokens = jnp.array([tokens for _, tokens in pairs], jnp.int32)
    run = jax.jit(jax.vmap(lambda row: jm.forward(model, row)[0]))
    assert model.readout is not None
    found = np.asarray(model.readout(run(tokens)))
    expected = [reference.logits(config, tensors, row) for _, row in pairs]
    # A norm with epsilon 1e-5 makes 300 roundings of one in rows that vanish.
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
    assert model.accept is not None
    accepted = found[:, -1, model.accept.class_] >= model.accept.threshold
    assert accepted.tolist() == [LANGUAGES[name](string) for string, _ in pairs]


@every_preset
def test_the_oracle_sees_a_tensor_of_the_wrong_sign(name):
    config, tensors = written(build_preset(name, dtype="float64"))
    last = len(config["layers"]) - 1
    for key in ("readout.weight", f"layers.{last}.attention.value"):
        changed = {**tensors, key: -tensors[key]}
        assert mistake(name, config, changed, 6) is not None, key


@every_preset
def test_presets_have_two_bits_their_language_and_one_compiled_trace(name):
    model, again = build_preset(name), build_preset(name)
    assert model.vocabulary is not None
    assert model.substitutable == (0, 1)
    assert model.vocabulary[2:] in ((), ("$",))
    assert model.vocab_size == len(model.vocabulary)
    assert hash(jax.tree.structure(model)) == hash(jax.tree.structure(again))
    if "first" in name:  # whose language none of LANGUAGES is
        assert name not in PRESET_LANGUAGES
        return
    language = languages.LANGUAGES[PRESET_LANGUAGES[name]]
    for n in range(1, 8):
        rows = list(itertools.product((0, 1), repeat=n))
        assert language.contains(rows).tolist() == [LANGUAGES[name](x) for x in rows]


@pytest.mark.parametrize(
    ("name", "tokens", "expected"),
    [
        ("ones", [1, 0, 1, 1, 1], [0] * 5),
        ("anbn_one_layer", [0, 0, 1, 1, 1], [0, 0, 0, 1, 0]),
    ],
)
def test_hard_constructions_answer_at_every_position(name, tokens, expected):
    logits = np.asarray(jm.apply_logits(build_preset(name, dtype="float64"), tokens))
    assert (logits[:, 0] >= 0.5).tolist() == expected


def swap(tokens, i):
    changed = np.array(tokens)
    changed[i] = 1 - changed[i]
    return changed


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["ones", "anbn", "anbn_one_layer"])
def test_hard_constructions_hold_on_long_strings(name, dtype):
    model = build_preset(name, dtype=dtype)
    length = 3000
    member = np.repeat([0, 1], length // 2) if "anbn" in name else np.ones(length, int)
    assert jm.accepts(model, member)
    for i in (0, 1, length // 2 - 1, length // 2, length - 1):
        assert not jm.accepts(model, swap(member, i))


def test_presets_are_built_by_name_with_their_own_parameters():
    assert set(preset_parameters("parity")) == {"c", "temperature", "dtype"}
    assert set(preset_parameters("first")) == {"c", "temperature", "dtype"}
    query = build_preset("parity", c=3.0).layers[1].attention.query
    assert float(query.max()) == 3.0
    with refused("preset 'ones' takes no 'c'; it takes dty"):
        build_preset("ones", c=1.0)


def first_influence(num_tokens, log_weight):
    weight = math.exp(log_weight)
    return weight / (weight + num_tokens - 1)


@pytest.mark.parametrize("c", [-1.0, 0.0, 2.0])
def test_only_the_first_bit_influences_first(c):
    config, tensors = written(first_transformer(c=c, dtype="float64"))
    for tokens in ([1, 2], [0, 1, 1, 0, 2], [1, 1, 0, 0, 1, 2]):
        found = reference.influence(config, tensors, tokens, target="logits")
        expected = first_influence(len(tokens), c)
        assert found[0, 1 - tokens[0]] == pytest.approx(expected, rel=1e-14)
        assert (found[1:-1][np.isfinite(found[1:-1])] == 0).all()
        logit = reference.logits(config, tensors, tokens)[-1, 0]
        sign = 1 if tokens[0] else -1
        assert logit == pytest.approx(sign * expected / 2, rel=1e-14)


def test_a_temperature_of_one_over_log_n_keeps_the_first_bit_visible():
    model = first_transformer(
        temperature=jm.InverseLogTemperature(1.0), dtype="float64"
    )
    config, tensors = written(model)
    for length in (2, 10, 100):
        tokens = np.append(np.zeros(length - 1, int), 2)
        logit = reference.logits(config, tensors, tokens)[-1, 0]
        assert logit == pytest.approx(-length / (2 * (2 * length - 1)), rel=1e-13)


@jax.jit
def last_logits(model, strings):
    """The logit of each string at its last position."""
    run = jax.vmap(lambda string: jm.forward(model, string)[0][-1])
    return model.readout(run(strings))[:, 0]


def is_even(strings):
    return strings.sum(axis=1) % 2 == 0


SIZES = [(1, 8), (2, 4), (4, 1), (3, 4)]


@pytest.mark.parametrize(
    ("weighting", "dtype"),
    [("leftmost_hard", "float32"), ("rightmost_hard", "float64")],
)
@pytest.mark.parametrize(("num_layers", "num_heads"), SIZES)
def test_computes_parity_of_random_strings(num_layers, num_heads, weighting, dtype):
    length = (num_heads + 1) ** num_layers
    strings = np.random.default_rng(0).integers(0, 2, (50, length), np.int32)
    size = {"num_layers": num_layers, "num_heads": num_heads}
    model = with_weighting(hard_parity_transformer(**size, dtype=dtype), weighting)
    assert (np.asarray(last_logits(model, strings)) == is_even(strings)).all()
    for flipped in range(0, length, 7):
        changed = strings.copy()
        changed[:, flipped] ^= 1
        assert (np.asarray(last_logits(model, changed)) != is_even(strings)).all()


def test_every_winner_is_decided_beyond_rounding():
    model = hard_parity_transformer(num_layers=2, num_heads=4, dtype="float64")
    string = np.random.default_rng(1).integers(0, 2, 25, np.int32)
    _, reports = jax.jit(jm.forward)(model, string)
    assert all(report is not None and float(report.gap) == 1 for report in reports)


@pytest.mark.parametrize(("length", "dtype"), [(12, "float64"), (100, "float32")])
def test_one_average_hard_head_computes_parity(length, dtype):
    strings = np.random.default_rng(2).integers(0, 2, (300, length), np.int32)
    model = average_parity_transformer(max_length=max(length, 64), dtype=dtype)
    expected = np.where(is_even(strings), 1, -1) / (2 * length)
    found = np.asarray(last_logits(model, strings))
    np.testing.assert_allclose(found, expected, rtol=0, atol=0.1 / length)
