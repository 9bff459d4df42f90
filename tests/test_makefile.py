"""What `make test` and `.ci/run` give to the programs that they start."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[1]
OPTION = "--xla_cpu_use_fusion_emitters=false"
OTHER = "--xla_cpu_parallel_codegen_split_count=1"
# What a `make test` above this one was given is not meant for it.
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("MAKE", "MFLAGS", "XLA_"))
}


def make(*arguments):
    done = subprocess.run(
        ["make", *arguments],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout.splitlines()


@pytest.fixture
def made(tmp_path):
    """Run `make test` in an environment whose Python says which options it was given."""
    (tmp_path / "bin").mkdir()
    for stamp in ("runtime.stamp", "tools.stamp"):
        (tmp_path / stamp).touch()
    python = tmp_path / "bin" / "python"

    def write(*known):
        """Install a jaxlib that dies, as XLA does, of an option that it does not know."""
        (tmp_path / "asked").write_text("")
        python.write_text(
            f"#!{sys.executable}\n"
            "import os, sys\n"
            "options = os.environ.get('XLA_FLAGS', '').split()\n"
            f"if sys.argv[1] == '-c': open({str(tmp_path / 'asked')!r}, 'a').write('.')\n"
            f"if set(options) - {set(known)!r}: sys.exit(134)\n"
            "if sys.argv[1] == '-m': print('options:', *options)\n"
        )
        python.chmod(0o755)

    def run(*arguments):
        lines = make("--silent", "test", f"VENV={tmp_path}", *arguments)
        told = [line for line in lines if "options:" in line]
        return told, len((tmp_path / "asked").read_text())

    return SimpleNamespace(install=write, test=run)


@pytest.mark.parametrize("known", [[], [OPTION], [OTHER], [OPTION, OTHER]], ids=str)
def test_a_jaxlib_is_given_the_options_that_it_knows_and_asked_once(made, known):
    made.install(*known)
    assert made.test() == ([" ".join(["options:", *known])], 2)
    assert made.test() == ([" ".join(["options:", *known])], 2)


def test_another_jaxlib_is_asked_anew(made, tmp_path):
    made.install()
    assert made.test() == (["options:"], 2)
    made.install(OPTION)
    folder = tmp_path / "lib" / "python3" / "site-packages" / "jaxlib-9.dist-info"
    folder.mkdir(parents=True)
    stamp = (tmp_path / "quick.stamp").stat().st_mtime
    os.utime(folder, (stamp + 1, stamp + 1))
    assert made.test() == ([f"options: {OPTION}"], 2)


def test_options_given_by_hand_take_the_place_of_the_found_ones(made):
    made.install(OPTION, "--other")
    assert made.test("XLA_QUICK=")[0] == ["options:"]
    assert made.test("XLA_QUICK=--other")[0] == ["options: --other"]


def test_continuous_integration_first_says_what_it_runs_on(made):
    plan = [line.split("-m ")[1] for line in make("-n", "check") if "-m " in line]
    steps = [line.split()[0] for line in plan]
    assert steps.index("benchmarks.device") < steps.index("pytest")


def test_long_tests_alone_check_shapes():
    (long,) = [line for line in make("-n", "test-long") if '-m "long' in line]
    assert "CHECK_SHAPES=1" in long
    assert not [line for line in make("-n", "test") if "CHECK_SHAPES" in line]
