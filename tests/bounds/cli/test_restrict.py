"""`restrict` finds a pair with a certificate, and checks certificates from files."""

import json
from pathlib import Path

import numpy as np
import pytest

import jax_models as jm
from bounds import read_store
from bounds.restriction import search
from tests.bounds.cli.outputs import read_json

OUT = Path("results/restrict")
SHAPE = ("--num_layers=2", "--num_heads=2", "--d_model=8", "--d_ff=8", "--mask=none")
QUICK = ("--length=10", "--attempts=1")


def test_it_finds_a_pair_and_accepts_its_own_file_alone(run, tmp_path):
    found = run("restrict", *SHAPE, *QUICK).done()
    record = read_json(OUT / "certificate.json")
    assert record["verified"] is True
    assert record["free"] == record["rho"].count(-1) > 0
    assert record["log2_misclassified"] == record["free"] - 1
    assert sorted(record["members"]) == [False, True]
    assert [sum(tokens) % 2 == 0 for tokens in record["pair"]] == record["members"]
    assert {"versions", "device", "flags", "seed", "seconds"} <= record.keys()
    assert f"2^{record['free']} completions" in found.out
    assert (OUT / "restriction.png").stat().st_size > 1000

    path = OUT / "certificate.json"
    checked = run("restrict", *SHAPE, f"--verify={path}").done()
    assert "is accepted" in checked.out

    # What the certificate is about may be said, nothing else.
    run("restrict", *SHAPE, f"--verify={path}", f"--length={record['n']}", "--query=-1")
    for flag in ("--length=99", "--language=dyck2", "--language=none", "--query=0"):
        other = run("restrict", *SHAPE, f"--verify={path}", flag)
        other.assert_refused(f"{flag}, but certificate {path} has ")

    # A bit of the restriction turned, and the same file under another model.
    record["output"][0] += 1
    (tmp_path / "forged.json").write_text(json.dumps(record))
    run("restrict", *SHAPE, "--verify=forged.json").assert_refused("rejected")
    other = run("restrict", *SHAPE, "--seed=1", f"--verify={path}")
    other.assert_refused("another model")


def test_a_finished_part_is_not_done_again(run, monkeypatch):
    run("restrict", *SHAPE, *QUICK).done()
    before = read_json(OUT / "certificate.json")

    def no_search(*arguments, **options):
        raise AssertionError("searched again")

    monkeypatch.setattr(search.Search, "_fix_from", no_search)
    picture = OUT / "restriction.png"
    drawn = picture.read_bytes()
    picture.unlink()
    run("restrict", *SHAPE, *QUICK).done()
    # The searches' own seconds count though another run took them.
    assert read_json(OUT / "certificate.json") == before
    took = read_store(OUT / "results.sqlite").column("seconds").sum()
    assert before["seconds"] == pytest.approx(took)
    assert picture.read_bytes() == drawn
    # Of longer inputs lines could not be read.
    monkeypatch.setattr("bounds.cli.restrict.LEGIBLE", 2)
    picture.unlink()
    assert "restriction.png" not in run("restrict", *SHAPE, *QUICK).out
    assert not picture.exists()
    with pytest.raises(AssertionError, match="searched again"):
        run("restrict", *SHAPE, *QUICK, "--fresh")


def test_a_model_file_and_a_pre_restriction_are_read(run, tmp_path):
    jm.save(jm.build_preset("ones", dtype="float64"), tmp_path / "ones.safetensors")
    np.save(tmp_path / "given.npy", np.array([1, 1, -1, -1, -1, -1, -1, 0]))
    flags = ["--length=8", "--language=none", "--pre_restriction=given.npy"]
    run("restrict", "--model=ones.safetensors", *flags).done()
    record = read_json(OUT / "certificate.json")
    assert record["rho"][:2] == [1, 1]
    assert record["rho"][-1] == 0
    # The query holds a 0, and so does whichever position its head attends to.
    assert record["free"] == 5
    assert record["pair"] is record["language"] is None
    assert record["mode"] == "exact"
