"""Method flags become one value; an option of another method is an error that names it."""

import dataclasses

import pytest

import bounds
from bounds.cli.main import COMMANDS
from bounds.cli.shared.subject import read_method
from tests.bounds.influence.expect import refused


def read(*given):
    (influence,) = (one for one in COMMANDS if one.name == "influence")
    return read_method(influence.read(given))


@pytest.mark.parametrize(
    ("given", "method"),
    [
        ([], "auto"),
        (["--method=partial"], "partial"),
        (["--method=screened"], bounds.Screened()),
        (["--method=screened", "--rtol=0.1", "--budget=0"], bounds.Screened(0.1, None)),
        (["--precision=bfloat16"], bounds.Incremental("bfloat16")),
        (["--propose=float32"], bounds.Proposed("float32")),
        (
            ["--propose=float16", "--method=partial"],
            bounds.Proposed("float16", "partial"),
        ),
    ],
    ids=str,
)
def test_flags_make_the_value(given, method):
    assert read(*given) == method


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (["--rtol=0.1"], "rtol"),
        (["--rtol=0"], "rtol"),  # its default
        (["--budget=5", "--method=partial"], "budget"),
        (["--budget=32", "--method=screened", "--propose=float32"], "budget"),
        (["--precision=float16", "--method=exhaustive"], "precision"),
        (["--precision=float16", "--propose=float32"], "precision"),
    ],
    ids=str,
)
def test_an_option_of_another_method_is_refused(given, name):
    with refused(f"--{name} is of --method="):
        read(*given)


def test_defaults_are_those_of_the_methods():
    (influence,) = (one for one in COMMANDS if one.name == "influence")
    options = influence.read([])
    for method in (bounds.Screened(), bounds.Incremental()):
        for field in dataclasses.fields(method):
            assert getattr(options, field.name) == getattr(method, field.name)
