"""Map of a categorical Jacobian: one norm for each pair of a position and a row.

J[i, s, j, t] is the change of row j's target entry of symbol t where position i is
replaced by symbol s; it is 0 for the input's own symbol. A layout has the table's axes;
a piece is the part of the tensor J of one position i. Source: Zhang, Wayment-Steele,
Brixi, Wang, Kern, Ovchinnikov, Protein language models learn evolutionary statistics of
interacting sequence motifs, 2024.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float, Int

from bounds.influence.table.layout import Layout, Piece, Reduction
from jax_models import InputError
from jax_models.arguments import choose_name, expect_kind
from jax_models.run.device_memory import bytes_label, host_bytes

Symmetry = Literal["tensor", "map"]
WildType = Literal["zero", "left_out"]


@dataclasses.dataclass(frozen=True)
class Frobenius(Reduction):
    """Reduction to a map over positions i and rows j, as of a categorical Jacobian.

    sqrt(sum over s and t of J[i, s, j, t]^2) for position i and row j; 0 for i = j.

    Attributes:
        center: True subtracts the means over each of the four axes in turn first.
        symmetrize: "tensor" takes the mean of J and J[j, t, i, s]; "map" the mean of the
            finished map and its transpose; None neither.
        apc: True subtracts the average product, m[i, j] - m[i, .] m[., j] / m[., .],
            where a dot stands for a sum over that index.
        wild_type: "zero" counts the input's own symbol as a change of 0 in the means;
            "left_out" leaves it out of them, and 0.
    """

    center: bool = True
    symmetrize: Symmetry | None = None
    apc: bool = True
    wild_type: WildType = "zero"
    kind = "signed"
    by_target = True
    square = True

    @property
    def positive(self) -> bool:
        """True if the map has no negative entries: no average product is subtracted."""
        return not self.apc

    def __post_init__(self) -> None:
        for name in ("center", "apc"):
            expect_kind(name, getattr(self, name), bool, "True or False")
        if self.symmetrize is not None:
            choose_name("symmetrize", self.symmetrize, get_args(Symmetry))
        choose_name("wild_type", self.wild_type, get_args(WildType))

    def check(self, layout: Layout) -> None:
        """Refuses symbols differing by position, maps lacking a transpose, big tensors."""
        if (layout.symbols != layout.symbols[:1]).any():
            raise InputError(
                "Frobenius is over symbols that are the same at all positions; give "
                "symbols as one list"
            )
        same = set(layout.rows.tolist()) == set(layout.positions.tolist())
        if self.symmetrize and not same:
            raise InputError(
                f"Frobenius(symmetrize={self.symmetrize!r}) needs the rows to be the "
                f"positions; there are {layout.rows.size} rows and {layout.positions.size} "
                'positions: give rows="all", or the same list for both'
            )
        if self.symmetrize != "tensor":
            return
        symbols, entries = layout.symbols[0], layout.entries
        if entries is None or set(entries.tolist()) != set(symbols.tolist()):
            found = "no symbols" if entries is None else f"{len(entries)} symbols"
            raise InputError(
                'Frobenius(symmetrize="tensor") needs the symbols that come in to be the '
                f"target's; {len(symbols)} come in, and the target is of {found}, not all "
                "of them these: give symbols= and target_symbols= the same, with "
                'target="logits" or the like; or symmetrize="map"'
            )
        tensor = layout.positions.size, symbols.size, layout.rows.size, layout.width
        if not _fits(tensor):
            raise InputError(
                f"the tensor of all pairs takes {bytes_label(8.0 * math.prod(tensor))}, "
                f"more than a quarter of the {bytes_label(host_bytes())} here; use "
                'symmetrize="map", or fewer symbols'
            )

    def make(
        self, layout: Layout, pieces: Callable[[], Iterable[Piece]]
    ) -> Float[np.ndarray, "positions rows"]:
        """Computes the map; calls `pieces` twice if memory lacks room to centre J."""
        tensor = (*layout.cells.shape, *layout.shape)
        # A transpose pairs by name: rows go with positions, entries with symbols.
        rows: Any = slice(None)
        entries = back = rows
        if self.symmetrize:
            rows = _places(layout.positions, layout.rows)
            back = _places(layout.rows, layout.positions)
        if self.symmetrize == "tensor":
            assert layout.entries is not None
            entries = _places(layout.symbols[0], layout.entries)

        def blocks() -> Iterator[tuple[int, Float[np.ndarray, "..."]]]:
            missing = set(range(tensor[0]))
            for row, columns, found in pieces():
                one = np.zeros(tensor[1:])
                one[columns] = found[:, rows][..., entries]
                missing.remove(row)
                yield row, one
            for row in missing:  # nothing is substituted there, and nothing changes
                yield row, np.zeros(tensor[1:])

        # Cells that count in the means.
        counted = np.ones(tensor[:2], bool)
        if self.wild_type == "left_out":
            counted = layout.cells >= 0
        count = np.maximum(counted.sum(axis=0), 1)[:, None, None]
        # The mean over positions is known after all of them. Where the tensor does not fit,
        # the readings are computed a second time.
        kept, mean = None, np.zeros(tensor[1:])
        if self.center or self.symmetrize == "tensor":
            kept = np.zeros(tensor) if _fits(tensor) else None
            for row, one in blocks():
                mean += one / count
                if kept is not None:
                    kept[row] = one
        values = np.zeros((tensor[0], layout.shape[0]))
        for row, one in blocks() if kept is None else enumerate(kept):
            moved = one
            if self.center and (there := counted[row]).any():
                moved, part = np.zeros_like(one), (one - mean)[there]
                for axis in range(3):
                    part = part - part.mean(axis=axis, keepdims=True)
                moved[there] = part
            values[row] = _norms(moved)
            if kept is not None:
                kept[row] = moved
        if self.symmetrize == "tensor":
            assert kept is not None
            for row, one in enumerate(kept):
                # J[j, t, i, s] of row i, with its entry s, its position j and its symbol t in
                # the order of the axes of `one`.
                values[row] = _norms(one + kept[:, :, row].transpose(2, 0, 1)) / 2
        diagonal = layout.diagonal[:, rows]
        values = np.where(diagonal, 0.0, values)
        if self.apc:
            # The diagonal is 0 in the sums of the average product m[i, .] m[., j] / m[., .],
            # and stays 0.
            product = values.sum(axis=1, keepdims=True) * values.sum(
                axis=0, keepdims=True
            )
            with np.errstate(divide="ignore", invalid="ignore"):
                average = np.where(product > 0, product / values.sum(), 0.0)
            values = np.where(diagonal, 0.0, values - average)
        if self.symmetrize == "map":
            values = (values + values.T) / 2
        return values[:, back]


def _places(
    names: Int[np.ndarray, "names"], listed: Int[np.ndarray, "names"]
) -> Int[np.ndarray, "names"]:
    """Index of every name in `listed`, a permutation of `names`."""
    order = np.argsort(listed)
    return order[np.searchsorted(listed, names, sorter=order)]


def _norms(
    block: Float[np.ndarray, "symbols rows classes"],
) -> Float[np.ndarray, "rows"]:
    """Norm of each watched row's changes over symbols and target entries."""
    # Scaled by their largest: squares of small numbers underflow.
    top = np.abs(block).max(axis=(0, 2), initial=0.0)
    scaled = block / np.where(top > 0, top, 1.0)[:, None]
    return top * np.sqrt((scaled**2).sum(axis=(0, 2)))


def _fits(tensor: tuple[int, ...]) -> bool:
    """True if a tensor of this shape takes at most a quarter of the memory."""
    return 8.0 * math.prod(tensor) <= host_bytes() / 4
