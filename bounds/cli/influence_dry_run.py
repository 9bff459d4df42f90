"""What `influence` would do: its method, its blocks, and what each of them takes.

The programs are traced and compiled for the device at hand, from shapes alone: nothing is
run and nothing is written.
"""

from collections.abc import Sequence

import jax
import numpy as np

from bounds.cli.devices import Devices
from bounds.cli.influence_blocks import Asked
from bounds.influence.compute import choose_method
from bounds.influence.method import Screen
from bounds.influence.outline import Outline, estimate_work
from bounds.sweep import Cell
from bounds.version import __version__


def describe_run(asked: Asked, cells: Sequence[Cell], devices: Devices) -> list[str]:
    """Returns the lines that a dry run prints.

    Args:
        asked: What is asked.
        cells: The blocks of positions that are kept as they are found.
        devices: What they would be shared out over.

    Raises:
        InputError: The method cannot do this model.
    """
    model, question = asked.subject.model, asked.subject.question
    posed = [asked.problem(cell.config["start"], cell.config["stop"]) for cell in cells]
    problems = [one for one in posed if one.position.size]
    total = sum(one.position.size for one in problems)
    count = 1 if devices.mesh is None else devices.mesh.size
    lines = [
        f"version {__version__}, jax {jax.__version__}, {count} of "
        f"{jax.device_count()} devices: {jax.devices()[0].device_kind}",
        f"model: {len(model.layers)} layers, d = {model.width}, V = "
        f"{model.vocab_size}, {np.dtype(model.dtype).name}; n = {asked.tokens.size}, query "
        f"{question.query}, {question.target}",
    ]
    if not problems:
        return [*lines, "nothing can be substituted"]
    largest = max(problems, key=lambda one: one.position.size)
    choice = choose_method(question.method, largest)
    way = choice.way
    lines += [
        f"method: {way.name} ({choice.reason})",
        f"substitutions: {total}, in {len(problems)} parts of at most "
        f"{largest.position.size}; each is kept when it is done",
        "estimated cost: some tens of forward passes, more where bounds are loose"
        if isinstance(way, Screen)
        else f"estimated cost: {sum(map(way.cost, problems)):.3g} forward passes",
    ]
    outline = None if isinstance(way, Screen) else way.outline(largest)
    if outline is None:
        return [*lines, f"blocks: {way.name} has none that can be told ahead"]
    return lines + _blocks(outline, [one.position.size for one in problems], count)


def _blocks(outline: Outline, sizes: Sequence[int], devices: int) -> list[str]:
    """Returns the lines on blocks, from the outline of the largest part of the work."""
    work = estimate_work(outline, devices)
    pass_flops = work.base.flops
    alike = sum(sizes) / max(sizes)  # parts, the last perhaps a fraction of one
    rows = outline.parts[0].options.get("row_tile")
    tiles = "" if rows is None else f", rows in tiles of {rows}"
    flops = (work.flops - pass_flops) * alike + pass_flops  # which the parts share
    return [
        f"blocks: {work.blocks} in the largest part, of {work.batch} substitutions on "
        f"each device{tiles}",
        f"base pass: {work.base}",
        f"block, on each device: {work.block}",
        f"all: {flops:.3g} FLOP",
    ]
