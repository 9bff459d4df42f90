"""What does not fit the memory is refused before any of it is taken, in one line."""

import pytest

from jax_models.run import device_memory


@pytest.mark.parametrize(
    "command",
    [
        "model --d_ff=1000000000000",
        "model --d_model=10000000",
        "model --num_layers=1000000000",
        "model --vocab_size=100000000000",
        "model --position=table --max_length=100000000000",
        "sample --num_inputs=1000000000000",
        "sample --length=1000000000000",
        "train --language=parity --steps=100000000000000000000",
        "train --language=parity --d_ff=1000000000000",
        "influence --length=1000000000",
        "influence --length=1000000000 --position=none",
        "curve --lengths=8,1000000000",
        "lipschitz --lengths=1000000000",
        "restrict --length=100000000",
        "simulate --weighting=average_hard --lengths=1000000000",
        "simulate --weighting=average_hard --lengths=40 --max_inputs=10000000000000",
        "supremum --length=1000000000",
    ],
)
def test_what_does_not_fit_is_refused_with_the_bytes_needed_and_there(
    run, command, monkeypatch
):
    monkeypatch.setattr(device_memory, "host_bytes", lambda: 3 * 2**30)
    ended = run(*command.split())
    ended.assert_refused(" of memory, and there are 3 GiB here")
    assert " takes " in ended.err


def test_memory_is_refused_from_one_byte_too_many(monkeypatch):
    there = 2**32
    monkeypatch.setattr(device_memory, "host_bytes", lambda: there)
    device_memory.require_memory("it", there)
    with pytest.raises(ValueError, match=r"it: this takes 4 GiB .* there are 4 GiB"):
        device_memory.require_memory("it", there + 1)
