"""`influence` reads a checkpoint's folder and texts, and speaks of symbols by their names."""

import json
import re
import warnings
from typing import Any

import numpy as np
import pytest
import tokenizers

import jax_models as jm
from bounds import compute_influence, read_store
from bounds.cli.influence import InfluenceOptions
from bounds.cli.shared.input_source import read_given
from bounds.influence import (
    LogitDifference,
    LogOdds,
    LogProbability,
    LogProbabilitySum,
    Loss,
)
from bounds.influence.targets.table import number_symbol, parse_target
from tests.bounds.cli.outputs import (
    NAMES,
    OUT,
    QUICK,
    SPECIAL,
    assert_found,
    record,
    rows,
    tokens_of,
)

pytestmark = pytest.mark.usefixtures("no_figures")

FASTA = ">heavy chain\nac\nf G\n\n>light\nMNKL\n"


def test_a_sequence_is_asked_about_as_its_tokens_without_special_symbols(ask, folder):
    result = ask("--sequence=ACDE", "--query=2").done()
    tokens, model = tokens_of("ACDE"), jm.from_pretrained(folder, dtype="float64")
    letters = [k for k, name in enumerate(NAMES) if name not in SPECIAL]
    asked = {"query": 2, "symbols": letters, "positions": range(1, 5)}
    found: Any = compute_influence(model, tokens, rounding="none", **asked)
    assert len(rows()) == found.substitutions == 3 * 14
    for row in rows():
        position, symbol = int(row["position"]), int(row["symbol"])
        expected = found.upper[position, symbol]
        assert float(row["upper"]) == pytest.approx(expected, rel=1e-9)
        assert row["wild_type"] == NAMES[tokens[position]]
        assert row["symbol_name"] == NAMES[symbol]
    at, to = found.position, found.symbol
    assert (record()["position"], record()["symbol"]) == (at, to)
    assert record()["wild_type"] == NAMES[tokens[at]]
    assert record()["symbol_name"] == NAMES[to]
    said = f"at position {at} ({NAMES[tokens[at]]}), symbol {to} ({NAMES[to]}), on the "
    assert f"{said}output at position 2 (C)" in result.out


def test_a_folder_is_what_import_makes_of_it(run, ask, folder):
    ask("--sequence=ACDE", "--head=none")
    first, cells = record(), read_store(OUT / "results.sqlite")
    run("import", f"--folder={folder}", "--dtype=float64", "--head=none")
    model = "--model=results/import/model.safetensors"
    names = f"--tokenizer={folder}"
    assert run("influence", model, names, *QUICK, "--sequence=ACDE").code == 0
    assert record()["model_sha256"] == first["model_sha256"]
    assert record()["max"] == first["max"]
    assert read_store(OUT / "results.sqlite") == cells  # nothing was computed anew
    # The model's file has the special symbols: without names the question is the same.
    np.save("tokens.npy", tokens_of("ACDE"))
    assert run("influence", model, "--tokens=tokens.npy", *QUICK).code == 0
    assert read_store(OUT / "results.sqlite") == cells
    assert "wild_type" not in rows()[0]


@pytest.mark.parametrize(
    ("flag", "content", "number", "letters"),
    [
        ("fasta", FASTA, 0, "AcFG"),  # c is a symbol of its own
        ("fasta", FASTA, 1, "MNKL"),
        ("smiles", "C(c) name\n\nCCCc\n", 0, "C(c)"),
        ("smiles", "C(c) name\n\nCCCc\n", 1, "CCCc"),
        ("text", "A CDE\n", 0, "ACDE"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*lower-case")
def test_files_hold_what_is_asked_about(flag, content, number, letters, folder):
    file = folder / "file"
    file.write_text(content)
    given = {flag: str(file), "tokenizer": str(folder)}
    options = InfluenceOptions(**given, input=number)
    found = read_given(options, None).sequences[number]
    assert list(found) == tokens_of(letters)


ENDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PAIRS = ["<unk>", "<mask>", "Ap", "Cv", "D#", "El", "aa"]
# The names of each vocabulary, the one of a mask among them, and how it is stored.
VOCABULARIES = {
    "letters": [*ENDS, *"ACDEFGHIKLMNPQRSTVWY"],
    "small letters": [*ENDS, *"acgt"],
    "pairs": PAIRS,
    "words": [*ENDS, "the", "cat", "##s", ","],
}
# A text, and its symbols by name or the place of the letter that is refused; how many
# letters are raised, and how many words are unknown.
READ = [
    ("letters", "MKTAYIAK", list("MKTAYIAK"), 0, 0),
    ("letters", "MKTayIAK", list("MKTAYIAK"), 2, 0),
    ("letters", "MK[MASK]ayIAK", ["M", "K", "[MASK]", *"AYIAK"], 2, 0),
    ("letters", "\ufeffMKT", list("MKT"), 0, 0),
    ("letters", "MKT*AYIAK-", 4, 0, 0),
    ("letters", "mkXA", 3, 0, 0),
    ("letters", "MK<mask>A", 3, 0, 0),
    ("letters", "MK\u200bA", 3, 0, 0),
    ("small letters", "acgtta", list("acgtta"), 0, 0),
    ("small letters", "ac[MASK]g", ["a", "c", "[MASK]", "g"], 0, 0),
    ("small letters", "acNg", 3, 0, 0),
    ("small letters", "\ufeffacAg", 3, 0, 0),
    ("pairs", "ApCvD#El", ["Ap", "Cv", "D#", "El"], 0, 0),
    ("pairs", "\ufeffAp<mask>aaEl", ["Ap", "<mask>", "aa", "El"], 0, 0),
    ("pairs", "ApXvD#", 3, 0, 0),
    ("pairs", "apCv", 1, 0, 0),
    ("words", "the,cats", ["the", ",", "cat", "##s"], 0, 0),
    ("words", "the,[MASK],dog", ["the", ",", "[MASK]", ",", "[UNK]"], 0, 1),
    ("words", "\ufeffDog,The", ["[UNK]", ",", "[UNK]"], 0, 2),
]


def vocabulary(kind, place):
    """A tokenizer of that kind, and its names."""
    names = VOCABULARIES[kind]
    if kind != "pairs":
        (place / "vocab.txt").write_text("\n".join(names))
        cased = {"do_lower_case": False}
        (place / "tokenizer_config.json").write_text(json.dumps(cased))
        return place, names
    core = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({x: k for k, x in enumerate(names)}, "<unk>")
    )
    cut = tokenizers.Regex("..")
    core.pre_tokenizer = tokenizers.pre_tokenizers.Split(cut, "isolated")
    core.add_special_tokens(["<unk>", "<mask>"])
    core.save(str(place / "tokenizer.json"))
    return place, names


def entrances(path, text):
    """Every way that a text comes in: its name, and what reads it."""

    def command(name, value):
        options = InfluenceOptions(**{name: str(value)}, tokenizer=str(path))
        given = read_given(options, None)
        return given.sequences[0]

    (path / "text").write_text(f"{text}\n", encoding="utf-8")
    mark, letters = text[: text.startswith("\ufeff")], text.removeprefix("\ufeff")
    (path / "fasta").write_text(f"{mark}>one\n{letters}\n", encoding="utf-8")
    yield "encode", lambda: jm.read_tokenizer(path).encode(text)
    yield "sequence", lambda: command("sequence", text)
    for name in ("text", "fasta"):
        yield name, lambda name=name: command(name, path / name)


@pytest.mark.parametrize(("kind", "text", "expected", "raised", "unknown"), READ)
def test_a_text_is_read_alike_wherever_it_comes_in(
    kind, text, expected, raised, unknown, tmp_path
):
    path, names = vocabulary(kind, tmp_path)
    for entrance, read in entrances(path, text):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                found = [names[x] for x in read()]
                found = [x for x in found if x not in ("[CLS]", "[SEP]")]
            except jm.InputError as error:
                found = int(re.findall(r"at place (\d+) is not in", str(error))[0])
        assert found == expected, entrance
        lines = [str(one.message) for one in said]
        counts = {"letters": raised, "words": unknown}
        wanted = {what: count for what, count in counts.items() if count}
        pattern = r": (\d+) (?:lower-case )?(letters|words)\W"
        assert {w: int(k) for x in lines for k, w in re.findall(pattern, x)} == wanted
        assert len(lines) == len(wanted)


def test_of_molecules_no_letter_is_raised(tmp_path):
    path, _ = vocabulary("letters", tmp_path)
    (path / "smiles").write_text("Cc\n")
    options = InfluenceOptions(smiles=str(path / "smiles"), tokenizer=str(path))
    with pytest.raises(jm.InputError, match="molecule 0: 'c' at place 2 is not in"):
        read_given(options, None)


def test_a_file_has_one_line_for_all_letters_that_are_raised(ask, tmp_path):
    (tmp_path / "file").write_text(">a\nacde\n>b\nACDE\n>c\nee\n")
    asked = ask("--fasta=file", "--input=1", "--dry_run")
    line = "file: 5 lower-case letters, which the vocabulary lacks, read as upper case"
    assert (asked.code, asked.err) == (0, f"warning: {line}\n")


TARGETS = {
    "log_probabilities": "log_probabilities",
    "log_probability:C": LogProbability(6),
    "log_probability:6": LogProbability(6),
    "loss:[MASK]": Loss(4),
    "logit_difference:A:7": LogitDifference(5, 7),
    "log_odds:A,C,D": LogOdds((5, 6, 7)),
    "log_odds:A,C:1e-10": LogOdds((5, 6), 1e-10),
}


@pytest.mark.parametrize("text", TARGETS)
def test_a_target_is_named_by_its_symbols(text, folder):
    tokenizer = jm.read_tokenizer(folder)
    found = parse_target(text, lambda name: number_symbol(name, tokenizer, ""))
    assert found == TARGETS[text]


def test_what_is_watched_is_the_target(ask, folder):
    assert ask("--sequence=ACDE", "--query=2", "--target=log_probability:C").code == 0
    at = {"query": 2, "symbols": range(5, 20), "positions": [1, 3, 4]}
    assert_found(folder, "ACDE", target=LogProbability(6), **at)
    # By number it is the same question, and another for another symbol.
    ask("--sequence=ACDE", "--query=2", "--target=log_probability:6")
    assert len(read_store(OUT / "results.sqlite")) == 1
    ask("--sequence=ACDE", "--query=2", "--target=log_probability:E")
    assert len(read_store(OUT / "results.sqlite")) == 2


SUMS = {
    "own": LogProbabilitySum((5, 6, 7), (1, 2, 3)),
    "own:3": LogProbabilitySum((7,), (3,)),
    "next": LogProbabilitySum((5, 6, 7), (0, 1, 2)),
    "next:2": LogProbabilitySum((7,), (2,)),
    "A,7": LogProbabilitySum((5, 7), (0, 1)),
    "A,C:3": LogProbabilitySum((5, 6), (3, 4)),
}


@pytest.mark.parametrize("text", SUMS)
def test_a_sum_of_log_probabilities_is_of_listed_symbols_or_the_inputs(
    text, ask, folder
):
    result = ask("--sequence=ACD", f"--target=log_probability_sum:{text}").done()
    at = {"symbols": range(5, 20), "positions": [1, 2, 3]}
    assert_found(folder, "ACD", target=SUMS[text], **at)
    said = f"on the log-probabilities of {len(SUMS[text].symbols)} rows, summed"
    assert said in result.out
