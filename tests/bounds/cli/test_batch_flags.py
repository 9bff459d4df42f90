"""A sweep is the flags of `batch` and of its command."""

import json

import pytest

from bounds.batch.specification import Specification
from bounds.cli.batch import BatchOptions
from bounds.cli.main import COMMANDS

FLAGS = {
    "language": ("dyck2", "--language=dyck2"),
    "lengths": ("2,4", "--lengths=2,4"),
    "diagonal": ("false", "--nodiagonal"),
    "rows": ("2", "--rows=2"),
    "temperature": ("1,inverse_log:2", "--temperature=1,inverse_log:2"),
    "p": ("1e-05", "--p=1e-05"),
}


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("entropy", ("language", "lengths", "p")),
        ("scan", ("language", "diagonal", "rows")),
        ("curve", ("lengths", "temperature")),
    ],
)
def test_flags_beside_the_command_are_held_fixed_in_all_cells(tmp_path, command, names):
    typed = [FLAGS[name][1] for name in names]
    apart = [part for flag in typed for part in flag.split("=", 1)]
    given = {name: FLAGS[name][0] for name in names}
    expected = Specification(command, given, {"seed": ("1", "2")})
    fixed = {name: value for name, value in given.items() if name != names[0]}
    text = {"command": command, "fixed": fixed, "sweep": {"seed": [1, 2]}}
    (tmp_path / "a.json").write_text(json.dumps(text))
    for arguments in (
        [*typed, f"--command={command}", "--sweep=seed=1,2"],
        [*apart, "--command", command, "--sweep", "seed=1,2"],
        [f"--spec={tmp_path}/a.json", typed[0]],
    ):
        batch = COMMANDS["batch"]
        options = batch.read(arguments)
        assert isinstance(options, BatchOptions)
        assert options.specification() == expected
