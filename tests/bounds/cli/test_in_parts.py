"""The flags that share work out are checked before anything is computed."""

import json
import socket

import jax
import pytest

from bounds.cli.main import main
from jax_models.run import processes

SMALL = ["influence", "--length=12", "--d_model=4", "--num_heads=1", "--d_ff=4"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--coordinator=127.0.0.1:1234"],
            "also need --num_processes and --process_id",
        ),
        (["--process_id=0", "--num_processes=2"], "also need --coordinator"),
        (
            ["--coordinator=here:1", "--num_processes=2", "--process_id=2"],
            "--process_id=2, but --num_processes=2 counts from 0 to 1",
        ),
        (
            ["--coordinator=here", "--num_processes=2", "--process_id=1"],
            "--coordinator=here: expected host:port",
        ),
        (
            ["--coordinator=:1234", "--num_processes=1", "--process_id=0"],
            "--coordinator=:1234: expected host:port",
        ),
        (
            ["--coordinator=here:65536", "--num_processes=1", "--process_id=0"],
            "--coordinator=here:65536: expected host:port",
        ),
        (["--num_devices=100000"], "num_devices"),
        (["--num_devices=9"], "9 devices asked for, but this process has 8"),
        (
            ["--num_devices=0"],
            "num_devices=0: 0 is not an integer in the range [1, 256]",
        ),
    ],
)
def test_flags_that_do_not_fit_are_refused(tmp_path, capsys, flags, message):
    assert jax.local_device_count() == 8  # from here on no flag can divide the CPU
    assert main([*SMALL, f"--out={tmp_path}/out", *flags]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


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
