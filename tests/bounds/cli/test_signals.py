"""Whoever ends the program is answered in one line, at any moment; it starts lightly."""

import functools
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bounds.cli.main import main
from bounds.influence.blocks.prefetch import prefetch
from bounds.store.results import MemoryResults
from bounds.store.sweep import Cell, finish_cells, found_rows
from jax_models import interrupt
from tests.bounds.cli.outputs import EVERY, RUNS

SIGNALS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
LINUX = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="/proc tells which signals are heard"
)
# Deep in a function of C that no signal ends.
DEEP = """
import hashlib
from bounds.cli import signals
signals.PATIENCE = {patience}
signals.listen()
hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
"""
# The program with a command of its own, {work}, and what ends its interpreter, {last}.
WORKING = """
import atexit, ctypes, gc, os, sys, types
{last}
from bounds.__main__ import console
from bounds.cli import main
from jax_models.interrupt import raise_requested
from bounds.cli.shared.options import Group

def work(options):
    {work}

command = types.SimpleNamespace(
    name="work",
    load=lambda: None,
    read=lambda arguments: Group(),
    plan=work,
)
main.COMMANDS, sys.argv = dict(work=command), ["attention-bounds", "work"]
console()
"""
# A signal within a garbage collection, whose callbacks can raise nothing.
COLLECTED = """
    def end(phase, info):
        gc.callbacks.remove(end)
        os.kill(os.getpid(), {number})
        for _ in range(1000): pass
    gc.callbacks.append(end)
    gc.collect()
    while True: raise_requested()
"""
# Threads at work, as those of a compiler, crash a process whose interpreter ends.
CRASH = "atexit.register(os.abort)"
# C's own list of what runs last, behind the interpreter.
RAISED_LAST = """
c = ctypes.CDLL(None)
c.__cxa_atexit(getattr(c, "raise"), ctypes.c_void_p({number}), None)
"""
# Commands that work in parts.
PARTS = {**RUNS, "train": EVERY["train"]}


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


def each_signal(test):
    return LINUX(pytest.mark.parametrize("number", SIGNALS)(test))


def assert_ended(program, number):
    """The signal ended the program with its code and one line, and nothing else was said."""
    said, error = program.communicate(timeout=120)
    assert program.returncode == 128 + number
    assert error.startswith(f"attention-bounds: {SIGNALS[number]}; the same command")
    assert (error.count("\n"), said) == (1, "")


@each_signal
def test_while_libraries_are_loaded_a_signal_ends_the_program_at_once(start, number):
    # An exception in the start of an extension is an ImportError there, or a crash.
    code = (
        "import os, signal; from bounds.cli import signals; signals.RUN.loading = True; "
        f"signals.listen()\ntry: os.kill(os.getpid(), {int(number)})\n"
        "except BaseException: raise ImportError"
    )
    assert_ended(start("-c", code), number)


@each_signal
def test_from_the_first_moment_a_signal_is_one_line(start, tmp_path, number):
    program = start("-m", "bounds", "curve", f"--out={tmp_path / 'out'}")
    program.send_signal(number)  # JAX is not loaded yet
    assert_ended(program, number)


@each_signal
@pytest.mark.parametrize(("patience", "signals"), [(0.1, 1), (1000, 2)])
def test_a_program_deep_in_a_compiler_is_ended_too(start, number, patience, signals):
    program = start("-c", DEEP.format(patience=patience))
    for _ in range(signals):
        program.send_signal(number)
        time.sleep(0.3)
    assert_ended(program, number)


@each_signal
def test_a_signal_where_nothing_can_be_raised_ends_the_work_in_one_line(start, number):
    work = COLLECTED.format(number=int(number))
    assert_ended(start("-c", WORKING.format(work=work, last=CRASH)), number)


@each_signal
@pytest.mark.parametrize("when", ["after the work", "behind the interpreter"])
def test_a_signal_that_comes_when_all_is_done_changes_nothing(start, number, when):
    work, last = "return", RAISED_LAST.format(number=int(number))
    if when == "after the work":
        work = f"atexit.register(os.kill, os.getpid(), {int(number)})"
        last = ""
    program = start("-c", WORKING.format(work=work, last=last))
    _, error = program.communicate(timeout=120)
    assert (program.returncode, error) == (0, "")


@pytest.mark.parametrize("name", PARTS)
def test_every_command_of_many_parts_reads_a_request(
    tmp_path, monkeypatch, capsys, name
):
    monkeypatch.setattr(interrupt, "_requests", [signal.SIGTERM])
    arguments = [name, *PARTS[name], f"--out={tmp_path / name}"]
    assert main(arguments) == 128 + signal.SIGTERM
    error = capsys.readouterr().err
    assert error.startswith("attention-bounds: terminated; ")
    assert error.count("\n") == 1
    names = {x.suffix for x in (tmp_path / name).iterdir()}
    assert not names & {".json", ".csv", ".png"}


def test_a_request_lets_what_is_finished_be_kept(monkeypatch):
    results, finished = MemoryResults(), []

    def compute(n):
        finished.append(n)
        if n == 1:
            interrupt._requests.append(signal.SIGINT)
        return {"n": n}

    monkeypatch.setattr(interrupt, "_requests", [])
    cells = [
        Cell({"command": "c", "n": n}, "", functools.partial(compute, n))
        for n in range(3)
    ]
    with pytest.raises(KeyboardInterrupt):
        finish_cells(results, cells)
    assert finished == [0, 1]
    assert found_rows(results, cells) == [{"n": 0}, {"n": 1}]


def test_a_request_ends_blocks_between_two_of_them(monkeypatch):
    begun = []

    def calls():
        for k in range(9):
            if k == 5:
                interrupt._requests.append(signal.SIGINT)
            yield functools.partial(begun.append, k)

    monkeypatch.setattr(interrupt, "_requests", [])
    with pytest.raises(KeyboardInterrupt):
        list(prefetch(calls(), 2))
    assert sorted(begun) == list(range(5))


def test_another_thread_leaves_a_request_to_the_main_one(monkeypatch):
    monkeypatch.setattr(interrupt, "_requests", [signal.SIGTERM])
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(interrupt.raise_requested).result() is None
    with pytest.raises(interrupt.Terminated):
        interrupt.raise_requested()


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
