"""Times of a profile are of the operations themselves, named as they were made."""

import jax
import jax.numpy as jnp
import pytest

from benchmarks import profile_pairs
from jax_models import InputError


def test_what_runs_within_an_operation_is_not_its_own():
    events = [
        ("loop", 0.0, 100.0),
        ("exp", 10.0, 20.0),
        ("inner", 40.0, 50.0),
        ("exp", 45.0, 30.0),
        ("dot", 100.0, 5.0),
    ]
    assert profile_pairs.own_times(events) == {
        "loop": 30.0,
        "exp": 50.0,
        "inner": 20.0,
        "dot": 5.0,
    }
    assert profile_pairs.own_times(reversed(events)) == profile_pairs.own_times(events)


def test_operations_of_a_program_are_traced_back_to_what_they_were_made_for():
    compiled = jax.jit(lambda x: jnp.sin(x) @ x).lower(jnp.eye(64)).compile()
    made = profile_pairs.stages(compiled.as_text())
    assert any(name.endswith("sin") for name in made.values())
    assert any(name.endswith("dot_general") for name in made.values())


def test_a_trace_has_the_operations_of_the_program_that_ran(tmp_path):
    compiled = jax.jit(lambda x: jnp.sin(x) @ x).lower(jnp.eye(256)).compile()
    made = profile_pairs.stages(compiled.as_text())
    compiled(jnp.eye(256)).block_until_ready()
    with jax.profiler.trace(str(tmp_path)):
        compiled(jnp.eye(256)).block_until_ready()
    threads = profile_pairs.read_trace(tmp_path)
    found = {name for events in threads for name, _, _ in events}
    assert found & made.keys()


def test_a_profile_without_operations_is_no_table():
    with pytest.raises(InputError, match="tells no operation"):
        profile_pairs.sum_operations([[("idle", 0.0, 1.0)]], {"dot": "x"})


def test_operations_are_summed_over_threads_the_largest_first():
    threads = [
        [("a", 0.0, 2.0)],
        [("b", 0.0, 3.0), ("idle", 3.0, 9.0)],
        [("a", 9.0, 2.0)],
    ]
    found = profile_pairs.sum_operations(threads, {"a": "x", "b": "y"})
    assert list(found.items()) == [("a", 4.0), ("b", 3.0)]
