"""The clock of the compiler hears JAX begin and end, and counts no time twice."""

import time

import jax
import jax.numpy as jnp

from jax_models.run.compile_clock import EVENTS, CompileClock, compile_clock


def test_jax_is_heard_to_begin_and_to_end(monkeypatch):
    states, plain = [], CompileClock.__call__

    def hear(self, event, *about, **more):
        plain(self, event, *about, **more)
        states.append(self.under_way)

    monkeypatch.setattr(CompileClock, "__call__", hear)
    with compile_clock() as heard:
        jax.jit(lambda x: jnp.sin(x) + 41)(2.0)
        assert any(states)
        assert not heard.under_way
        assert heard.seconds > 0
    states.clear()
    jax.jit(lambda x: jnp.sin(x) + 42)(2.0)
    assert states == []


def test_events_within_one_another_are_counted_once(monkeypatch):
    clock = CompileClock()
    for now, seconds in ((2.0, 1.0), (3.0, 2.5), (7.0, 1.0)):
        monkeypatch.setattr(time, "monotonic", lambda now=now: now)
        clock(f"{EVENTS}any", seconds)
        clock("/another/event", seconds)
    assert clock.seconds == 3.5
