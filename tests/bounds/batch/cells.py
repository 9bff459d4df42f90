"""Cells of no command, for the tests of plans, estimates and execution."""

from bounds.batch.cells import BatchCell, Work


def make_cell(index, *, shape="", size=1.0, levels=()):
    """Returns a cell whose passes are `size`."""
    terms = {"runs": 1.0, "tokens": size**0.5, "passes": size, "positions": size**1.5}
    return BatchCell(
        key=f"key{index}",
        config={"command": "test", "index": index, "block_memory": 1},
        label=f"index={index}",
        arguments=(f"--index={index}",),
        work=Work({**terms, "programs": 1.0}, 8.0 * size),
        levels=levels,
        kinds=tuple(level for level in levels if not level.startswith("size")),
        shape=shape or f"shape{index}",
        programs=(shape or f"shape{index}",),
    )
