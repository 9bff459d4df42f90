"""Padding: rows that no row sees, so that sequences of different lengths batch."""

import dataclasses

import jax
import numpy as np
import pytest

import bounds
import jax_models as jm
from bounds.influence import LogProbabilitySum
from jax_models.model.entry import TokenDropout
from jax_models.model.position import PowerTerm
from tests.architecture import small_model
from tests.bounds.influence.expect import refused

PAD, OTHERS = 3, (0, 1, 2)
SHAPE = {"num_heads": 2, "d_model": 8, "d_ff": 12, "vocab_size": 4, "dtype": "float64"}
CASES = {
    "softmax": {},
    "causal": {"mask": "future", "layer_norm": "pre"},
    "what is behind": {"mask": "past", "layer_norm": "post"},
    "window": {"window": 3},
    "hard": {"weighting": "leftmost_hard"},
    "average": {"weighting": "average_hard"},
}
LENGTHS = (7, 4, 1)


def padded(case=None, num_layers=2):
    shape = {**SHAPE, "num_layers": num_layers, "num_classes": 4}
    model = small_model(3, **shape, **(case or {}))
    return dataclasses.replace(model, padding=jm.Padding(PAD), substitutable=OTHERS)


def batch():
    """Sequences of different lengths, filled up behind their ends [b, n]."""
    tokens = np.random.default_rng(4).integers(0, 3, (len(LENGTHS), max(LENGTHS)))
    for row, length in zip(tokens, LENGTHS, strict=True):
        row[length:] = PAD
    return tokens


def largest_difference(model):
    """Of rows and logits of a batch from those of each sequence alone."""
    both = lambda model, x: (jm.apply(model, x), jm.apply_logits(model, x))
    found = jax.jit(jax.vmap(both, (None, 0)))(model, batch())
    return max(
        np.abs(rows[k, :length] - np.asarray(one)).max()
        for k, length in enumerate(LENGTHS)
        for rows, one in zip(found, both(model, batch()[k, :length]), strict=True)
    )


def test_padding_is_not_shared_out_over_devices():
    mesh, model = jm.device_mesh(2), padded(CASES["causal"])
    message = (
        "^tokens end with padding, which is not shared out over devices; leave it out$"
    )
    with refused(message):
        jm.apply(model, batch()[1], mesh=mesh)
    whole = batch()[0]  # what has none is
    shared = np.asarray(jm.apply(model, whole, mesh=mesh))
    assert np.abs(shared - np.asarray(jm.apply(model, whole))).max() < 1e-13


@pytest.mark.parametrize("name", CASES)
def test_rows_of_a_batch_are_those_of_each_sequence_alone(name):
    assert largest_difference(padded(CASES[name])) < 1e-13


def test_padding_that_is_seen_is_caught():
    model = dataclasses.replace(padded(num_layers=1), padding=None)
    assert largest_difference(model) > 1e-3


def test_masked_tokens_are_counted_without_padding():
    """What ESM-2 scales embeddings by."""
    dropout = TokenDropout(2, 0.12)
    model = dataclasses.replace(padded(), token_dropout=dropout)
    assert largest_difference(model) < 1e-13
    unseen = dataclasses.replace(model, padding=None)
    assert largest_difference(unseen) > 1e-3


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("exhaustive", "activation"),
        ("incremental", "pooled"),
        ("screened", "activation"),
        ("lumped", "logits"),
    ],
)
def test_influences_are_those_without_the_padding(method, target):
    model = dataclasses.replace(padded(), pooling=jm.Pooling())
    tokens = batch()[1]
    found, alone = (
        bounds.compute_influence(
            model, x, method=method, target=target, rounding="none"
        )
        for x in (tokens, tokens[:4])
    )
    np.testing.assert_array_equal(found.upper, alone.upper)
    assert np.isnan(np.asarray(found.upper)[:, PAD]).all()
    assert found.query == 3


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"symbols": [[0]] * 7}, "the P = 4 positions"),
        ({"query": 5}, "query = 5 is out of range for n = 4"),
        ({"positions": [4]}, r"positions\[0\] = 4"),
        ({"target": LogProbabilitySum((0,), (6,))}, "at lists row 6"),
    ],
)
def test_what_counts_the_padding_is_told_of_it(asked, said):
    with refused(f"{said}.*the padding, the last 3 of the "):
        bounds.compute_influence(padded(), batch()[1], **asked)
    with pytest.raises(jm.InputError, match=said) as caught:
        bounds.compute_influence(padded(), batch()[1, :4], **asked)
    assert "padding" not in str(caught.value)


@pytest.mark.parametrize("tokens", [[0, 3, 1], [3, 1, 2]])
def test_padding_in_front_of_a_token_is_one_line(tokens):
    for call in (jm.apply, bounds.compute_influence):
        with refused("behind the last token"):
            call(padded(), tokens)


def test_methods_that_follow_every_symbol_refuse_by_name():
    with refused("3 is padding"):
        bounds.certify_influence(padded(), [0, 1, 2])


def test_the_supremum_puts_no_padding_at_the_query():
    model = padded({"position": None})
    found = bounds.supremum(model, 4)
    assert PAD not in np.asarray(found.tokens)


def warmed():
    plain = dataclasses.replace(padded(), padding=None)
    return jm.with_temperature(plain, jm.InverseLogTemperature(1.0))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"padding": jm.Padding(9)}, "symbols are 0 to 3"),
        ({"padding": jm.Padding(2)}, "no token to put in"),
        ({"substitutable": None}, "no token to put in"),
        (
            {"position": jm.Coordinates((PowerTerm(0, length_power=-1.0),))},
            "goes with n",
        ),
        ({"layers": warmed().layers}, "goes with n"),
    ],
)
def test_bad_paddings_are_one_line(changes, said):
    with refused(said):
        jm.apply(dataclasses.replace(padded(), **changes), [0, 1])


def test_what_is_no_symbol_is_one_line():
    with refused("padding = -1"):
        jm.Padding(-1)
