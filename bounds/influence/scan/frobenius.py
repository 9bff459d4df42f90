"""The map of a categorical Jacobian: a norm for each pair of a position and a row.

J[i, s, j, t] is the change of what row j says of symbol t where position i is replaced by
symbol s, 0 for the symbol that is there. Shapes: P positions, K symbols, r = P rows where
the map is symmetrised, c target symbols.

Source:
    Zhang, Wayment-Steele, Brixi, Wang, Kern, Ovchinnikov, Protein language models learn
    evolutionary statistics of interacting sequence motifs, 2024.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, get_args

import numpy as np

from bounds.influence.scan.layout import Layout
from bounds.influence.scan.reductions import Ends, Piece, Reduction
from bounds.numbers.rounding import unit_roundoff
from jax_models import InputError
from jax_models.arguments import choose_name, expect_kind
from jax_models.run.device_memory import bytes_label, host_bytes

Symmetry = Literal["tensor", "map"]


@dataclasses.dataclass(frozen=True)
class Frobenius(Reduction):
    """sqrt(sum over s and t of J[i, s, j, t]^2) of every pair [P, r], its diagonal 0.

    Attributes:
        center: Whether means over each of the four axes in turn are subtracted first.
        symmetrize: "tensor", of J and J[j, t, i, s] the mean; "map", of the finished map
            and its transpose; None, neither.
        apc: Whether the average product is subtracted, m[i, j] - m[i, .] m[., j] / m[., .]
            with sums over what a dot stands for.
    """

    center: bool = True
    symmetrize: Symmetry | None = None
    apc: bool = True
    kind = "signed"
    by_target = True
    square = True

    def __post_init__(self) -> None:
        for name in ("center", "apc"):
            expect_kind(name, getattr(self, name), bool, "True or False")
        if self.symmetrize is not None:
            choose_name("symmetrize", self.symmetrize, get_args(Symmetry))

    def check(self, layout: Layout, width: int) -> None:
        """Refuses symbols that go with the position, and what has no transpose."""
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
        tensor = layout.positions.size, symbols.size, layout.rows.size, width
        if not _fits(tensor):
            raise InputError(
                f"the tensor of all pairs takes {bytes_label(8.0 * math.prod(tensor))}, "
                f"more than a quarter of the {bytes_label(host_bytes())} here; use "
                'symmetrize="map", or fewer symbols'
            )

    def make(
        self,
        layout: Layout,
        shape: tuple[int, ...],
        pieces: Callable[[], Iterable[Piece]],
    ) -> Ends:
        """Returns the map; in two passes where the tensor does not fit and is centred."""
        tensor = (*layout.cells.shape, *shape)
        # A transpose pairs by name: rows go with positions, entries with symbols.
        rows: Any = slice(None)
        entries = back = rows
        if self.symmetrize:
            rows = _places(layout.positions, layout.rows)
            back = _places(layout.rows, layout.positions)
        if self.symmetrize == "tensor":
            assert layout.entries is not None
            entries = _places(layout.symbols[0], layout.entries)
        size, off = (np.zeros((tensor[0], shape[0])) for _ in range(2))

        def blocks() -> Iterator[tuple[int, np.ndarray]]:
            missing = set(range(tensor[0]))
            for row, columns, found, radius in pieces():
                one = np.zeros(tensor[1:])
                one[columns] = found[:, rows][..., entries]
                off[row], size[row] = _norms(radius[:, rows, None]), _norms(one)
                missing.remove(row)
                yield row, one
            for row in missing:  # nothing is substituted there, and nothing changes
                yield row, np.zeros(tensor[1:])

        kept, mean = None, np.zeros(tensor[1:])
        if self.center or self.symmetrize == "tensor":
            kept = np.zeros(tensor) if _fits(tensor) else None
            for row, one in blocks():
                mean += one / tensor[0]
                if kept is not None:
                    kept[row] = one
        values = np.zeros(size.shape)
        for row, one in blocks() if kept is None else enumerate(kept):
            moved = _centred(one - mean) if self.center else one
            values[row] = _norms(moved)
            if kept is not None:
                kept[row] = moved
        if self.center:
            size, off = (_spread(x) for x in (size, off))
        if self.symmetrize == "tensor":
            assert kept is not None
            for row, one in enumerate(kept):
                values[row] = _norms(one + kept[:, :, row].transpose(2, 0, 1)) / 2
            size, off = ((x + x.T) / 2 for x in (size, off))
        terms = sum(tensor) + tensor[1] * tensor[3] + 16
        off = off + terms * unit_roundoff(np.float64) * size
        ends = self._finished(values, off, layout.diagonal[:, rows])
        values, lower, upper = (end[:, back] for end in ends)
        return values, lower, upper

    def _finished(
        self, values: np.ndarray, off: np.ndarray, diagonal: np.ndarray
    ) -> Ends:
        """The map of norms, its diagonal 0, less average products and symmetrised."""
        values, off = (np.where(diagonal, 0.0, x) for x in (values, off))
        if self.apc:
            product, beside = _average_product(values, off)
            values, off = values - product, off + beside
            values, off = (np.where(diagonal, 0.0, x) for x in (values, off))
        if self.symmetrize == "map":
            values, off = ((x + x.T) / 2 for x in (values, off))
        lower = values - off
        return values, lower if self.apc else np.maximum(lower, 0), values + off


def _places(names: np.ndarray, listed: np.ndarray) -> np.ndarray:
    """The index of every name in a list of the same names in another order."""
    order = np.argsort(listed)
    return order[np.searchsorted(listed, names, sorter=order)]


def _norms(block: np.ndarray) -> np.ndarray:
    """Of a block [K, r, c] its norms over symbols and target symbols [r]."""
    # Scaled by their largest: squares of small numbers underflow.
    top = np.abs(block).max(axis=(0, 2), initial=0.0)
    scaled = block / np.where(top > 0, top, 1.0)[:, None]
    return top * np.sqrt((scaled**2).sum(axis=(0, 2)))


def _centred(block: np.ndarray) -> np.ndarray:
    """A block [K, r, c] less its means over each of its axes in turn."""
    for axis in range(3):
        block = block - block.mean(axis=axis, keepdims=True)
    return block


def _spread(sizes: np.ndarray) -> np.ndarray:
    """What sizes of blocks [P, r] become where means over P and r are subtracted.

    Means over the axes of a block itself make no norm larger.
    """
    sizes = sizes + sizes.mean(axis=0, keepdims=True)
    return sizes + sizes.mean(axis=1, keepdims=True)


def _average_product(m: np.ndarray, off: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """m[i, .] m[., j] / m[., .] of a map that is not negative, and what it is off by."""

    def product(by_row: np.ndarray, by_column: np.ndarray, total: float) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            found = by_row * by_column / total
        return np.where(by_row * by_column > 0, found, 0.0)

    def sums(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return x.sum(axis=1, keepdims=True), x.sum(axis=0, keepdims=True)

    rounded = sum(m.shape) * unit_roundoff(np.float64)
    found = product(*sums(m), m.sum())
    above, below = m + off, np.maximum(m - off, 0)
    upper = product(*sums(above), below.sum())
    lower = product(*sums(below), above.sum())
    beside = np.maximum(upper - found, found - lower)
    return found, beside + 4 * rounded * (found + m)


def _fits(tensor: tuple[int, ...]) -> bool:
    """Whether a tensor takes at most a quarter of the machine's memory."""
    return 8.0 * math.prod(tensor) <= host_bytes() / 4
