"""The comparison with PyTorch: times are compared only of equal answers."""

import numpy as np
import pytest

from benchmarks import torch_peer
from bounds.influence import compute_influence
from tests.benchmarks.settings import ONCE

CONFIG = {**ONCE, "layers": 1, "n": 6, **torch_peer.SIZES}
CONFIG |= {"batch": 4, "alone": 2, "threads": 1}
SECONDS = {"batched_seconds": 4.0, "alone_seconds": 8.0, "forward_seconds": 1.0}


@pytest.fixture(autouse=True)
def parsed_flags():
    """The flags have their defaults, as after an empty command line."""
    torch_peer.FLAGS.mark_as_parsed()


@pytest.fixture
def answer(monkeypatch):
    """Lets the peer answer with the definition, off by a factor."""

    def off_by(factor):
        def ask(python, script, question, limit):
            model = torch_peer.random_model(CONFIG)
            found = compute_influence(model, question["tokens"], method="exhaustive")
            assert found.lower is not None
            middle = (found.lower + found.upper) / 2
            values = middle[question["positions"], question["symbols"]]
            more = {"threads": 1, "torch": "none", "alone_timed": 2}
            return {"influence": (factor * values).tolist(), **SECONDS, **more}

        monkeypatch.setattr(torch_peer, "ask_peer", ask)

    return off_by


def test_times_are_compared_where_the_answers_agree(answer):
    answer(1.0)
    row = torch_peer.measure(CONFIG)
    assert row["difference"] < 1e-12
    assert row["alone_speedup"] == 8.0 / row["incremental_seconds"]
    assert len(torch_peer.line(CONFIG, row)) == len(torch_peer.HEAD)
    answer(1 + 2e-9)
    with pytest.raises(RuntimeError, match=r"differ by (2|1\.9)"):
        torch_peer.measure(CONFIG)


def test_a_peer_that_fails_is_an_error(monkeypatch):
    failure = {"error": "MemoryError"}
    monkeypatch.setattr(torch_peer, "ask_peer", lambda *_: failure)
    with pytest.raises(torch_peer.InputError, match="n = 6: MemoryError"):
        torch_peer.measure(CONFIG)


def test_the_loop_is_the_definition():
    torch = pytest.importorskip("torch")
    from benchmarks import torch_loop

    model = torch_peer.random_model(CONFIG)
    tokens = torch_peer.random_tokens(CONFIG)
    request = torch_peer.build_request(model, tokens)
    where = request.position, request.symbol
    asked = torch_peer.question(request, CONFIG)
    archive = {name: torch.tensor(np.asarray(value)) for name, value in asked.items()}
    archive |= {"num_layers": 1, "query": 5}
    positions, symbols = (torch.tensor(one).long() for one in where)
    found = torch_loop.influences(archive, positions, symbols, 4)
    expected = compute_influence(model, tokens).lower
    assert expected is not None
    np.testing.assert_allclose(found, expected[where], rtol=1e-9)


def test_rows_are_of_the_version_that_was_asked(monkeypatch):
    monkeypatch.setattr(torch_peer, "missing_packages", lambda *_: None)
    for version in ("2.1", "2.2"):
        monkeypatch.setattr(torch_peer, "package_version", lambda *_, v=version: v)
        assert {cell["torch"] for cell in torch_peer.cells()} == {version}
