"""Cells of no command, for the tests of plans and execution."""

from bounds.batch.cells import BatchCell


def make_cell(index, length=1):
    """Returns a cell of one length."""
    return BatchCell(
        key=f"key{index}",
        config={"command": "test", "index": index, "length": length, "block_memory": 1},
        label=f"index={index}",
        arguments=(f"--index={index}",),
    )
