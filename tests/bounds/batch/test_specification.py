"""A sweep is read alike from a command line, from TOML and from JSON."""

import itertools
import json

import pytest

from bounds.batch.specification import (
    Specification,
    read_specification,
    read_sweep,
)
from jax_models import InputError
from jax_models.arguments import SPEC_BYTES

FIXED = {"bounds": "none", "layer_norm": "pre", "include_query": "true", "d_ff": "8"}
SWEEP = {"weighting": ("softmax", "average_hard"), "lengths": ("16", "16,32")}
TOML = """
command = "curve"
[fixed]
bounds = "none"
layer_norm = "pre"
include_query = true
d_ff = 8
[sweep]
weighting = ["softmax", "average_hard"]
lengths = [16, [16, 32]]
"""


def test_all_forms_say_the_same(tmp_path):
    typed = read_sweep(["weighting=softmax,average_hard", "lengths=16;16,32"])
    assert typed == SWEEP
    (tmp_path / "a.toml").write_text(TOML)
    held = {"bounds": "none", "layer_norm": "pre", "include_query": True, "d_ff": 8}
    swept = {"weighting": ["softmax", "average_hard"], "lengths": [16, [16, 32]]}
    text = json.dumps({"command": "curve", "fixed": held, "sweep": swept})
    (tmp_path / "a.json").write_text(text)
    for name in ("a.toml", "a.json"):
        read = read_specification(str(tmp_path / name))
        assert read == Specification("curve", FIXED, SWEEP)


def test_the_cells_are_the_cross_product_with_the_last_flag_fastest():
    cells = list(Specification("curve", FIXED, SWEEP).cells())
    assert [tuple(cell.values()) for cell in cells] == list(
        itertools.product(*SWEEP.values())
    )
    assert list(Specification("curve", FIXED, {}).cells()) == [{}]


@pytest.mark.parametrize(
    ("sweep", "complaint"),
    [
        (["=8"], "--sweep =8: expected flag=a,b,c"),
        (["seed"], "--sweep seed: expected flag=a,b,c"),
        (["seed="], "--sweep seed: a value is empty"),
        (["seed=1,,2"], "--sweep seed: a value is empty"),
        (["seed=1,2,1"], "--sweep seed: the value 1 is named twice"),
        (["seed=1", "seed=2"], "seed is swept twice"),
    ],
)
def test_a_bad_assignment_is_named(sweep, complaint):
    with pytest.raises(InputError, match=complaint):
        Specification("curve", {}, read_sweep(sweep))


def test_a_flag_is_fixed_or_swept():
    with pytest.raises(InputError, match="--seed is both fixed and swept"):
        Specification("curve", {"seed": "1"}, {"seed": ("1", "2")})


def test_a_product_beyond_measure_is_refused():
    many = tuple(str(k) for k in range(400))
    with pytest.raises(InputError, match="160000 cells"):
        Specification("curve", {}, {"seed": many, "d_model": many})


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        (
            "a.yaml",
            "command: curve",
            r"^--spec=\S+: expected a file ending in \.toml or",
        ),
        ("a.json", '{"sweep": {"p": [0.2], "p": [0.3]}}', "'p' stands twice"),
        ("a.json", "[" * 10**5, "cannot be read"),
        ("a.toml", "a = " + "[" * 10**5, "cannot be read"),
        ("a.toml", "command = ", "cannot be read"),
        *(
            (f"a.{end}", " " * (SPEC_BYTES + 1), "has more than 1048576 bytes")
            for end in ("toml", "json")
        ),
        *(
            ("a.toml", text, "a key of more than 16 parts")
            for text in (
                ".".join(["a"] * 20_000) + " = 1",
                "[" + " . ".join(["a"] * 20_000) + "]",
                "x = {" + ".".join(['"a b"'] * 100) + " = 1}",
                'x = {b = "\\"", ' + "a." * 17 + 'a = 1, c = "x"}',
                "'a b'" + ".'a.b'" * 16 + " = 1",
            )
        ),
        ("a.json", "{", "cannot be read"),
        ("a.json", "[]", "is list; expected an object with command, fixed, sweep"),
        ("a.json", "{}", "command = None"),
        ("a.json", '{"command": "curve", "sweeps": {}}', "unknown key 'sweeps'"),
        ("a.json", '{"command": "curve", "fixed": [1]}', "fixed = "),
        ("a.json", '{"command": "curve", "sweep": {"seed": 1}}', "sweep.seed = 1"),
        (
            "a.json",
            '{"command": "curve", "sweep": {"seed": []}}',
            "seed: a value is empty",
        ),
        ("a.json", '{"command": "curve", "fixed": {"c": null}}', "None of c"),
    ],
)
def test_a_bad_file_is_named_with_what_is_wrong(tmp_path, name, text, complaint):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=complaint) as caught:
        read_specification(str(tmp_path / name))
    assert name in str(caught.value)


def test_values_with_dots_are_no_keys(tmp_path):
    many = ", ".join(f"{k / 10}" for k in range(1, 40))
    text = f'command = "curve"\nfixed.out = "{".".join("a" * 40)}"\n'
    (tmp_path / "a.toml").write_text(f"{text}sweep.scale = [{many}]")
    assert len(read_specification(str(tmp_path / "a.toml")).sweep["scale"]) == 39
