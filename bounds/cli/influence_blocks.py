"""One input's influences in blocks of positions, so that long work can be resumed."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from jax.sharding import Mesh

import jax_models as jm
from bounds.cli.influence_question import Asked
from bounds.cli.shared.precision import ERROR, ERROR_FORM, error_columns, with_error
from bounds.cli.shared.progress import Progress
from bounds.cli.shared.target import target_key
from bounds.curves.measurement import block_columns
from bounds.influence import SCREENS, Influence, Problem, SharedBase
from bounds.influence.choice import Choice, Keep, choose_method
from bounds.influence.compute import Propose, answer
from bounds.influence.exhaustive import EXHAUSTIVE
from bounds.influence.incremental import is_sparse
from bounds.influence.lumped import LUMPED
from bounds.numbers.kind import kind_of_ends
from bounds.rounding.precision import PRECISIONS
from bounds.store.forms import SIZE, each, fields, ordered
from bounds.store.output import canonical_json, sha256
from bounds.store.sweep import Cell
from bounds.version import __version__
from jax_models.run.mesh import count_devices

# Substitutions beyond which only the largest of each position is kept.
MAX_PAIRS = 2**18
# Entries [n, V] beyond which too, since tables are formed of all symbols.
MAX_TABLE = 2**24
COLUMNS = ("position", "symbol", "lower", "upper", "kind")
# What is recorded of the largest influence, for each block and for the whole input.
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
# The sizes that its method worked in.
BLOCK = ("block_substitutions", "block_rows")
# Behind which position a piece of a block ends; what goes to the block's end has none.
REACHED = "reached"
# The method's own blocks of a piece, at least: so many run at a time.
UNDER_WAY = 2
# Substitutions of a piece, at least, where a method sizes its own on the way.
SPARSE_PIECE = 64


@dataclasses.dataclass(frozen=True)
class Blocks:
    """The influences of one input in blocks of positions. `plan` says which.

    Attributes:
        asked: What is asked.
        size: Positions of a block.
        keep: Which tables are kept.
        key: What all blocks' results depend on.
        choices: How a block is done, by its start: what it costs, and so what is the
            cheapest, is a block's own.
        progress: Counts positions as they are done; None counts nothing.
        mesh: Devices that positions are shared out over; None is one.
        shared: The base pass of all blocks.
        found: What is recorded of those that are done.
    """

    asked: Asked
    size: int
    keep: Keep
    key: Mapping[str, Any]
    choices: dict[int, Choice]
    progress: Progress | None = None
    mesh: Mesh | None = None
    shared: SharedBase = dataclasses.field(default_factory=SharedBase)
    found: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    @classmethod
    def plan(
        cls, asked: Asked, progress: Progress | None = None, mesh: Mesh | None = None
    ) -> "Blocks":
        """Returns the blocks of what is asked."""
        subject, question = asked.subject, asked.subject.question
        n, vocab = len(asked.tokens), subject.model.vocab_size
        size = block_size(subject.model, asked.tokens, question.method, asked.propose)
        few = n * asked.symbols_each <= MAX_PAIRS and n * vocab <= MAX_TABLE
        keep = asked.keep or ("pairs" if few else "position_max")
        # Sizes change the last bits: results of others are not gone on from. A limit that
        # leaves them as they are changes nothing.
        planned = choose_method(question.method, asked.problem(0, min(size, n)))
        key = {
            "command": "influence",
            "version": __version__,
            "dtype": subject.model.dtype.name,
            "seed": subject.seed,
            "target": target_key(question.target),
            "method": question.method,
            "ties": question.ties,
            "include_query": asked.include_query,
            "keep": keep,
            "query": question.query,
            **block_columns(planned.sizes),
            **asked.hashes,
        }
        if asked.tokenizer is not None:
            key["special"] = list(asked.tokenizer.special)  # which are left alone
        if asked.symbols is not None:
            symbols = canonical_json(asked.symbols.tolist()).encode()
            key["symbols_sha256"] = sha256(symbols)
        if asked.propose is not None:
            key["propose"] = asked.propose
        if question.precision is not None:
            key["precision"] = question.precision
        if asked.screens:
            key |= {"rtol": asked.stopping.rtol, "budget": asked.stopping.budget}
        return cls(asked, size, keep, key, {0: planned}, progress, mesh)

    def cells(self) -> list[Cell]:
        """Returns the blocks as cells of a sweep, in order of position.

        Behind them stands what measures the error of half precision.
        """
        asked, n = self.asked, len(self.asked.tokens)
        return with_error(
            [self.cell(start) for start in range(0, n, self.size)],
            asked.subject.question.precision,
            lambda: asked.problem(0, n, mesh=self.mesh, shared=self.shared),
        )

    def cell(self, start: int, most: int | None = None) -> Cell:
        """Returns a block from a position on as a cell, or a piece of `most` positions.

        Where a piece ends stands in its result (`reached`), not in its key.
        """
        asked, question = self.asked, self.asked.subject.question
        stop = min(start - start % self.size + self.size, len(asked.tokens))
        config = {**self.key, "start": start, "stop": stop}
        end = stop if most is None else min(start + most, stop)
        label = f"positions {start} to {end - 1}"

        def compute() -> dict[str, Any]:
            reported, counted = 0, False

            def report(done: int, total: int) -> None:
                nonlocal reported, counted
                if self.progress is None:
                    return
                if counted:  # a screen counts what its levels left
                    self.progress.advance(label, end - start - reported)
                    reported = end - start
                    self.progress.recount(done, total)
                    return
                if done == total:  # told below, beside what it found
                    counted = True
                    return
                self.progress.advance(label, (end - start) * done // total - reported)
                reported = (end - start) * done // total

            kept = asked.checkpoint(config)
            stopping = dataclasses.replace(
                asked.stopping, checkpoint=None if kept is None else str(kept)
            )
            found = answer(
                asked.problem(start, end, mesh=self.mesh, shared=self.shared),
                self.choice(start),
                question.ties,
                self.keep,
                stopping,
                report,
                propose=asked.propose,
            )
            piece = summarise(found) | ({} if end == stop else {REACHED: end})
            if self.progress is not None:
                self.progress.note(largest_so_far([*self.found, piece]))
                self.progress.advance(label, end - start - reported)
            return piece

        symbols = range(asked.subject.model.vocab_size)
        form = {
            **fields(*SUMMARY, *BLOCK, "ambiguous kind? hypotheses?", levels=[dict]),
            **{"ties": (dict, None), f"{ERROR}?": ERROR_FORM},
            **{"position": (range(stop), None), "symbol": (symbols, None)},
            "=": ordered("max_lower", "max_upper"),
            f"{REACHED}?": range(start + 1, stop),
            "substitutions": {
                **{"position": [range(stop)], "symbol": [symbols]},
                **each("lower upper", [SIZE]),
                "=": lambda found: len({*map(len, found.values())}) == 1,
            },
        }
        return Cell(config, label, compute, form=form)

    def choice(self, start: int) -> Choice:
        """Returns how the block of a position is done."""
        first = start - start % self.size
        if first not in self.choices:
            stop = min(first + self.size, len(self.asked.tokens))
            more = {"mesh": self.mesh, "shared": self.shared}
            problem = self.asked.problem(first, stop, **more)
            self.choices[first] = choose_method(
                self.asked.subject.question.method, problem
            )
        return self.choices[first]

    def least(self, start: int) -> int:
        """Returns the positions of the smallest piece of a block.

        As many substitutions as the method works on at a time, so that each is computed
        in a piece as in the block. A screen looks for the largest of all, float32
        proposes one of a block, and lumping computes classes: theirs are not cut.

        Args:
            start: A position of the block.
        """
        choice = self.choice(start)
        if self.asked.screens or self.asked.propose or choice.way is LUMPED:
            return self.size
        if choice.sizes is None:
            return max(1, SPARSE_PIECE // self.asked.symbols_each)
        devices = count_devices(self.mesh)
        together = UNDER_WAY * devices * choice.sizes.substitutions
        return max(1, together // self.asked.symbols_each)


def block_size(
    model: jm.Transformer,
    tokens: np.ndarray,
    method: str,
    propose: Propose | None = None,
) -> int:
    """Returns how many positions are done, and recorded, at a time.

    A run has one base pass for all blocks of `incremental`, which are worth some ten
    passes together; `exhaustive` takes one for every position, and `lumped` looks at each
    class of positions once in every block.
    """
    if method in SCREENS or propose in PRECISIONS:
        return len(tokens)  # the largest of all is what it looks for
    if method == EXHAUSTIVE.name:
        return 256
    n, problem = len(tokens), Problem.ask(model, tokens, positions=())
    able = method in ("auto", LUMPED.name)
    lumps = able and LUMPED.refuse(problem) is None
    if lumps or len(model.layers) <= 2:
        return max(8192, -(-n // 4))
    return max(1024, n // 16) if is_sparse(problem) else 256


def summarise(result: Influence) -> dict[str, Any]:
    """Returns what is recorded of one block: the largest influence, and all of them."""
    ends = result.position_lower, result.position_upper
    if result.lower is not None and result.upper is not None:
        position, symbol = np.nonzero(~np.isnan(result.lower))
        lower, upper = result.lower[position, symbol], result.upper[position, symbol]
    elif result.position_symbol is not None:
        position = np.flatnonzero(result.position_symbol >= 0)
        symbol = result.position_symbol[position]
        lower, upper = (end[position] for end in ends if end is not None)
    else:
        position, symbol, lower, upper = np.empty((4, 0))
    return {
        **{name: getattr(result, name) for name in SUMMARY},
        **({"kind": result.kind} if result.estimated else {}),  # others by their ends
        **({"hypotheses": result.hypotheses} if result.estimated else {}),
        **error_columns(result.measured_error),
        **block_columns(result.block),
        "levels": [dataclasses.asdict(level) for level in result.levels],
        "ambiguous": result.ties is not None and result.ties.ambiguous,
        "ties": None if result.ties is None else dataclasses.asdict(result.ties),
        "substitutions": {
            "position": position,
            "symbol": symbol,
            "lower": lower,
            "upper": upper,
        },
    }


def largest_so_far(found: Iterable[Mapping[str, Any]]) -> str:
    """Returns the largest influence of what is done, in words."""
    somewhere = [one for one in found if one["position"] is not None]
    if not somewhere:
        return ""
    best = max(somewhere, key=lambda one: one["max"])
    return f"largest so far {best['max']:.6g} at position {best['position']}"


def read_rows(block: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the substitutions of a recorded block as rows, by position, then symbol."""
    columns = block["substitutions"]
    names = ("position", "symbol", "lower", "upper")
    estimated = block.get("kind") == "estimated"
    return [
        dict(zip(names, row, strict=True))
        | {"kind": kind_of_ends(row[2], row[3], estimated)}
        for row in zip(*(columns[name] for name in names), strict=True)
    ]
