"""Malformed certificates: a reason or one clear error, never another exception."""

import copy
import dataclasses
import json

import numpy as np
import pytest

import jax_models as jm
from bounds.restriction import check_certificate, read_certificate
from tests.bounds.restriction.drawn_models import integer_model, real_model
from tests.bounds.restriction.enumerated import certified, changed, forged


@pytest.fixture(scope="module")
def case():
    model = integer_model(0, num_layers=1)
    return model, certified(model, 0)[1]


def test_a_missing_entry_is_named(case):
    model, certificate = case
    for key in certificate:
        mutant = {name: value for name, value in certificate.items() if name != key}
        found = check_certificate(model, mutant)
        assert not found.accepted
        assert repr(key) in found.reasons[0]


def leaves(value, path=()):
    """The paths of all entries, containers too."""
    yield path
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from leaves(entry, (*path, key))
    elif isinstance(value, list):
        for at, entry in enumerate(value):
            yield from leaves(entry, (*path, at))


def replaced(certificate, path, value):
    mutant = copy.deepcopy(certificate)
    place = mutant
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return mutant


STRANGE = [-7, 10**30, 1.5, "x", True, [], {}, [[]], {"0": 1}, float("nan"), 10**400]


def test_strange_values_anywhere_are_rejected(case):
    model, certificate = case
    generator = np.random.default_rng(0)
    tried = 0
    for path in list(leaves(certificate))[1:]:
        for value in STRANGE:
            # Every entry by itself, and a third of the deep ones.
            if len(path) > 2 and generator.random() > 1 / 3:
                continue
            mutant = replaced(certificate, path, value)
            if repr(mutant) == repr(certificate):
                continue
            tried += 1
            found = check_certificate(model, mutant)
            assert not found.accepted, (path, value)
            assert all(len(reason) < 400 for reason in found.reasons)
    assert tried > 300


def test_a_certificate_is_read_as_it_was_written(case, tmp_path):
    model, certificate = case
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(certificate))
    assert read_certificate(path) == certificate
    assert check_certificate(model, read_certificate(path)).accepted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[1]", "is no certificate of a restriction: its format is"),
        ('{"format": 3}', "its format is 3; expected 'attention-bounds"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_a_file_that_is_no_certificate_is_refused(tmp_path, text, message):
    path = tmp_path / "certificate.json"
    path.write_text(text)
    with pytest.raises(jm.InputError, match=message):
        read_certificate(path)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(jm.InputError, match="does not exist"):
        read_certificate(tmp_path / "none.json")


def test_a_model_that_certificates_are_not_of_is_refused(case):
    model, certificate = case
    with pytest.raises(jm.InputError, match="layer 0 has softmax attention"):
        check_certificate(jm.with_weighting(model, "softmax"), certificate)
    with pytest.raises(jm.InputError, match="float32; certificates are of float64"):
        check_certificate(jm.with_dtype(model, "float32"), certificate)
    # No row sees the padding, which the tables would count.
    padded = dataclasses.replace(model, padding=jm.Padding(2), substitutable=(0, 1))
    with pytest.raises(
        jm.InputError, match=r"cannot follow the model: .* 2 is padding"
    ):
        check_certificate(padded, certificate)


def test_the_entry_that_is_wrong_is_named(case):
    model, certificate = case
    (layer,), two = certificate["layers"], {"H": 2, "tie": "L", "mask": "none"}
    key = "malformed: layers[0] has the key '04'; expected a position, 0 to 4"
    for entries, message in (
        ({"n": 10**5000}, "malformed: n = a number of thousands of digits"),
        ({"layers": [{**layer, "04": layer["4"]}]}, key),
        ({"symbols": [0, 3]}, "symbols has the token 3; the last is 2"),
        ({"symbols": [1, 1]}, "expected two different tokens"),
        ({"rho": [*certificate["rho"][:-1], 3]}, "rho has the token 3"),
        ({"rho": certificate["rho"][1:]}, "rho has 4 entries; expected 5"),
        ({"H": 3}, "H = 3 in layer 0; the model has 2"),
        ({"mask": "past"}, "mask = 'past' in layer 0; the model has 'none'"),
        ({"L": 2, "layers": [layer] * 2, **two}, "the model has 1"),
    ):
        (reason,) = check_certificate(model, changed(certificate, **entries)).reasons
        assert message in reason


def test_a_length_beyond_the_position_table_is_a_reason():
    model = real_model(0, num_layers=1, max_length=4)
    longer = real_model(0, num_layers=1, max_length=5)
    certificate = certified(longer, 0)[1]
    found = check_certificate(model, forged(certificate, model))
    assert not found.accepted
    assert "beyond the model's position table" in found.reasons[0]
