"""Memory is what is told by the device, the machine or its groups; walls between values."""

import chex
import jax
import jax.numpy as jnp
import pytest

from jax_models.run import blocks, device_memory
from jax_models.run.blocks import formed_once


@pytest.fixture
def system(tmp_path):
    """Writes the files in which control groups say their limits."""

    def write(groups, limits):
        for name, text in limits.items():
            path = tmp_path / "sys/fs/cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
        (tmp_path / "groups").write_text("".join(f"{line}\n" for line in groups))
        return device_memory.cgroup_limits(tmp_path / "groups", tmp_path)

    return write


NESTED = {
    "user/job/memory.max": "4096",
    "user/memory.max": "max",
    "memory.max": "8192",
    "other/memory.max": "1",
}
VERSION_1 = {"memory/a/memory.limit_in_bytes": "99"}


@pytest.mark.parametrize(
    ("groups", "limits", "found"),
    [
        (["0::/user/job"], NESTED, [4096, 8192]),
        # A container sees its group as the root.
        (["0::/"], {"memory.max": "512"}, [512]),
        (["0::/../far"], {"memory.max": "512"}, [512]),
        (["9:cpu:/a", "4:memory:/a"], VERSION_1, [99]),
    ],
)
def test_limits_of_the_group_and_of_those_around_it_hold(system, groups, limits, found):
    assert sorted(system(groups, limits)) == found


def test_where_no_group_is_told_there_is_no_limit(tmp_path):
    assert device_memory.cgroup_limits(tmp_path / "none", tmp_path) == []


def test_a_cpu_has_a_share_of_the_machine(monkeypatch):
    monkeypatch.setattr(device_memory, "host_bytes", lambda: 2**33)
    device_memory.device_bytes.cache_clear()
    count = jax.local_device_count()
    assert device_memory.memory_budget() == 2**33 // count // device_memory.SHARE
    device_memory.device_bytes.cache_clear()


def test_what_was_planned_is_taken_whatever_the_device_has(monkeypatch):
    monkeypatch.setattr(device_memory, "device_bytes", lambda device: 2**31)
    with device_memory.memory_planned(2**40):
        assert device_memory.memory_budget() == 2**40
        with device_memory.memory_planned(None):
            assert device_memory.memory_budget() == 2**30
        assert device_memory.memory_budget() == 2**40
    assert device_memory.memory_budget() == 2**30


@pytest.mark.parametrize(("own", "expected"), [(0, 2**33), (2**30, 2**29)])
def test_at_hand_is_the_memory_of_the_device_or_of_the_whole_machine(
    monkeypatch, own, expected
):
    monkeypatch.setattr(device_memory, "host_bytes", lambda: 2**34)
    monkeypatch.setattr(device_memory, "_own_bytes", lambda device: own)
    with device_memory.memory_planned(2**40):
        assert device_memory.memory_at_hand() == expected


def test_an_accelerator_says_itself():
    class Card:
        platform = "gpu"

        def memory_stats(self):
            return {"bytes_limit": 2**36}

    assert device_memory.device_bytes(Card()) == 2**36


def test_the_machine_has_no_more_than_its_group_lets_it(monkeypatch):
    monkeypatch.setattr(device_memory, "cgroup_limits", lambda: [12345, 2**60])
    assert device_memory.host_bytes() == 12345


@pytest.mark.parametrize(("backend", "suited"), [("cpu", 2**19), ("gpu", 2**25)])
def test_memory_only_makes_tiles_smaller(monkeypatch, backend, suited):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    for budget, expected in ((2**40, suited), (2**20, 2**20 // 512), (1, 1)):
        monkeypatch.setattr(blocks, "memory_budget", lambda budget=budget: budget)
        assert blocks.tile_elements() == expected


@pytest.mark.parametrize("when", [True, False])
def test_what_is_formed_once_is_the_function_or_zeros(when):
    def both(x, y):
        return {"sum": x + y, "first": (x,)}

    x, y = jnp.arange(3.0), jnp.ones(3)
    found = jax.jit(lambda w: formed_once(w, both, x, y))(jnp.asarray(when))
    expected = both(x, y) if when else {"sum": 0 * x, "first": (0 * x,)}
    chex.assert_trees_all_equal(found, expected)
