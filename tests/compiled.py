"""Programs that are compiled in a call, as JAX reports them."""

import jax


def programs(work):
    """Names of the programs, one for each time that one was compiled."""
    met = []

    def hear(event, _, **known):
        if "backend_compile" in event:
            met.append(known["fun_name"])

    jax.monitoring.register_event_duration_secs_listener(hear)
    try:
        work()
    finally:
        jax.monitoring.unregister_event_duration_listener(hear)
    return met
