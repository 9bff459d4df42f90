"""Bad values for the flags of every command: one clear line each, and no traceback.

Tables of values, huge counts, devices and pipes crossed with flags, of which a seeded part
is tried; a value that is good for a flag may end with 0, on a small enough case.
"""

import os
import random
import signal

import pytest

import jax_models as jm
from bounds.cli.main import COMMANDS
from bounds.cli.shared.options import fields_of
from bounds.cli.shared.swept import BATCHED
from bounds.restriction import find_counterexample
from bounds.store.output import write_json
from tests.bounds.cli.outputs import EVERY

VALUES = [
    *("", " ", "abc", "nan", "inf", "-inf", "-1", "0", "1.5", "1e400", "-0", "0x10"),
    *(str(n) for n in (10**12, 10**19, 2**31, 2**63 - 1, 2**64, -(10**30), 10**400)),
    *(",", "1,,2", "4,3", "1:2", "1:2:3:4", "4:2:3", "::", "a=b", "=", "{", "[" * 9999),
    *("é", os.fsdecode(b"\xff"), "x" * 300),
    *"../.. /dev/null /nonexistent/a . power:1:2:3 inverse_log:0".split(),
    *"constant softmax,hard 0,0 true None".split(),
]
# In the place of files: pipes that nobody writes to, and what has no end.
SPECIAL = "pipe pipe.json pipe.npy zero.toml zero.npy folder /dev/zero".split()
# Where work ends only when it is stopped, or the machine is set up for more.
ENDLESS = (
    "num_inputs max_seconds restarts rounds budget coordinator num_processes process_id "
    "num_devices platform scheduler local_workers count batch_size num_layers num_heads"
).split()
SECONDS = 20


def bad_commands(count, seed=0):
    """Commands, each with one flag of a value out of the table, in a seeded order."""
    found = []
    for command in COMMANDS.values():
        for name in fields_of(command.options):
            for value in VALUES:
                large = value.isdecimal() and int(value) > 10**9
                if name == "out" or (
                    name in ENDLESS and large and command.name != "model"
                ):
                    continue
                found.append((command.name, name, value))
    random.Random(seed).shuffle(found)
    return found[:count]


def huge_counts_and_special_files(count, seed=0):
    """Commands with a count beyond 32 bits, or no regular file in the place of one."""
    found = []
    for command in COMMANDS.values():
        for name, one in fields_of(command.options).items():
            if one.kind is int and not one.is_list:
                found += [
                    (command.name, name, str(n)) for n in (2**31, 10**23, 10**400)
                ]
            elif one.kind is str and not (one.words or one.is_list or name == "out"):
                found += [(command.name, name, file) for file in SPECIAL]
    random.Random(seed).shuffle(found)
    return found[:count]


# Flags of which two or more contradict one another, whatever else is given.
CONTRADICTIONS = [
    "--model=none --preset=first", "--preset=first --mask=none", "--preset=first --d_ff=4",
    "--model=none --num_layers=2", "--model=none --c=2", "--preset=random --c=2",
    "--preset=ones --head=none", "--head=none", "--tokens=none --text=none",
    "--tokens=none --language=parity", "--text=none --num_inputs=2",
    "--tokens=none --sequence=A", "--fasta=none --smiles=none", "--symbols=0 --candidates=a",
    "--undefok=none", "--undefok=none --none=1", "--flagfile=none", "--target=loss:own",
    "--target=log_odds:own,next", "--verify=certificate.json --length=9",
    "--verify=certificate.json --language=dyck2", "--verify=certificate.json --query=0",
    "--at=1 --temperature=1", "--x=bogus", "--y=bogus", "--out=file", "--out=file/below",
]  # fmt: skip


def contradictory_commands(count, seed=0):
    """Commands with flags that contradict one another, sweeps of them too, in any order."""
    draw, found = random.Random(seed), []
    for command in COMMANDS.values():
        known = {*fields_of(command.options), "undefok", "flagfile", "none", "out"}
        for clash in CONTRADICTIONS:
            names = {flag.lstrip("-").partition("=")[0] for flag in clash.split()}
            if names - {"temperature"} <= known and command.name != "import":
                # What the base has of the flags is no part of the contradiction.
                kept = ("--sweep", "--command", "--lengths", "--formula")
                base = [x for x in EVERY[command.name] if x.startswith(kept)]
                given = [*base, *draw.sample(clash.split(), len(names))]
                found.append((command.name, given))
                swept = command.name in BATCHED and "--verify" not in clash
                if swept and not names & {"out", "target", "symbols", "at"}:
                    swept = (
                        f"--command={command.name} --dry_run --sweep=seed=1,2 {clash}"
                    )
                    found.append(("batch", swept.split()))
    draw.shuffle(found)
    return found[:count]


class Rang(BaseException):
    """The time is over: no error that a command may report as its own."""


def ring(number, frame):
    raise Rang(f"no word after {SECONDS} s")


@pytest.mark.slow
@pytest.mark.parametrize("make", [bad_commands, huge_counts_and_special_files])
def test_every_bad_flag_is_one_line_and_no_traceback(run, tmp_path, make):
    count, faults, refused = int(os.environ.get("FUZZ_COMMANDS", "600")), [], 0
    (tmp_path / "folder").mkdir()
    for name in SPECIAL[:3]:
        os.mkfifo(tmp_path / name)
    for name in ("zero.toml", "zero.npy", "folder/config.json"):
        (tmp_path / name).symlink_to("/dev/zero")
    signal.signal(signal.SIGALRM, ring)
    for command, name, value in make(count):
        # Another of the same name stands first, and the last one counts.
        signal.alarm(SECONDS)
        try:
            ended = run(command, *EVERY[command], f"--{name}={value}")
        except BaseException as error:
            faults.append((command, name, value[:40], repr(error)[:200]))
            continue
        finally:
            signal.alarm(0)
        lines = ended.err.count("\n")
        said = ended.err.startswith("attention-bounds: ") and len(ended.err) < 1500
        refused += ended.code == 1
        if ended.code not in (0, 1) or (ended.code == 1 and not (lines == 1 and said)):
            faults.append((command, name, value[:40], ended.code, ended.err[:200]))
    print(f"{count} commands, {refused} refused, {len(faults)} at fault")
    assert not faults, "\n".join(map(str, faults))
    assert refused > count / 2


def test_every_contradiction_is_one_line_before_anything_is_computed(run, tmp_path):
    (tmp_path / "file").write_text("")
    model = jm.build_preset("anbn_one_layer", dtype="float64")
    found = find_counterexample(model, 6, "parity")
    write_json(tmp_path / "certificate.json", found.certificate)
    faults = []
    commands = contradictory_commands(int(os.environ.get("FUZZ_PAIRS", "400")))
    for command, given in commands:
        ended = run(command, *given)
        if ended.code != 1 or ended.err.count("\n") != 1 or "Traceback" in ended.err:
            faults.append((command, given, ended.code, ended.err[:200]))
        names = [flag.lstrip("-").partition("=")[0] for flag in given]
        if not any(name in ended.err for name in names):
            faults.append((command, given, "names none of the flags", ended.err[:200]))
    print(f"{len(commands)} contradictions, {len(faults)} at fault")
    assert not faults, "\n".join(map(str, faults))
    assert len(commands) > 100
