"""Whoever ends the program is answered in one line, at any moment; it starts lightly."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bounds.cli.start import keeps
from bounds.store.results import ResultStore

SIGNALS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
LINUX = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="/proc tells which signals are heard"
)
# Deep in a function of C that no signal ends.
DEEP = """
import hashlib
from bounds.cli import start
start.PATIENCE = 0.1
start.listen()
for _ in range(2):
    try:
        hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
    except KeyboardInterrupt:  # which came before
        pass
"""


@pytest.fixture
def start():
    """Starts programs that hear signals by then, and ends what is left of them."""
    programs = []

    def begin(*arguments):
        # Whoever is started in the background has interrupts ignored.
        command = ["env", "--default-signal=INT", sys.executable, *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        programs.append(program := subprocess.Popen(command, **pipes))
        while True:
            told = Path(f"/proc/{program.pid}/status").read_text()
            (caught,) = (x.split()[1] for x in told.splitlines() if "SigCgt" in x)
            hears = int(caught, 16) >> (signal.SIGTERM - 1) & 1
            if hears or program.poll() is not None:
                return program
            time.sleep(0.01)

    yield begin
    for program in programs:
        program.kill()
        program.communicate()


@LINUX
@pytest.mark.parametrize("number", SIGNALS)
def test_while_libraries_are_loaded_a_signal_ends_the_program_at_once(start, number):
    # An exception in the start of an extension is an ImportError there, or a crash.
    code = (
        "import os, signal; from bounds.cli import start; start.RUN.loading = True; "
        f"start.listen()\ntry: os.kill(os.getpid(), {int(number)})\n"
        "except BaseException: raise ImportError"
    )
    program = start("-c", code)
    _, error = program.communicate(timeout=60)
    assert program.returncode == 128 + number
    assert error.startswith(f"attention-bounds: {SIGNALS[number]}; no part was")
    assert error.count("\n") == 1


@LINUX
@pytest.mark.parametrize("number", SIGNALS)
def test_from_the_first_moment_a_signal_is_one_line(start, tmp_path, number):
    program = start("-m", "bounds", "curve", f"--out={tmp_path / 'out'}")
    program.send_signal(number)  # JAX is not loaded yet
    said, error = program.communicate(timeout=120)
    assert program.returncode == 128 + number
    assert error == (
        f"attention-bounds: {SIGNALS[number]}; no part was finished, and the same "
        "command begins it again\n"
    )
    assert said == ""


@LINUX
@pytest.mark.parametrize("number", SIGNALS)
def test_a_program_deep_in_a_compiler_is_ended_too(start, number):
    program = start("-c", DEEP)
    program.send_signal(number)
    _, error = program.communicate(timeout=120)
    assert program.returncode == 128 + number
    assert error.count("\n") == 1
    assert SIGNALS[number] in error


def test_only_what_this_run_kept_is_gone_on_from(tmp_path):
    began = time.time()
    assert not keeps(tmp_path / "none", began)
    with ResultStore(tmp_path / "results.sqlite") as store:
        assert not keeps(tmp_path, began)
        store.record_failure({"command": "c", "n": 1}, "refused", 0.0)
        assert not keeps(tmp_path, began)
        store.record({"command": "c", "n": 1}, {"x": 1}, 0.0)
        assert keeps(tmp_path, began)
    assert keeps(tmp_path, began)
    assert not keeps(tmp_path, time.time() + 1)


@pytest.mark.parametrize("name", ["checkpoint.safetensors", "screen-0123.npz"])
def test_a_checkpoint_is_a_part(tmp_path, name):
    (tmp_path / name).write_text("")
    written = (tmp_path / name).stat().st_mtime
    assert keeps(tmp_path, written)
    assert not keeps(tmp_path, written + 1)


def test_the_version_and_the_help_are_told_without_jax_or_numpy():
    code = (
        "import sys; from bounds.cli.main import main; main(['--version']); "
        "main(['--help']); main(['curve', '--help']); "
        "sys.exit('jax' in sys.modules or 'numpy' in sys.modules)"
    )
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONWARNINGS"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


@pytest.mark.parametrize("package", ["bounds", "jax_models"])
def test_a_package_loads_nothing_until_it_is_used_and_then_all(package):
    code = (
        f"import sys, {package} as p; assert 'jax' not in sys.modules; "
        "assert dir(p) == sorted(p.__all__); assert all(getattr(p, x) for x in p.__all__)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
