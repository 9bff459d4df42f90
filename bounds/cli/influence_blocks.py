"""One input's influences in blocks of positions, so that long work can be resumed."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float

from bounds.cli.influence_question import Asked
from bounds.cli.influence_records import (
    ENCLOSED_FORM,
    GATHERED_FORM,
    enclosures,
    gathered,
    has_numbers,
    record_enclosed,
    record_gathered,
)
from bounds.cli.parts import add_top, top_cell
from bounds.cli.shared.precision import with_error
from bounds.cli.shared.progress import Progress
from bounds.cli.shared.target import target_key
from bounds.curves.measurement import block_columns
from bounds.influence import (
    Influence,
    InfluenceRequest,
    Proposed,
    Run,
    Screened,
    SharedBase,
)
from bounds.influence.answer import proposal_reason, settle
from bounds.influence.choice import Choice, Keep, choose_method
from bounds.influence.exhaustive import Exhaustive
from bounds.influence.find import find
from bounds.influence.incremental import is_sparse
from bounds.influence.lumped import Lumped
from bounds.influence.method import Done, Method, Screen
from bounds.influence.result import Enclosures, Found
from bounds.influence.rounding import choose_rounding
from bounds.influence.ties import judge_ties
from bounds.numbers.kind import kind_of_ends
from bounds.store.output import canonical_json, sha256
from bounds.store.sweep import Cell
from bounds.version import __version__
from jax_models.run.mesh import count_devices

# Substitutions beyond which only the largest of each position is kept.
MAX_PAIRS = 2**18
# The same for entries [n, V], since tables are formed of all symbols.
MAX_TABLE = 2**24
COLUMNS = ("position", "symbol", "lower", "upper", "kind")
# Columns on the largest influence, of each block and of the whole input.
SUMMARY = (
    "max",
    "max_lower",
    "max_upper",
    "position",
    "symbol",
    "method",
    "reason",
    "evaluated",
    "uncertified",
    "decided",
)
# The end of a piece within its block; a piece that reaches the block's end has none.
REACHED = "reached"
# The method's own blocks of a piece, at least: as many run at a time.
UNDER_WAY = 2
# Substitutions of a piece, at least, where a method sizes its blocks as it runs.
SPARSE_PIECE = 64


@dataclasses.dataclass(frozen=True)
class Blocks:
    """The influences of one input in blocks of positions; made by `plan`."""

    asked: Asked
    size: int  # positions of a block
    choice: Choice
    rounding: Done  # results with radii
    key: Mapping[str, Any]  # everything that all blocks' results depend on
    progress: Progress | None = None  # counts positions as they are done
    mesh: Mesh | None = None  # devices that positions are shared out over; None is one
    # Base pass of all blocks.
    shared: SharedBase = dataclasses.field(default_factory=SharedBase)
    # Records of finished blocks.
    found: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    @classmethod
    def plan(
        cls, asked: Asked, progress: Progress | None = None, mesh: Mesh | None = None
    ) -> "Blocks":
        """Blocks of a request."""
        subject, question = asked.subject, asked.subject.question
        whole = asked.request(0, len(asked.tokens), mesh=mesh)
        choice = choose_method(question.method, whole)
        way = choice.way
        rounding = choose_rounding(whole, way, asked.rounding)
        size = block_size(whole, choice.way)
        key = {
            "command": "influence",
            "version": __version__,
            "dtype": subject.model.dtype.name,
            "seed": subject.seed,
            "target": target_key(question.target),
            "method": choice.way.name,
            "ties": question.ties,
            "rounding": rounding,
            "include_query": asked.include_query,
            "query": question.query,
            # Sizes change the last bits: results of other sizes are not continued. A
            # limit that leaves the sizes as they are changes nothing.
            **block_columns(choice.sizes),
            **asked.hashes,
        }
        if asked.tokenizer is not None:
            key["special"] = list(asked.tokenizer.special)  # which are left alone
        if asked.symbols is not None:
            symbols = canonical_json(asked.symbols.tolist()).encode()
            key["symbols_sha256"] = sha256(symbols)
        if isinstance(way, Proposed):
            key["propose"] = way.precision
        if question.precision is not None:
            key["precision"] = question.precision
        if isinstance(way, Screened):
            key |= {"rtol": way.rtol, "budget": way.budget}
        return cls(asked, size, choice, rounding, key, progress, mesh)

    @property
    def encloses(self) -> bool:
        """True if all positions are done at once, by a screen or a proposal."""
        return isinstance(self.choice.way, Screen)

    def request(self, start: int, stop: int) -> InfluenceRequest:
        """InfluenceRequest of the positions [start, stop)."""
        return self.asked.request(start, stop, mesh=self.mesh, shared=self.shared)

    def cells(self) -> list[Cell]:
        """Blocks as cells of a sweep, by position; last the error of half precision."""
        asked, n = self.asked, len(self.asked.tokens)
        return with_error(
            [self.cell(start) for start in range(0, n, self.size)],
            asked.subject.question.precision,
            lambda: self.request(0, n),
        )

    def cell(self, start: int, most: int | None = None) -> Cell:
        """A block from a position on as a cell, or a piece of `most` positions.

        The end of a piece stands in its result (`reached`), not in its key.
        """
        stop = min(start - start % self.size + self.size, len(self.asked.tokens))
        config = {**self.key, "start": start, "stop": stop}
        end = stop if most is None else min(start + most, stop)
        label = f"positions {start} to {end - 1}"

        def compute() -> dict[str, Any]:
            reported = 0

            def report(done: int, total: int) -> None:
                nonlocal reported
                if self.progress is None:
                    return
                if self.encloses and reported == end - start:  # it counts those left
                    self.progress.recount(done, total)
                    return
                now = (end - start) * done // total
                if now < end - start or self.encloses:  # the last has a note
                    self.progress.advance(label, now - reported)
                    reported = now

            found = self._find(config, self.request(start, end), report)
            piece = {**found, **({} if end == stop else {REACHED: end})}
            if self.progress is not None:
                self.progress.note(largest_so_far([*self.found, piece]))
                self.progress.advance(label, end - start - reported)
            return piece

        def is_whole(found: Mapping[str, Any]) -> bool:
            pairs = self.request(start, found.get(REACHED, stop)).pairs
            return has_numbers(found, len(pairs))

        form = ENCLOSED_FORM if self.encloses else GATHERED_FORM
        form = {
            **form,
            **{"position": (range(start, stop), None), "=": is_whole},
            f"{REACHED}?": range(start + 1, stop),
        }
        return Cell(config, label, compute, form=form)

    def _find(
        self, config: Mapping[str, Any], request: InfluenceRequest, report: Any
    ) -> dict[str, Any]:
        """Record of the influences of some positions."""
        choice, ties = self.choice, self.asked.subject.question.ties
        run = Run(checkpoint=self.asked.checkpoint(config), progress=report)
        found = find(request, choice, self.rounding, run)
        if not isinstance(found, Enclosures):
            judge_ties(request.model, found.ties, "these positions", ties)
            return record_gathered(request, found)
        reason = choice.reason
        if isinstance(choice.way, Proposed) and found.values.size:
            reason = proposal_reason(choice, found)
        return record_enclosed(request, found, reason)

    def top(self, values: Float[np.ndarray, "substitutions"] | None) -> Cell:
        """Cell that makes runs with moved inputs of the largest influences."""
        n = len(self.asked.tokens)
        return top_cell(self.key, lambda: self.request(0, n), self.choice, n, values)

    @property
    def moves_top(self) -> bool:
        """True if the largest influences are moved when all are known."""
        return self.rounding == "top" and not self.encloses

    def values(
        self, found: Sequence[Mapping[str, Any]]
    ) -> Float[np.ndarray, "substitutions"]:
        """Influences of all pieces in order."""
        return Found.join([gathered(one) for one in found]).values

    def join(
        self, found: Sequence[Mapping[str, Any]], top: Mapping[str, Any] | None
    ) -> Influence:
        """Joins the pieces, given in order, and the moves of the largest."""
        n, vocab = len(self.asked.tokens), self.asked.subject.model.vocab_size
        request, choice = self.request(0, n), self.choice
        few = len(request.pairs) <= MAX_PAIRS and n * vocab <= MAX_TABLE
        if self.encloses:
            (one,) = found
            choice = dataclasses.replace(choice, reason=one["reason"])
            whole = enclosures(one)
        else:
            whole = add_top(Found.join([gathered(one) for one in found]), top)
        keep: Keep = "pairs" if few else "position_max"
        return settle(request, choice, whole, self.rounding, "ignore", keep)

    def least(self) -> int:
        """Positions of the smallest piece of a block.

        A piece has as many substitutions as the method works on at a time, so that each is
        computed in a piece as in the block.
        """
        choice = self.choice
        if self.encloses or isinstance(choice.way, Lumped):
            return self.size  # lumping computes classes: its blocks are not cut
        if choice.sizes is None:
            return max(1, SPARSE_PIECE // self.asked.symbols_each)
        devices = count_devices(self.mesh)
        together = UNDER_WAY * devices * choice.sizes.substitutions
        return max(1, together // self.asked.symbols_each)


def block_size(request: InfluenceRequest, way: Method | Screen) -> int:
    """Positions that are done, and recorded, at a time."""
    n = request.tokens.size
    if isinstance(way, Screen):
        return n  # the search is for the largest of all
    # A run has one base pass for all blocks of `incremental`, which are worth some ten
    # passes together. `exhaustive` takes a base pass for every position. `lumped` looks
    # at each class of positions once in every block.
    if way.name == Exhaustive.name:  # in buckets of lengths too
        return 256
    if isinstance(way, Lumped) or len(request.model.layers) <= 2:
        return max(8192, -(-n // 4))
    return max(1024, n // 16) if is_sparse(request) else 256


def largest_so_far(found: Iterable[Mapping[str, Any]]) -> str:
    """Words on the largest influence so far."""
    somewhere = [one for one in found if one["position"] is not None]
    if not somewhere:
        return ""
    best = max(somewhere, key=lambda one: one["max"])
    return f"largest so far {best['max']:.6g} at position {best['position']}"


def rows_of(result: Influence) -> list[dict[str, Any]]:
    """Substitutions of a result as rows, by position, then symbol."""
    if result.lower is not None and result.upper is not None:
        assert result.enclosed is not None
        tables = result.lower, result.upper, result.enclosed
        position, symbol = np.nonzero(~np.isnan(result.lower))
        at: Any = position, symbol
    else:
        assert result.position_lower is not None and result.position_upper is not None
        assert result.position_symbol is not None
        assert result.position_enclosed is not None
        tables = result.position_lower, result.position_upper, result.position_enclosed
        position = np.flatnonzero(result.position_symbol >= 0)
        symbol, at = result.position_symbol[position], position
    columns = (x.tolist() for x in (position, symbol, *(x[at] for x in tables)))
    return [
        dict(
            zip(
                COLUMNS,
                (p, s, lower, upper, kind_of_ends(lower, upper, known)),
                strict=True,
            )
        )
        for p, s, lower, upper, known in zip(*columns, strict=True)
    ]
