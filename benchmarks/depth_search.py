"""Searches parameters for thresholds of depth, and prints rows of their table.

The table is `bounds/restriction/closed_form/released.py`; what a search finds is proved
there, so that a poor one makes a weak threshold, not a false one.
"""

from collections.abc import Iterator, Sequence

from absl import app, flags

from benchmarks.dyck_search import search_dyck_parameters
from benchmarks.switching_search import search_steps
from bounds.restriction.closed_form.routes import proof_digits

LAYERS = flags.DEFINE_integer("num_layers", 2, "layers L", lower_bound=2)
HEADS = flags.DEFINE_integer("num_heads", 1, "heads H", lower_bound=1)


def found_rows(num_layers: int, num_heads: int) -> Iterator[str]:
    """Yields the rows of PARITY and of DYCK, none where a search would take too long."""
    steps = search_steps(num_layers, num_heads)
    if steps is None:
        return
    told = ", ".join(f"{step.star_probability} {step.depth}" for step in steps)
    yield f"{num_layers} {num_heads}: {told}"
    dyck = search_dyck_parameters(num_heads, steps, proof_digits(num_layers))
    if dyck is None:
        return
    told = ", ".join(
        f"{step.star_probability} {step.depth} {'none' if c is None else c}"
        for step, c in zip(dyck.steps, dyck.spreads, strict=True)
    )
    yield f"{num_layers} {num_heads}: {told} | {dyck.delta}"


def main(arguments: Sequence[str]) -> None:
    """Print the rows of one shape."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected {' '.join(arguments[1:])}")
    rows = list(found_rows(LAYERS.value, HEADS.value))
    print("\n".join(rows or ["too large to be searched"]))


if __name__ == "__main__":
    app.run(main)
