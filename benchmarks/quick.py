"""Runs the quick benchmarks and writes their rows and the page that shows them.

`make bench`: every script of the table in turn, each in a process of its own, with its
store in --out: what was measured before is not measured again, so that a run goes on where
it stopped, unless --fresh is given. When all have run, their rows replace those of the same
scripts in benchmarks/results/DEVICE.jsonl, and docs/benchmarks.md is made anew from the
files there. --only runs some scripts of the table, --dry_run prints the command lines.
"""

import dataclasses
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import flags

from benchmarks import pages
from benchmarks.device import file_stem
from benchmarks.flags import define_choices, define_platform
from benchmarks.script import FOLDER, Line, read_lines, run_program, write_lines
from jax_models import InputError


@dataclasses.dataclass(frozen=True)
class Quick:
    """A script with flags that make it quick; a script may stand in several entries.

    Attributes:
        script: A module of `benchmarks`.
        flags: As typed.
    """

    script: str
    flags: str = ""


# Each takes a minute or so on two quiet cores.
QUICK = (
    Quick(
        "influence_speed",
        "--layers=1 --lengths=1024,4096,16384 --budget=1 --exhaustive_to=1024",
    ),
    Quick(
        "influence_speed",
        "--layers=2 --lengths=256,1024,4096 --budget=1 --exhaustive_to=1024",
    ),
    Quick(
        "influence_speed",
        "--layers=2 --lengths=1024,4096 --query_factors=20 --budget=1 "
        "--exhaustive_to=1",
    ),
    Quick(
        "changed_rows",
        "--lengths=1024 --weightings=leftmost_hard,average_hard --masks=none",
    ),
    Quick("screening", "--lengths=512 --models=3@0.5"),
    Quick(
        "forward_pass", "--lengths=1024,4096,16384 --weightings=softmax,average_hard"
    ),
    Quick("scaling", "--axes='n at L=1,n at L=2,n at L=3' --budget=1"),
    Quick("scaling", "--axes=d,L,V-1 --doublings=2 --budget=1"),
    Quick("roofline", "--repeats=3 --budget=1"),
    Quick("torch_peer", "--lengths=128,256 --budget=1 --alone=32"),
    Quick("compile_and_check", "--budget=0.5"),
)


def scripts() -> tuple[str, ...]:
    """Returns the scripts of the table, each once, in order."""
    return tuple(dict.fromkeys(entry.script for entry in QUICK))


def run_entry(entry: Quick, lines: Path, extra: Sequence[str]) -> list[Line] | None:
    """Runs one script and returns its rows; None if it failed."""
    lines.unlink(missing_ok=True)
    command = [f"benchmarks.{entry.script}", *shlex.split(entry.flags), *extra]
    print(f"\npython -m {shlex.join(command)}", flush=True)
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", *command, f"--jsonl={lines}"])
    print(f"{entry.script}: {time.perf_counter() - start:.0f} s", flush=True)
    return list(read_lines(lines)) if done.returncode == 0 else None


def merge(
    old: Iterable[Line], new: Mapping[str, Sequence[Line]], order: Sequence[str]
) -> list[Line]:
    """Returns the old rows with those of rerun scripts replaced, in the scripts' order."""
    kept: dict[str, list[Line]] = {}
    for line in old:
        kept.setdefault(line["config"]["command"], []).append(line)
    found = kept | dict(new)
    by_hand = [name for name in found if name not in order]
    return [line for name in (*order, *by_hand) for line in found.get(name, ())]


def run_all(out: Path, only: Sequence[str], extra: Sequence[str]) -> bool:
    """Runs the table and writes rows and pages; returns whether no script failed."""
    new: dict[str, list[Line]] = {}
    failed: list[str] = []
    for k, entry in enumerate(QUICK):
        if only and entry.script not in only:
            continue
        folder = out / entry.script
        flags_of_all = [f"--out={folder}", *extra]
        lines = run_entry(entry, folder / f"rows-{k}.jsonl", flags_of_all)
        if lines is None:
            failed.append(entry.script)
        elif lines:  # none where it says that it was skipped
            new.setdefault(entry.script, []).extend(lines)
    # Half of a script's rows would hide that the other half is missing.
    new = {name: lines for name, lines in new.items() if name not in failed}
    devices = {line["config"]["device"] for lines in new.values() for line in lines}
    if len(devices) > 1:
        raise InputError(f"rows of one run come from {' and '.join(sorted(devices))}")
    for device in devices:
        file = FOLDER / f"{file_stem(device)}.jsonl"
        write_lines(file, merge(read_lines(file), new, scripts()))
        print(f"\nwrote {file}")
    for page in pages.write_pages():
        print(f"wrote {page}")
    if failed:
        print(f"failed: {', '.join(failed)}; their rows are as they were")
    return not failed


def define_flags() -> Any:
    """Returns the program's flags."""
    values = flags.FlagValues()
    common: dict[str, Any] = {"flag_values": values}
    flags.DEFINE_string("out", "results/bench", "folder of the stores", **common)
    flags.DEFINE_bool("fresh", False, "measure again what the stores hold", **common)
    define_platform(values)
    define_choices(values, "only", None, scripts(), "scripts of the table to run")
    flags.DEFINE_bool("dry_run", False, "print the command lines", **common)
    return values


FLAGS = define_flags()


def main() -> None:
    """Runs the quick benchmarks, or prints their command lines."""
    values = FLAGS
    if values.dry_run:
        for entry in QUICK:
            if not values.only or entry.script in values.only:
                print(f"python -m benchmarks.{entry.script} {entry.flags}")
        return
    extra = ["--fresh"] if values.fresh else []
    if values.platform is not None:
        extra.append(f"--platform={values.platform}")
    if not run_all(Path(values.out), values.only or (), extra):
        raise SystemExit(1)


if __name__ == "__main__":
    run_program(FLAGS, main)
