"""What does not fit the memory, or would not end, is refused in one line at once."""

import pytest

from jax_models.run import device_memory

MEMORY = " of memory, and there are 3 GiB here"
LARGE = [
    "model --d_ff=1000000000",
    "model --d_model=10000000",
    "model --num_layers=1000000000",
    "model --vocab_size=1000000000",
    "model --position=table --max_length=1000000000",
    "sample --num_inputs=1000000000",
    "sample --length=1000000000",
    "train --language=parity --steps=1000000000",
    "train --language=parity --d_ff=1000000000",
    "influence --length=1000000000",
    "influence --length=1000000000 --position=none",
    "curve --lengths=8,1000000000",
    "lipschitz --lengths=1000000000",
    "train --language=parity --d_model=4 --d_ff=4 --length=4 --num_inputs=2000000000",
    "sample --length=200000000",
    "restrict --length=100000000",
    "restrict --length=2147483647",
    "simulate --weighting=average_hard --lengths=1000000000",
    "supremum --length=1000000000",
    "constants --lengths=1000000000",
]
# Commands that are refused, and with which words.
REFUSED = dict.fromkeys(LARGE, MEMORY) | {
    "depth --num_layers=100000": "[1, 2000]",
    f"depth --num_heads={10**23}": "[1, 2147483647]",
    "sample --language=random --vocab_size=2147483647 --length=5": "of memory",
    "entropy --language=dyck2 --lengths=1,3,2147483646": "of memory",
    "compile --formula=Q_a --alphabet=ab --self_test=1000000000": "of memory",
    f"compile --formula={2000 * 'P'}Q_a --alphabet=ab": " operations",
    "lipschitz --lengths=4 --steps=2147483647": " operations",
    "lipschitz --lengths=4 --num_inputs=2147483647": " operations",
    "influence --length=4 --input=2147483647": "[0, 2147483646]",
    "train --language=parity --length=2147483647": "[1, 536870911]",
    "train --language=parity --scale=1e308": "scale = 1e+308",
    "influence --length=4 --scale=1e308": "scale = 1e+308",
}


@pytest.mark.parametrize("command", REFUSED)
def test_what_does_not_fit_or_would_not_end_is_refused_by_range_memory_or_operations(
    run, command, monkeypatch
):
    monkeypatch.setattr(device_memory, "host_bytes", lambda: 3 * 2**30)
    arguments = command.replace("P" * 2000, "P/" * 2000).split()
    ended = run(*(part.replace("/", " ") for part in arguments))
    ended.assert_refused(REFUSED[command])
    assert REFUSED[command] != MEMORY or " takes " in ended.err


def test_memory_is_refused_from_one_byte_too_many(monkeypatch):
    there = 2**32
    monkeypatch.setattr(device_memory, "host_bytes", lambda: there)
    device_memory.require_memory("it", there)
    with pytest.raises(ValueError, match=r"it: this takes 4 GiB .* there are 4 GiB"):
        device_memory.require_memory("it", there + 1)
