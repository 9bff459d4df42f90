"""A screen that is stopped at any moment goes on from where its checkpoint stands."""

import functools
import tempfile
from pathlib import Path

import numpy as np
import pytest

from bounds.influence import checkpoint
from bounds.influence.screening import ladder
from tests.bounds.influence import asking
from tests.bounds.influence.asking import Killed, resume
from tests.bounds.influence.expect import refused
from tests.bounds.influence.screening.test_ladder import TOKENS, small

BUDGET = 16
MODEL = small(scale=2.0, num_heads=1)
# Of what is refused: it compiles sooner.
SHALLOW = small(scale=2.0, num_heads=1, num_layers=2)


@pytest.fixture(autouse=True)
def setting(monkeypatch):
    """Two levels in blocks of 8, every standing kept, levels chosen without a clock."""
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN_SAVES", 0.0)
    monkeypatch.setattr(ladder, "MOST", 8)
    monkeypatch.setattr(ladder, "LADDER", ladder.LADDER[:2])
    monkeypatch.setattr(ladder, "_pays", lambda *arguments: True)


@pytest.fixture
def counted(monkeypatch):
    """What is screened and evaluated, and when to stop."""
    counts = {"blocks": 0, "evaluated": 0, "stop": np.inf}
    screen_block, keep = ladder.screen_block, ladder.Climb.keep

    def screen(*arguments, **options):
        counts["blocks"] += 1
        return screen_block(*arguments, **options)

    def one_batch(climb, count):
        keep(climb, count)
        counts["evaluated"] += count
        step(0, 0)

    def step(done, total):
        counts["stop"] -= 1
        if counts["stop"] < 0:
            raise Killed

    monkeypatch.setattr(ladder, "screen_block", screen)
    monkeypatch.setattr(ladder.Climb, "keep", one_batch)
    return counts, step


def ask(path=None, progress=None, model=MODEL, tokens=TOKENS, **question):
    """One screen that does not close before its budget is spent."""
    question = {"budget": BUDGET, "method": "screened", **question}
    return asking.ask(model, tokens, checkpoint=path, progress=progress, **question)


@functools.cache
def archive():
    """Bytes of the checkpoint of a shallow model."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "screen.npz"
        ask(path, model=SHALLOW)
        return path.read_bytes()


@pytest.fixture
def path(tmp_path):
    (tmp_path / "screen.npz").write_bytes(archive())
    return tmp_path / "screen.npz"


@pytest.mark.slow
def test_a_stopped_screen_ends_as_one_that_was_not(tmp_path, counted):
    counts, step = counted
    whole = ask()
    blocks, evaluated = counts["blocks"], counts["evaluated"]
    assert blocks > 8
    assert evaluated == BUDGET
    counts |= {"blocks": 0, "evaluated": 0}
    path = tmp_path / "screen.npz"

    def ask_on():
        counts["stop"] = 1
        return ask(path, step)

    found, stops = resume(ask_on)
    assert stops > 5
    # Blocks that were under way are lost, what was evaluated is not.
    assert counts["blocks"] <= blocks + (ladder.IN_FLIGHT + 1) * stops
    assert counts["evaluated"] == evaluated
    for name in ("lower", "upper"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name))
    assert (found.max, found.position) == (whole.max, whole.position)
    assert (found.evaluated, found.uncertified) == (whole.evaluated, whole.uncertified)
    sizes = [[(x.screened, x.left) for x in y.levels] for y in (found, whole)]
    assert sizes[0] == sizes[1]
    # A screen that is done is not done again.
    counts["stop"], blocks = np.inf, counts["blocks"]
    again = ask(path)
    assert counts["blocks"] == blocks
    assert again.max_upper == whole.max_upper


@pytest.mark.slow
def test_a_larger_budget_goes_on_from_a_smaller(tmp_path, counted):
    counts, _ = counted
    path = tmp_path / "screen.npz"
    first = ask(path)
    blocks = counts["blocks"]
    # What is next is told by the estimates, which are kept.
    some, whole = ask(path, budget=BUDGET + 4), ask(budget=BUDGET + 4)
    np.testing.assert_array_equal(some.lower, whole.lower)
    assert counts["blocks"] == 2 * blocks
    counts["evaluated"] -= BUDGET + 4
    blocks = counts["blocks"]
    further = ask(path, budget=100)
    assert first.uncertified > further.uncertified == 0
    assert counts["blocks"] == blocks
    assert further.evaluated == counts["evaluated"]


def test_the_checkpoint_of_another_question_is_refused(path):
    others = {
        "query": 3,
        "positions": [1, 2],
        "target": "logits",
        "tokens": TOKENS[::-1],
    }
    for name, other in others.items():
        with refused("of another question"):
            ask(path, model=SHALLOW, **{name: other})


def earlier(arrays):
    about = str(arrays["about"]).replace(checkpoint.FORMAT, "attention-bounds screen 1")
    return {k: v for k, v in arrays.items() if k != "estimate"} | {"about": about}


UNREADABLE = "no readable checkpoint"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *((x, UNREADABLE) for x in (b"", b"not an archive", b"PK\x03\x04 half of one")),
        (lambda x: {k: v for k, v in x.items() if k != "value"}, UNREADABLE),
        (lambda x: x | {"about": np.asarray("[1, 2]")}, UNREADABLE),
        (lambda x: x | {"about": np.asarray("null")}, UNREADABLE),
        (lambda x: x | {"lower": np.zeros(3)}, UNREADABLE),
        (earlier, "or version; name another file"),
    ],
)
def test_what_is_no_checkpoint_of_this_version_is_refused_and_stays(
    path, content, message
):
    if callable(content):
        with np.load(path) as file:
            np.savez(path, **content(dict(file)))
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    with refused(message):
        ask(path, model=SHALLOW)
    assert path.read_bytes() == before


def test_a_folder_that_is_not_there_is_named_at_once(tmp_path):
    with refused(r"there is no folder .*nowhere"):
        ask(tmp_path / "nowhere" / "screen.npz")


def test_differences_of_outputs_keep_their_radii_behind_a_checkpoint(
    tmp_path, monkeypatch
):
    """Enumerated by partial passes, which subtract; a finished run is asked again."""
    monkeypatch.setattr(ladder, "LADDER", ladder.LADDER[:1])
    monkeypatch.setattr(ladder, "MANY", 1)
    path = tmp_path / "screen.npz"
    found, again = (ask(path, budget=None, rounding="all") for _ in range(2))
    assert found.uncertified == 0
    np.testing.assert_array_equal(found.lower, again.lower)
    np.testing.assert_array_equal(found.upper, again.upper)
