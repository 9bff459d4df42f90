"""What sentence-transformers write beside a model: modules and how rows are pooled."""

import json
import shutil

import numpy as np
import pytest

import bounds
import jax_models as jm
from jax_models.format.config import FORMATS, decode_config
from tests.jax_models.format.pretrained.folders import FIXTURES

pytestmark = pytest.mark.usefixtures("quick_compilation")
MODES = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "lasttoken")


def modules(*kinds):
    """Those of a list, with the types of older and newer versions."""
    paths = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    return [
        {
            "idx": at,
            "name": str(at),
            "path": paths.get(kind, f"{at}_{kind}"),
            "type": f"sentence_transformers.models.{kind}",
        }
        for at, kind in enumerate(kinds)
    ]


@pytest.fixture
def write(tmp_path):
    """Writes a folder of BERT with modules and modes; returns it."""
    folder = tmp_path / "folder"
    shutil.copytree(FIXTURES / "bert", folder)

    def written(listed, *on, width=16):
        if listed is not None:
            (folder / "modules.json").write_text(json.dumps(listed))
        if on:
            (folder / "1_Pooling").mkdir()
            modes = {f"pooling_mode_{mode}": mode in on for mode in MODES}
            asked = {"word_embedding_dimension": width, "include_prompt": True} | modes
            (folder / "1_Pooling" / "config.json").write_text(json.dumps(asked))
        return folder

    return written


@pytest.mark.parametrize(
    ("kinds", "mode", "expected"),
    [
        (("Transformer", "Pooling"), "mean_tokens", jm.Pooling()),
        (("Transformer", "Pooling"), "cls_token", jm.Pooling("first")),
        (
            ("Transformer", "Pooling", "Normalize"),
            "lasttoken",
            jm.Pooling("last", True),
        ),
        (None, "mean_tokens", jm.Pooling()),
        (("Transformer",), None, None),
        (None, None, None),
    ],
)
def test_the_pooling_is_the_folders(write, kinds, mode, expected, tmp_path):
    listed = None if kinds is None else modules(*kinds)
    model = jm.from_pretrained(write(listed, *([mode] if mode else [])))
    assert model.pooling == expected
    path = tmp_path / "model.safetensors"
    jm.save(model, path)
    assert jm.load(path).pooling == expected


def test_influences_on_it_are_those_of_the_pooled_rows(write):
    folder = write(modules("Transformer", "Pooling", "Normalize"), "mean_tokens")
    model = jm.from_pretrained(folder, dtype="float64")
    tokens = np.arange(5, 11)

    def pooled(x):
        mean = np.asarray(jm.apply(model, x)).mean(axis=0)
        return mean / np.linalg.norm(mean)

    found = bounds.compute_influence(model, tokens, target="pooled", symbols=[7, 3])
    for i, old in enumerate(tokens):
        for symbol in {7, 3} - {int(old)}:
            changed = tokens.copy()
            changed[i] = symbol
            moved = np.linalg.norm(pooled(changed) - pooled(tokens))
            assert moved > 1e-3
            assert found.lower[i, symbol] - 1e-14 <= moved
            assert moved <= found.upper[i, symbol] + 1e-14


@pytest.mark.parametrize(
    ("listed", "on", "said"),
    [
        (modules("Transformer", "Pooling"), ["max_tokens"], "pooling_mode_max_tokens"),
        (None, ["mean_tokens", "cls_token"], "pooling_mode_cls_token and pooling_mode"),
        (
            modules("Transformer", "Pooling"),
            [],
            "names a pooling, and there is no file",
        ),
        (modules("Transformer", "Pooling", "Dense"), ["mean_tokens"], "Pooling, Dense"),
        (modules("Pooling", "Transformer"), ["mean_tokens"], "lists Pooling"),
        ({"a": 1}, ["mean_tokens"], "expected modules"),
        ([{"path": ""}], ["mean_tokens"], "expected modules"),
    ],
)
def test_what_is_not_read_is_said_in_one_line(write, listed, on, said):
    with pytest.raises(jm.InputError, match=said) as caught:
        jm.from_pretrained(write(listed, *on))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("width", [8, "16", None])
def test_a_pooling_of_rows_of_another_width_is_refused(write, width):
    said = f"word_embedding_dimension in .* is {width!r}, and the model's rows have 16"
    with pytest.raises(jm.InputError, match=said) as caught:
        jm.from_pretrained(write(None, "mean_tokens", width=width))
    assert "\n" not in str(caught.value)


def test_version_1_does_not_have_it():
    config = {"layers": [], "pooling": {"kind": "mean"}, "format": FORMATS[0]}
    with pytest.raises(jm.InputError, match="does not have"):
        decode_config(config)
    assert decode_config(config | {"format": FORMATS[1]})["pooling"] == jm.Pooling()
    with pytest.raises(jm.InputError, match=r"pooling.kind = 'max'"):
        decode_config(config | {"format": FORMATS[1], "pooling": {"kind": "max"}})


def test_a_pooling_that_is_no_json_is_said(write):
    folder = write(None, "mean_tokens")
    (folder / "1_Pooling" / "config.json").write_text("{")
    with pytest.raises(jm.InputError, match="is not JSON"):
        jm.from_pretrained(folder)
