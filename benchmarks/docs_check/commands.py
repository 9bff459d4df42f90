"""Command lines of the pages: whether they would be accepted, and what they print.

That a line would be accepted is found without running it: the flags of a command are
parsed, a benchmark is asked with `--only_check_args`, a make target and an extra are looked
up.
"""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

from bounds.cli.main import COMMANDS
from jax_models.errors import InputError

ROOT = Path(__file__).resolve().parents[2]


def environment() -> dict[str, str]:
    """Returns the environment of programs, in which this checkout is imported."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "MPLBACKEND": "agg"}


def refusal(command: str) -> str | None:
    """Returns the reason why a command line would not be accepted, or None."""
    match shlex.split(command):
        case (
            ["attention-bounds", "--version" | "--help"]
            | ["python", "-m", "venv", _]
            | ["source", ".venv/bin/activate"]
        ):
            return None
        case ["attention-bounds", name, *arguments]:
            return _flag_refusal(name, arguments)
        case ["python", "-m", "bounds", name, *arguments]:
            return _flag_refusal(name, arguments)
        case ["python", "-m", module, *arguments]:
            return _module_refusal(module, arguments)
        case ["python", "-c", code]:
            return _code_refusal(code)
        case ["make", *arguments]:
            return _make_refusal(arguments)
        case ["pip", "install", *packages]:
            return _extra_refusal(packages)
    return "this is no command of the project"


def _flag_refusal(name: str, arguments: list[str]) -> str | None:
    command = COMMANDS.get(name)
    if command is None:
        return f"there is no command {name}"
    if {"--help", "-h"} & set(arguments):
        return None
    try:
        command.read(arguments)
    except InputError as error:
        refusal = " ".join(str(error).split())
        # The page itself writes the file that brings further flags.
        return None if refusal.endswith("does not exist") else refusal
    return None


def _make_refusal(arguments: list[str]) -> str | None:
    """Reason for missing targets, or for FLAGS that a target's program refuses."""
    makefile = (ROOT / "Makefile").read_text()
    rules = re.findall(r"(?m)^([a-z-]+):", makefile)
    targets = [one for one in arguments if "=" not in one]
    missing = [one for one in targets if one not in rules]
    if missing:
        return f"the Makefile has no target {missing[0]}"
    given = dict(one.split("=", 1) for one in arguments if "=" in one).get("FLAGS")
    for target in targets if given else ():
        recipe = rf"(?m)^{target}:.*\n\t\$\(BIN\)/(.*) \$\(FLAGS\)$"
        if (found := re.search(recipe, makefile)) and (
            wrong := refusal(f"{found[1]} {given}")
        ):
            return wrong
    return None


def _module_refusal(module: str, arguments: list[str]) -> str | None:
    """Reason why `python -m module` would fail; runs only programs with absl flags."""
    place = ROOT / module.replace(".", "/")
    files = [place.with_suffix(".py"), place / "__main__.py"]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        return f"there is no module {module}"
    if not re.search(r"\b(app\.run|run_script|run_program)\(", file.read_text()):
        return f"{module} has no flags" if arguments else None
    line = [sys.executable, "-m", module, *arguments, "--only_check_args"]
    done = subprocess.run(
        line, cwd=ROOT, env=environment(), capture_output=True, text=True
    )
    return None if done.returncode == 0 else _last_line(done.stderr)


def _code_refusal(code: str) -> str | None:
    try:
        compile(code, "-c", "exec")
    except SyntaxError as error:
        return str(error)
    return None


def _extra_refusal(packages: list[str]) -> str | None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [package for package in packages if not package.startswith("-")]
    for package in names:
        found = re.fullmatch(rf"({project['name']}|\.)(?:\[(\w+(?:,\w+)*)\])?", package)
        if found is None:
            return f"{package} is not this distribution"
        for extra in filter(None, (found[2] or "").split(",")):
            if extra not in project["optional-dependencies"]:
                return f"there is no extra {extra}"
    return None


def run(command: str, folder: Path, seconds: float) -> subprocess.CompletedProcess[str]:
    """Runs a command line in a folder; returns its exit code and output."""
    match shlex.split(command):
        case ["attention-bounds", *arguments]:
            line = [sys.executable, "-m", "bounds", *arguments]
        case ["python", *arguments]:
            line = [sys.executable, *arguments]
        case other:
            line = other
    return subprocess.run(
        line,
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
    )


def printed(done: subprocess.CompletedProcess[str]) -> str:
    """Returns a command's output, or a failed command's errors without the program's name."""
    if done.returncode == 0:
        return done.stdout
    return re.sub(r"(?m)^attention-bounds: ", "", done.stderr)


def complaint(done: subprocess.CompletedProcess[str]) -> str:
    """Returns the exit code and the last error line of a failed command."""
    return f"exit code {done.returncode}: {_last_line(done.stderr)}"


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "nothing on standard error"
