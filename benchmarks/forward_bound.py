"""How far are radii by moved inputs from a worst-case bound of the forward pass?

The forward error of transformers is bounded in the literature by the rounding of each part
times condition numbers of the parts behind it (Budzinskiy et al. 2025, arXiv 2503.10251).
Here, to first order, for one random float32 model of each depth:

    |error of the rows| <= Σ_k steps_k u |X_k| Π_{j > k} |J_j|,

with X_k the rows that layer k returns, J_j the Jacobian of layer j in the 2-norm, and steps_k
the roundings of the layer; what cancels inside a layer is left out, in favour of the bound.
An influence is a difference of two passes: its bound is twice that.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jax_models as jm
from benchmarks.flags import benchmark_flags
from benchmarks.page import digits, table_text
from benchmarks.radii import doubled, moved_radii
from benchmarks.script import Benchmark, Config, Measured, Row, grid, run_script
from bounds.influence.build import build_request
from bounds.influence.methods.exhaustive import EXHAUSTIVE
from bounds.influence.methods.incremental import INCREMENTAL
from bounds.influence.moved import found_by
from bounds.numbers.rounding import layer_steps, unit_roundoff
from jax_models.model.transformer import apply_layer, embedded

FLAGS = benchmark_flags("forward_bound", table=True)
SHAPE: dict[str, Any] = {"num_heads": 2, "d_model": 8, "d_ff": 16, "vocab_size": 8}
LENGTH = 16


def cells() -> Iterator[dict[str, Any]]:
    """Yields the configs' own entries: numbers of layers, at one length."""
    yield from grid(layers=[1, 2, 4, 8], n=[LENGTH])


def worst_case(model: jm.Transformer, tokens: np.ndarray) -> float:
    """Bound on the rounding of all rows that a float32 model returns, in the 2-norm."""
    rows = embedded(model, jnp.asarray(tokens)).astype(jnp.float64)
    unit, bound = unit_roundoff(np.float32), 0.0
    for layer in jax.tree.map(lambda x: x.astype(jnp.float64), model.layers):
        shape = rows.shape

        def run(flat: jax.Array, layer: Any = layer, shape: Any = shape) -> jax.Array:
            return apply_layer(layer, flat.reshape(shape))[0].ravel()

        gain = float(jnp.linalg.norm(jax.jacobian(run)(rows.ravel()), 2))
        rows = run(rows.ravel()).reshape(shape)
        steps = layer_steps(model, layer, len(tokens))
        bound = gain * bound + steps * unit * float(jnp.linalg.norm(rows))
    return bound


def measure(config: Config) -> dict[str, Any]:
    """Row of one depth: medians of error, radii and bound, over the influence."""
    model = jm.random_transformer(
        jax.random.key(config["seed"]),
        num_layers=config["layers"],
        dtype="float32",
        **SHAPE,
    )
    tokens = np.random.default_rng(config["seed"]).integers(0, 8, config["n"])
    asked = build_request(model, tokens)
    values, radii = moved_radii(asked, EXHAUSTIVE)
    truth = found_by(INCREMENTAL, doubled(asked))
    found = {
        "error": np.abs(values - truth),
        "radius": radii,
        "carried_radius": moved_radii(asked, INCREMENTAL)[1],
        "bound": np.full(truth.shape, 2 * worst_case(model, tokens)),
    }
    return {k: float(np.median(x / truth)) for k, x in found.items()}


def show(config: Config, row: Row) -> str:
    """Returns a line of text on one measured row."""
    return f"{config['layers']} layers: {row}"


def table(measured: Measured) -> str:
    """Rows as a Markdown table, each number as a share of the influence."""
    head = ("layers", "error", "radius", "radius of carried changes", "worst case")
    names = ("error", "radius", "carried_radius", "bound")
    return table_text(
        head,
        [[str(c["layers"]), *(digits(r[x], 2) for x in names)] for c, r in measured],
    )


BENCHMARK = Benchmark("forward_bound", FLAGS, cells, measure, show, table)


if __name__ == "__main__":
    run_script(BENCHMARK)
