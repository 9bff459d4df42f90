"""One input's influences in parts of positions, and their records in the store.

A screen is a method that encloses influences between bounds and evaluates some exactly; a
proposal is one that computes all in a cheap float type first.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float

from bounds.cli import parts
from bounds.cli.shared.target import special_symbols, target_key
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
from bounds.influence.checkpoint import checkpoint_name
from bounds.influence.choice import Keep, choose_method
from bounds.influence.find import find
from bounds.influence.method import Method, Screen
from bounds.influence.methods.exhaustive import Exhaustive
from bounds.influence.methods.incremental import is_sparse
from bounds.influence.methods.lumped import Lumped
from bounds.influence.result import (
    Enclosures,
    Found,
    Level,
    MeasuredError,
    Ties,
    judge_ties,
)
from bounds.influence.rounding import choose_rounding
from bounds.influence.targets.table import as_value
from bounds.store.output import canonical_json, sha256
from jax_models.arguments import show
from jax_models.run.mesh import count_devices

# Substitutions beyond which only the largest of each position is kept.
MAX_PAIRS = 2**18
# The same for entries [n, V], since tables are formed of all symbols.
MAX_TABLE = 2**24
# The method's own blocks of a piece, at least: as many run at a time.
UNDER_WAY = 2
# Substitutions of a piece, at least, where a method sizes its blocks as it runs.
SPARSE_PIECE = 64
# Arrays over all substitutions of a piece; the first array has no NaN.
GATHERED = ("values", "moves")
ENCLOSED = ("lower", "upper", "enclosed", *GATHERED)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AskedInfluence(parts.Asked):
    """Model, input and options of the command `influence`; the query counts from 0."""

    include_query: bool  # the query's own token is changed too
    folder: Path  # of the screen's checkpoint

    @property
    def symbols_each(self) -> int:
        """Largest number of substitutes of a position; 1 where there are none."""
        symbols = self.subject.model.vocab_size - 1
        return max(1, symbols if self.symbols is None else self.symbols.shape[-1])

    @property
    def watches_all(self) -> bool:
        """True if the target takes all rows together, not the query's row."""
        return as_value(self.subject.question.target).is_joint

    @property
    def screens(self) -> bool:
        """True if the method is `Screened`, which may leave influences between bounds."""
        return isinstance(self.subject.question.method, Screened)

    @property
    def cheap(self) -> str | None:
        """Float type in which a proposal computes all first; None for other methods."""
        method = self.subject.question.method
        return method.precision if isinstance(method, Proposed) else None

    def request(self, start: int, stop: int, **more: Any) -> InfluenceRequest:
        """Request of the positions [start, stop); `more` as in `build_request`."""
        special = special_symbols(self.subject.model, self.tokenizer)
        special = np.isin(self.tokens[start:stop], special)
        own = {"include_query": self.include_query, **more}
        return self.request_at(start + np.flatnonzero(~special), **own)


FoundInfluence = parts.Joined[AskedInfluence, Influence]


@dataclasses.dataclass(frozen=True, kw_only=True)
class InfluenceParts(parts.Parts[AskedInfluence, Influence]):
    """The influences of one input in parts of positions; made by `plan`."""

    shared: SharedBase  # base pass of all parts

    @classmethod
    def plan(cls, asked: AskedInfluence, mesh: Mesh | None = None) -> "InfluenceParts":
        """Chooses method, rounding, size and key of the parts of a request."""
        question, shared = asked.subject.question, SharedBase()
        whole = asked.request(0, len(asked.tokens), mesh=mesh, shared=shared)
        choice = choose_method(question.method, whole)
        way = choice.way
        rounding = choose_rounding(whole, way, asked.rounding)
        key = {
            **parts.key_of("influence", asked, choice, rounding),
            "seed": asked.subject.seed,
            "target": target_key(question.target),
            "include_query": asked.include_query,
            "query": question.query,
            # Sizes change the last bits: results of other sizes are not continued. A
            # limit that leaves the sizes as they are changes nothing.
            **block_columns(choice.sizes),
        }
        if asked.tokenizer is not None:
            key["special"] = list(asked.tokenizer.special)  # which are left alone
        if asked.symbols is not None:
            symbols = canonical_json(asked.symbols.tolist()).encode()
            key["symbols_sha256"] = sha256(symbols)
        if isinstance(way, Proposed):
            key["propose"] = way.precision
        if isinstance(way, Screened):
            key |= {"rtol": way.rtol, "budget": way.budget}
        return cls(
            whole=whole,
            choice=choice,
            rounding=rounding,
            positions=np.arange(len(asked.tokens)),
            size=part_size(whole, way),
            key=key,
            mesh=mesh,
            encloses=isinstance(way, Screen),
            asked=asked,
            shared=shared,
        )

    def request(self, start: int, stop: int) -> InfluenceRequest:
        """Request of the positions [start, stop)."""
        return self.asked.request(start, stop, mesh=self.mesh, shared=self.shared)

    def find(
        self, cell: parts.Record, request: InfluenceRequest, report: parts.Report
    ) -> parts.Record:
        """Record of one part or piece; ambiguous ties raise or warn by the option `ties`."""
        choice, ties = self.choice, self.asked.subject.question.ties
        run = Run(checkpoint=self.checkpoint(cell), progress=report)
        found = find(request, choice, self.rounding, run)
        reason = choice.reason
        if not isinstance(found, Enclosures):
            judge_ties(request.model, found.ties, "these positions", ties)
        elif isinstance(choice.way, Proposed) and found.values.size:
            reason = proposal_reason(choice, found)
        return record_found(request, found, reason)

    def checkpoint(self, config: parts.Record) -> Path | None:
        """Checkpoint file of a screen or a proposal, named by its key; else None."""
        asked = self.asked
        if asked.cheap is not None:
            return asked.folder / checkpoint_name(config, "proposal")
        if not asked.screens:
            return None
        # A screen that is to go further continues from the same file.
        question = {k: v for k, v in config.items() if k not in ("rtol", "budget")}
        return asked.folder / checkpoint_name(question)

    def is_closed(self, found: parts.Record) -> bool:
        """True if the record is not empty and `Screened` left no substitutions open."""
        return bool(found) and not (self.asked.screens and found["left"])

    def note(self, found: Sequence[parts.Record]) -> str:
        """Words on the largest influence among the records; "" without one."""
        somewhere = [one for one in found if one["position"] is not None]
        if not somewhere:
            return ""
        best = max(somewhere, key=lambda one: one["max"])
        return f"largest so far {best['max']:.6g} at position {best['position']}"

    @property
    def moves_top(self) -> bool:
        """True if the largest influences are recomputed with moved inputs at the end."""
        return self.rounding == "top" and not self.encloses

    def values(
        self, found: Sequence[parts.Record]
    ) -> Float[np.ndarray, "substitutions"]:
        """Influences of all substitutions, from all parts' records in order."""
        return Found.join(list(map(read_found, found))).values

    def result(
        self,
        found: Sequence[parts.Record],
        top: parts.Record | None,
        error: MeasuredError | None,
    ) -> Influence:
        """Joins records in order, with the moved runs `top` of the largest influences."""
        n, vocab = len(self.positions), self.whole.model.vocab_size
        choice = self.choice
        few = len(self.whole.pairs) <= MAX_PAIRS and n * vocab <= MAX_TABLE
        if self.encloses:
            (one,) = found
            choice = dataclasses.replace(choice, reason=one["reason"])
            joined = read_found(one)
        else:
            joined = parts.add_top(Found.join(list(map(read_found, found))), top)
        keep: Keep = "pairs" if few else "position_max"
        result = settle(self.whole, choice, joined, self.rounding, "ignore", keep)
        error = error or result.measured_error
        return dataclasses.replace(result, measured_error=error)

    def describe(self) -> list[str]:
        """Lines of a dry run of `influence`: setting, method, parts, cost and blocks."""
        question = self.asked.subject.question
        target = question.target
        watched = target if isinstance(target, str) else show(target)
        requests = self.requests()
        setting = self.describe_setting(f"query {question.query}, {watched}")
        if not requests:
            return [*setting, "nothing can be substituted"]
        least, longest = self.least(), min(self.size, len(self.positions))
        kept = f"kept every {parts.SECONDS:.0f} s or so, {least} positions at least"
        if 2 * least > longest:
            kept = "each is kept when it is done"
        most = max(len(x.pairs) for x in requests)
        division = f"in {len(requests)} parts of at most {most}; {kept}"
        return [*setting, *self.describe_work(requests, division)]

    def least(self) -> int:
        """Positions of the smallest piece of a part."""
        # As many as the method works on at a time: each is computed as in the whole part.
        choice = self.choice
        if self.encloses or isinstance(choice.way, Lumped):
            return self.size  # lumping computes classes: its parts are not cut
        if choice.sizes is None:
            return max(1, SPARSE_PIECE // self.asked.symbols_each)
        devices = count_devices(self.mesh)
        together = UNDER_WAY * devices * choice.sizes.substitutions
        return max(1, together // self.asked.symbols_each)


def part_size(request: InfluenceRequest, way: Method | Screen) -> int:
    """Number of positions of a part; a screen has one part of all."""
    n = request.tokens.size
    if isinstance(way, Screen):
        return n  # the search is for the largest of all
    # A run has one base pass for all parts of `incremental`, which are worth some ten
    # passes together. `exhaustive` takes a base pass for every position. `lumped` looks
    # at each class of positions once in every part.
    if way.name == Exhaustive.name:  # in buckets of lengths too
        return 256
    if isinstance(way, Lumped) or len(request.model.layers) <= 2:
        return max(8192, -(-n // 4))
    return max(1024, n // 16) if is_sparse(request) else 256


def record_found(
    request: InfluenceRequest, found: Found, reason: str
) -> dict[str, Any]:
    """Record of influences, or of enclosures with the `reason` for the method."""
    values, ties, best = found.values, found.ties, None
    if np.isfinite(values).any():
        best = int(np.nanargmax(values))
    names = ENCLOSED if isinstance(found, Enclosures) else GATHERED
    record = {
        "count": values.size,
        "max": 0.0 if best is None else float(values[best]),
        "position": None if best is None else int(request.position[best]),
        **{name: parts.pack(getattr(found, name)) for name in names},
        "magnitude": found.magnitude,
    }
    if not isinstance(found, Enclosures):
        known = None if ties is None else dataclasses.asdict(ties)
        return record | {"ties": known, "ambiguous": bool(ties and ties.ambiguous)}
    return record | {
        "ambiguous": False,
        "reason": reason,
        "left": found.left,
        "levels": [dataclasses.asdict(level) for level in found.levels],
        parts.ERROR: None if found.error is None else dataclasses.asdict(found.error),
    }


def read_found(found: parts.Record) -> Found:
    """Influences or enclosures that `record_found` recorded."""
    names = ENCLOSED if ENCLOSED[0] in found else GATHERED
    *ends, values, moves = (parts.unpack(found[name], found["count"]) for name in names)
    ties = found.get("ties")
    if ties is not None:
        ties = Ties(**parts.with_infinity({**ties, "scores": tuple(ties["scores"])}))
    computed = values, moves, found["magnitude"], ties
    if not ends:
        return Found(*computed)
    lower, upper, enclosed = ends
    levels = tuple(Level(**level) for level in found["levels"])
    left = np.asarray(found["left"], np.int64)
    ends = lower, upper, enclosed.astype(bool)
    return Enclosures(*computed, *ends, left, levels, parts.read_error(found))
