"""Programs that are compiled in a call, as JAX reports them, and their equations."""

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


def equations(program):
    """Yields the equations of a traced program, whatever they are nested in."""
    for equation in getattr(program, "jaxpr", program).eqns:
        yield equation
        parts = jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")
        )
        for part in parts:
            if hasattr(part, "eqns"):
                yield from equations(part)
