"""`influence` puts in the symbols that `--symbols` and `--candidates` list."""

from pathlib import Path

import numpy as np
import pytest

import bounds
import jax_models as jm
from bounds import read_store
from bounds.store.output import sha256
from tests.bounds.cli.outputs import (
    NAMES,
    OUT,
    QUICK,
    assert_found,
    read_csv,
    record,
    rows,
    tokens_of,
)

pytestmark = pytest.mark.usefixtures("no_figures")


def pairs():
    """What was put where: names by position."""
    found = {}
    for row in rows():
        found.setdefault(int(row["position"]), []).append(row["symbol_name"])
    return found


def test_symbols_that_are_listed_are_put_in_everywhere(ask, folder):
    assert ask("--sequence=ACDE", "--query=2", "--symbols=C,7,[MASK]").code == 0
    every = ["[MASK]", "C", "D"]
    assert pairs() == {1: every, 3: every[:2], 4: every}
    assert_found(folder, "ACDE", query=2, symbols=[4, 6, 7], positions=range(1, 5))
    # Another list is another question, the same by number is not.
    ask("--sequence=ACDE", "--query=2", "--symbols=4,6,D")
    assert len(read_store(OUT / "results.sqlite")) == 1
    ask("--sequence=ACDE", "--query=2", "--symbols=4,6,E")
    assert len(read_store(OUT / "results.sqlite")) == 2


@pytest.mark.parametrize("name", ["file", "file.npy"])
def test_candidates_of_each_position_are_put_in_there(name, ask, monkeypatch):
    monkeypatch.setattr("bounds.influence.parts.part_sizes", lambda *given: (2, 2))
    # What is listed of a special symbol's position, or the query's, is not put there.
    if name == "file":
        Path(name).write_text("A\nC D\n\n5 D\nN\nA\n")
    else:
        filled = [[5, -1], [6, 7], [-1, -1], [-1, 5], [18, 18], [5, 6]]
        np.save(name, filled)
    flags = ["--sequence=ACDE", "--query=2", f"--candidates={name}"]
    assert ask(*flags).code == 0
    last = "N" if name == "file" else NAMES[18]
    assert pairs() == {1: ["C", "D"], 3: ["A"], 4: [last]}
    # Another list of a position is another question.
    before = len(read_store(OUT / "results.sqlite"))
    Path("other").write_text("A\nC D\n\n5 D\nA\nA\n")
    ask(*flags, "--candidates=other")
    assert len(read_store(OUT / "results.sqlite")) > before


def test_nothing_listed_is_nothing_substituted(ask):
    Path("file").write_text("\n" * 6)
    result = ask("--sequence=ACDE", "--candidates=file").done()
    assert "nothing can be substituted" in result.out


def test_without_a_tokenizer_symbols_are_numbers(ask):
    assert ask("--language=random", "--length=4", "--symbols=6,7").code == 0
    assert {row["symbol"] for row in rows()} == {"6", "7"}


def test_tokens_are_asked_about_without_their_padding(run, ask, folder):
    for name, tokens in (("full", [0, 5, 6, 2]), ("filled", [0, 5, 6, 2, 1, 1])):
        np.save(f"{name}.npy", tokens)
        assert ask(f"--tokens={name}.npy", "--symbols=7").code == 0
        assert (record()["n"], record()["query"]) == (4, 3)
    assert len(read_store(OUT / "results.sqlite")) == 1
    asked = ask("--tokens=filled.npy", "--length=5")
    asked.assert_refused("length n = 5 is more than the 4 tokens of input 0")
    np.save("between.npy", [0, 1, 5, 2])
    ask("--tokens=between.npy").assert_refused("stands at position 1 of 4")


def scanned():
    """The value of every cell of `scan.csv` that was replaced."""
    lines = [line for line in read_csv("scan") if line["value"] != ""]
    return {(int(x["position"]), int(x["symbol"])): float(x["value"]) for x in lines}


UNNAMED = "6 rows of the embedding have no name in"


@pytest.mark.parametrize("way", ["folder", "file", "bare", "tokens", "elsewhere"])
def test_python_and_every_command_have_one_default(way, run, folder):
    (folder / "vocab.txt").rename("vocab.txt")
    bare = jm.from_pretrained(folder, dtype="float64")  # of a folder without names
    (folder / "vocab.txt").write_text("\n".join(NAMES[:14]))
    with pytest.warns(match=UNNAMED):
        model = jm.from_pretrained(folder, dtype="float64")
    tokens = tokens_of("ACDE")
    np.save("tokens.npy", tokens)
    given = {
        "folder": [f"--model={folder}", "--sequence=ACDE"],
        "file": ["--model=file", f"--tokenizer={folder}", "--sequence=ACDE"],
        "tokens": ["--model=file", "--tokens=tokens.npy"],
        "elsewhere": [f"--model={folder}", "--tokenizer=vocab.txt", "--sequence=ACDE"],
        "bare": ["--model=file", f"--tokenizer={folder}", "--sequence=ACDE"],
    }[way]
    kept = bare if way == "bare" else model
    jm.save(kept, "file")
    if way == "elsewhere":
        (folder / "vocab.txt").rename("vocab.txt")
    found = bounds.scan(model, tokens, method="exhaustive", rounding="none")
    there = np.argwhere(~np.isnan(found.values))
    wanted = {(int(i), int(found.symbols[j])): found.values[i, j] for i, j in there}
    assert set(wanted) == {
        (i, s) for i in range(1, 5) for s in range(5, 14) if tokens[i] != s
    }
    asked = run("scan", *given, *QUICK)
    assert (asked.code, asked.err.count(UNNAMED)) == (0, way not in ("file", "tokens"))
    assert scanned().keys() == wanted.keys()
    np.testing.assert_allclose(
        [scanned()[cell] for cell in wanted], list(wanted.values()), rtol=1e-12
    )
    assert run("influence", *given, *QUICK).code == 0
    assert {(int(x["position"]), int(x["symbol"])) for x in rows()} == wanted.keys()
    assert record()["model_sha256"] == sha256(jm.model_bytes(kept))


def test_import_holds_what_python_does_and_says_how_many_rows_have_no_name(run, folder):
    (folder / "vocab.txt").rename("vocab.txt")
    Path("vocab.txt").write_text("\n".join(NAMES[:14]))
    flags = [f"--folder={folder}", "--tokenizer=vocab.txt", "--dtype=float64"]
    asked = run("import", *flags)
    assert (asked.code, asked.err.count("\n")) == (0, 1)
    assert asked.err.startswith(f"warning: {UNNAMED} 'vocab.txt': no text holds them")
    with pytest.warns(match=UNNAMED):
        model = jm.from_pretrained(folder, dtype="float64", tokenizer="vocab.txt")
    written = Path("results/import/model.safetensors").read_bytes()
    assert written == jm.model_bytes(model)
