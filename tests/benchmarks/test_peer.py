"""What another interpreter is asked, and what becomes of its failures."""

import sys

import numpy as np
import pytest

from benchmarks.peer import ask_peer, missing_packages


@pytest.fixture
def script(tmp_path):
    """Writes a script that the peer runs."""

    def write(text):
        path = tmp_path / "part.py"
        path.write_text(f"import json, sys, time\nimport numpy as np\n{text}")
        return path

    return write


def test_the_answer_is_the_last_line(script):
    part = script(
        "x = np.load(sys.argv[1])['x']\nprint('so')\nprint(json.dumps(x.sum()))"
    )
    assert ask_peer(sys.executable, part, {"x": np.arange(4.0)}, 60) == 6.0


@pytest.mark.parametrize(
    ("text", "seconds", "error"),
    [
        ("raise ValueError('no such thing')", 60, "ValueError: no such thing"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", 60, "exit code -9"),
        ("time.sleep(60)", 0.2, "more than 0 seconds"),
    ],
    ids=["error", "killed", "slow"],
)
def test_a_failure_is_its_last_line_an_exit_code_or_the_limit(
    script, text, seconds, error
):
    assert ask_peer(sys.executable, script(text), {}, seconds) == {"error": error}


def test_what_an_interpreter_lacks_is_named(tmp_path):
    assert missing_packages(sys.executable, "json, numpy") is None
    assert missing_packages("false", "json") == "exit code 1"
    reason = missing_packages(sys.executable, "json, no_such_package")
    assert reason is not None
    assert "no_such_package" in reason
    nowhere = str(tmp_path / "python")
    reason = missing_packages(nowhere, "json")
    assert reason is not None
    assert reason.startswith(nowhere)
