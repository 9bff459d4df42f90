"""Platforms, devices and processes that flags name are taken, or it says what there is."""

import json
import socket
import subprocess
import sys

import jax
import pytest

from bounds.cli.main import COMMANDS, main
from bounds.cli.shared.options import fields_of
from jax_models.errors import InputError
from jax_models.run import processes
from jax_models.run.platform import require_platform

# Neither computes with JAX itself: `batch` hands the flag to its cells.
WITHOUT = {"depth", "batch"}
SMALL = ["influence", "--length=12", "--d_model=4", "--num_heads=1", "--d_ff=4"]


@pytest.fixture(autouse=True)
def forget_platforms():
    """Nothing is asked for after a test; JAX keeps the devices that it has."""
    yield
    jax.config.update("jax_platforms", None)


def test_every_command_that_computes_has_the_flag():
    have = {
        one.name for one in COMMANDS.values() if "platform" in fields_of(one.options)
    }
    assert have == COMMANDS.keys() - WITHOUT


def test_the_platform_that_is_named_is_taken_and_recorded(tmp_path):
    arguments = ["model", "--d_model=4", "--platform=cpu", f"--out={tmp_path}"]
    assert main(arguments) == 0
    record = json.loads((tmp_path / "model.json").read_text())
    assert record["device"].startswith("cpu")
    assert record["flags"]["platform"] == "cpu"
    assert record["matmul_precision"] == "highest"


@pytest.mark.parametrize(
    ("platform", "remedy"), [("gpu", "[cuda]"), ("cuda", "[cuda]"), ("tpu", "[tpu]")]
)
def test_one_that_is_missing_is_refused_in_one_line(tmp_path, capsys, platform, remedy):
    out = tmp_path / "out"
    assert main(["curve", f"--platform={platform}", f"--out={out}"]) == 1
    error = capsys.readouterr().err
    assert f"--platform={platform}: JAX has no such platform here" in error
    assert "only cpu" in error
    assert remedy in error
    assert error.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize("raised", [AssertionError(), RuntimeError("no libtpu")])
def test_what_jax_raises_where_a_platform_is_missing_is_told(monkeypatch, raised):
    def fail():
        raise raised

    monkeypatch.setattr(jax, "default_backend", fail)
    with pytest.raises(InputError, match="no such platform") as told:
        require_platform("tpu")
    assert str(raised) in str(told.value)


def test_a_process_that_computes_elsewhere_says_so(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with pytest.raises(InputError, match="this process computes on gpu already"):
        require_platform("cpu")


@pytest.mark.slow
@pytest.mark.parametrize("num_devices", [None, 2])
@pytest.mark.parametrize("platform", ["cpu", "gpu", "tpu"])
def test_a_process_of_its_own_takes_or_misses_a_platform(
    tmp_path, platform, num_devices
):
    arguments = ["--d_model=4", "--num_heads=1", "--d_ff=4", "--length=6"]
    if num_devices:
        arguments.append(f"--num_devices={num_devices}")
    arguments += [f"--platform={platform}", f"--out={tmp_path}/out"]
    done = subprocess.run(
        [sys.executable, "-m", "bounds", "influence", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if platform == "cpu":
        assert done.returncode == 0, done.stderr
        return
    assert done.returncode == 1
    assert done.stderr.startswith("attention-bounds: --platform=")
    assert "only cpu" in done.stderr


def test_a_process_that_does_not_find_process_0_says_so(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(processes, "PATIENCE", 0.1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    flags = [f"--coordinator={address}", "--num_processes=2", "--process_id=1"]
    assert main([*SMALL, f"--out={tmp_path}", *flags]) == 1
    assert f"process 1 of 2 does not find process 0 at {address}" in (
        capsys.readouterr().err
    )


def test_devices_of_one_process_share_the_positions(tmp_path, capsys):
    found = []
    for name, flags in (("one", []), ("eight", ["--num_devices=8"])):
        asked = ["--rounding=none", f"--out={tmp_path}/{name}", *flags]
        assert main([*SMALL, *asked]) == 0
        found.append(json.loads((tmp_path / name / "influence.json").read_text()))
    one, eight = found
    assert (one["position"], one["symbol"]) == (eight["position"], eight["symbol"])
    assert eight["max"] == pytest.approx(one["max"], rel=1e-12)
