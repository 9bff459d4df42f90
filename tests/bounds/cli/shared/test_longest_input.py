"""The longest input of a command is known before JAX starts, and never told too short."""

import os
import subprocess
import sys

import pytest

from bounds.batch.specification import Specification
from bounds.cli.main import COMMANDS
from bounds.cli.shared import platforms, swept
from bounds.cli.shared.platforms import longest_input
from jax_models.run import compiler

SAFE = compiler.SAFE_ROWS


def read(command, *arguments):
    found = COMMANDS[command]
    return found.read(arguments)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["curve"], 4096),
        (["curve", "--lengths=16,20001"], 20001),
        (["curve", "--lengths=16,20001", "--extend_to=1000000"], 20001),
        (["influence", "--length=20001"], 20001),
        (["supremum", "--length=100000"], 100000),
        (["influence", "--tokens=none.txt"], 0),
    ],
)
def test_lengths_are_read_off_the_flags(arguments, expected):
    assert longest_input(read(*arguments)) == expected


def test_files_and_texts_count_by_their_size(tmp_path):
    (tmp_path / "input").write_text("B" * (SAFE + 5))
    for flag in ("tokens", "text", "fasta", "smiles"):
        given = read("influence", "--length=8", f"--{flag}={tmp_path / 'input'}")
        assert longest_input(given) == SAFE + 5, flag
    assert longest_input(read("influence", f"--sequence={'é' * SAFE}")) == 2 * SAFE


@pytest.mark.parametrize(
    ("lengths", "flags", "expected"),
    [
        (["20001"], "", compiler.REMEDY),
        (["20001"], "--xla_cpu_max=1", f"--xla_cpu_max=1 {compiler.REMEDY}"),
        (["20001"], f"{compiler.OPTION}=-dot", f"{compiler.OPTION}=-dot"),
        (["64"], "", ""),
        (["8", "20001", "16"], "", compiler.REMEDY),
    ],
)
def test_the_option_is_set_for_long_inputs_alone(lengths, flags, expected, monkeypatch):
    monkeypatch.setattr(compiler, "is_affected", lambda: True)
    monkeypatch.setenv("XLA_FLAGS", flags)
    if len(lengths) == 1:
        platforms.avoid_miscompiling(read("influence", f"--length={lengths[0]}"))
    else:  # one long cell of a sweep decides before the first
        swept.make_cells(Specification("influence", {"d_ff": "4"}, {"length": lengths}))
    assert os.environ["XLA_FLAGS"] == expected


@pytest.mark.skipif(not compiler.is_affected(), reason="this jaxlib has no defect")
def test_a_command_sets_the_option_for_long_inputs_alone(tmp_path):
    code = (
        "import os, sys; from bounds.cli.main import main;"
        "code = main(sys.argv[1:]); print(os.environ['XLA_FLAGS'], file=sys.stderr);"
        "sys.exit(code)"
    )
    shape = "--num_layers=1 --num_heads=1 --d_model=2 --d_ff=2 --dry_run"
    done = subprocess.run(
        [sys.executable, "-c", code, "influence", *shape.split(), "--length=20001"],
        env={**os.environ, "XLA_FLAGS": ""},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stderr.splitlines()[-1] == compiler.REMEDY
