"""Lines of a dry run of `scan`: the parts, the method, and the cost."""

import math

import jax
import numpy as np

from bounds.cli.influence import describe_blocks
from bounds.cli.scan_parts import Parts, as_table
from bounds.cli.shared.target import target_key
from bounds.influence.method import Method
from bounds.influence.rounding import runs_of
from bounds.version import __version__
from jax_models.arguments import show
from jax_models.run.mesh import count_devices

# Bytes of a cell: three float64 and one flag. A number of the store is text,
# four characters for three bytes where it cannot be compressed.
ARRAYS, STORED = 25, 11


def describe_plan(parts: Parts) -> list[str]:
    """Lines of a dry run; refuses a model that the method does not support."""
    asked, layout, model = parts.asked, parts.layout, parts.asked.subject.model
    count = count_devices(parts.mesh)
    choice = parts.choice
    way = choice.way
    assert isinstance(way, Method)
    questions = [parts.part(*ends) for ends in parts.bounds]
    requests = [one for one in questions if len(one.pairs)]
    sizes = [len(one.pairs) for one in requests]
    positions, symbols = layout.cells.shape
    shape = [
        {"position": positions, "symbol": symbols, "row": layout.rows.size}.get(
            axis, layout.width
        )
        for axis in layout.axes
    ]
    cells = math.prod(shape)
    kept = 2 * cells  # with how far they moved
    if layout.reduction.by_target:  # the whole tables of all runs
        kept = positions * symbols * math.prod(as_table(layout).shape)
        kept *= 1 + runs_of(parts.rounding)
    return [
        f"version {__version__}, jax {jax.__version__}, {count} of "
        f"{jax.device_count()} devices: {jax.devices()[0].device_kind}",
        f"model: {len(model.layers)} layers, d = {model.width}, V = {model.vocab_size}, "
        f"{np.dtype(model.dtype).name}; n = {asked.tokens.size}, "
        f"{show(target_key(asked.subject.question.target))}",
        "scan: "
        + " x ".join(f"{n} {x}s" for n, x in zip(shape, layout.axes, strict=True)),
        f"method: {way.name} ({choice.reason})",
        f"radii of rounding: {parts.rounding}",
        f"substitutions: {sum(sizes)}, in {len(parts.bounds)} parts of at most "
        f"{parts.size} positions; each is kept when it is done",
        f"estimated cost: {sum(map(way.cost, requests)):.3g} forward passes",
        *describe_blocks(way.name, choice.sizes, sizes, count),
        f"store: {kept} numbers, at most {_bytes(STORED * kept)}",
        f"scan.npz: {cells} cells, {_bytes(ARRAYS * cells)}",
    ]


def _bytes(size: int) -> str:
    return f"{size / 1e6:.3g} MB"
