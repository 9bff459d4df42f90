"""Restrictions of a concrete hard-attention model: fix few bits, make its output constant.

By the theorem of Hahn (2020) such a restriction exists for long inputs; here one is found
for a given model and length, with a certificate in JSON that a checker without code of the
search can verify (docs/certificates-of-restrictions.md, section 1). A counterexample is a
pair of completions of the partial input, of which one is in a language.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

import jax_models as jm
from bounds.influence.substitution import check_query
from bounds.restriction.analysis import (
    FREE,
    Analysis,
    PartialInput,
    analyse,
    check_hard_model,
    output_dependence,
    read_partial_input,
)
from bounds.restriction.search import (
    Method,
    Remember,
    Report,
    Search,
    SearchPlan,
    Stage,
    forget,
)
from bounds.store.output import sha256
from jax_models import Transformer, model_bytes
from jax_models.arguments import BriefRepr, expect_hook, expect_length, show
from jax_models.errors import InputError
from jax_models.run.device_memory import require_memory

FORMAT = "attention-bounds restriction certificate 1"
TIES = {1: "L", -1: "R", 0: "avg"}  # by the side of a weighting

T = TypeVar("T")
Tokens = Int[np.ndarray, "tokens"]
Output = Float[np.ndarray, "width"]


def certificate_of(
    model: Transformer, analysis: Analysis, output: Output
) -> dict[str, Any]:
    """Returns the certificate (JSON) of an analysis that found the output constant."""
    partial = analysis.partial
    attentions = [layer.attention for layer in model.layers]
    return {
        "format": FORMAT,
        "n": partial.length,
        "L": len(model.layers),
        "H": _shared([attention.num_heads for attention in attentions]),
        "tie": _shared([TIES[attention.weighting.side] for attention in attentions]),
        "mask": _shared([attention.mask for attention in attentions]),
        "model_digest": sha256(model_bytes(model)),
        "symbols": list(partial.symbols),
        "rho": partial.tokens.tolist(),
        "query": analysis.query,
        "mode": "exact" if analysis.exact else "floating",
        "layers": [
            {str(position): entry for position, entry in layer.items()}
            for layer in analysis.layers
        ],
        "output": output.tolist(),
        "pair": None,
        "language": None,
        "members": None,
        "free": len(partial.free),
        "log2_misclassified": None,
    }


def _shared(values: Sequence[T]) -> T | list[T]:
    """One value where those of all layers are equal, else the list of all."""
    return values[0] if len(set(values)) == 1 else list(values)


@dataclasses.dataclass(frozen=True, repr=False)
class Restriction(BriefRepr):
    """A partial input under which a model's output is the same for all completions.

    Attributes:
        rho: The token of each position, -1 where it is free.
        symbols: The two tokens that a free position may hold.
        given: Tokens that were fixed beforehand, in the form of `rho`.
        free: The free positions, ascending.
        query: The position that is read.
        output: Final activation at `query`, for every completion.
        mode: "exact" where every number of the analysis is known to the bit, else
            "floating": decided within proven rounding bounds.
        method: The kind of search: "greedy", "alteration" or "member".
        stages: Partial inputs after each stage of the search.
        certificate: The certificate, a JSON object.
        pair: Two completions of which one is in the language, or None.
        language: The language of a counterexample, or None.
        members: Whether each of the pair is in the language, or None.
        log2_misclassified: Binary logarithm of the number of inputs that are certain to
            be misclassified, where it is known.
        reasons: Findings, or reasons for having none, in sentences.
    """

    rho: Tokens
    symbols: tuple[int, int]
    given: Tokens
    free: tuple[int, ...]
    query: int
    output: Output
    mode: str
    method: str
    stages: tuple[Stage, ...]
    certificate: dict[str, Any] = dataclasses.field(repr=False)
    pair: tuple[Tokens, Tokens] | None = None
    language: str | None = None
    members: tuple[bool, bool] | None = None
    log2_misclassified: int | None = None
    reasons: tuple[str, ...] = ()

    @property
    def partial(self) -> PartialInput:
        """The restriction as a partial input."""
        return PartialInput(self.rho, self.symbols)

    @property
    def where_read(self) -> str:
        """Words that name the position read; empty if it is the last."""
        last = self.query == len(self.rho) - 1
        return "" if last else f", read at position {self.query}"

    def row(self) -> dict[str, Any]:
        """Table row of the restriction, one of a sweep over lengths."""
        return {
            "n": len(self.rho),
            "free": len(self.free),
            "given_free": int((self.given == FREE).sum()),
            "method": self.method,
            "mode": self.mode,
            "log2_misclassified": self.log2_misclassified,
            "certificate": self.certificate,
        }

    def describe(self, seconds: float) -> list[str]:
        """Lines on an accepted restriction and its counterexample, found in `seconds`."""
        n, free = len(self.rho), len(self.free)
        given = int((self.given == FREE).sum())
        stages = ", ".join(f"{stage.free} after {stage.name}" for stage in self.stages)
        lines = [
            f"n = {n}: {free} of {given} positions stay free ({stages or 'nothing fixed'}); "
            f"found by {self.method} search in {seconds:.1f} s, decided in {self.mode} "
            "arithmetic.",
            f"The final activation at position {self.query} is the same for all 2^{free} "
            "completions.",
        ]
        if self.pair is not None:
            assert self.members is not None
            member = self.members.index(True)
            which = ("first", "second")[member]
            lines.append(f"Of this pair the {which} alone is in {self.language}:")
            lines += [f"  {_text(tokens)}" for tokens in self.pair]
        if self.log2_misclassified is not None:
            lines.append(
                f"At least 2^{self.log2_misclassified} inputs of length {n} are "
                f"misclassified{self.where_read}."
            )
        lines += [reason[0].upper() + reason[1:] + "." for reason in self.reasons]
        return [*lines, "The independent checker accepts the certificate."]


def find_restriction(
    model: jm.Transformer,
    length: int,
    *,
    pre_restriction: ArrayLike | None = None,
    symbols: Sequence[int] = (0, 1),
    query: int = -1,
    caps: Sequence[int] | None = None,
    method: Method = "auto",
    attempts: int | None = None,
    reverse_pass: bool | None = None,
    seed: int = 0,
    report: Report | None = None,
    remember: Remember = forget,
) -> Restriction:
    """Returns a restriction that makes the query's final activation constant.

    The greedy search fixes bits until every row below the last layer depends on few,
    then closes the last layer; the reverse pass frees bits fixed needlessly. Every
    restriction is analysed again from scratch, with its rounding, before it is returned.
    Unique-hard models have one with free bits beyond the lengths that the command
    `depth` lists; for average-hard ones the search is as sound, but nothing says that a
    bit stays free.

    Args:
        model: A float64 transformer whose layers are all of hard attention.
        length: n, every token counted.
        pre_restriction: Tokens [n] that are fixed beforehand, -1 where a position is
            free; by default all are free.
        symbols: The two tokens that a free position may hold.
        query: The position whose final activation is the output.
        caps: For each layer but the last, the free bits that a row may depend on; by
            default a few for every head and layer, varied between attempts.
        method: "greedy", "alteration" (random restriction and repairs), or "auto":
            greedy, and alteration where that leaves no bit free.
        attempts: Searches, of which the one with most free bits is taken; the first is
            deterministic, others shuffle votes. By default 6 for n <= 128, else 1.
        reverse_pass: Whether to free bits in a reverse pass; by default for n <= 128.
        seed: Seed of the attempts and draws.
        report: Called with each stage's name and partial input, round by round.
        remember: Called with the name of each part of the search, the function that makes
            a record of its result, a JSON object, and the one that reads it; returns what
            is read of that record, or of a kept one.

    Returns:
        The restriction, its certificate and the partial input after each stage.

    Raises:
        InputError: for a model with soft attention, without layers or in float32, or
            arguments that do not fit it; or where rounding decides a winner that no free
            bit has a part in.

    Source:
        Hahn 2020, Theorem 1 and Lemma 4, as an algorithm: docs/restriction.md.
    """
    plan = SearchPlan(
        caps,
        method,
        attempts,
        reverse_pass,
        seed=seed,
        remember=remember,
        report=report,
    )
    return restrict(model, length, pre_restriction, symbols, query, plan)


def require_table(length: int) -> None:
    """Refuses a length n if n x n flags (does row i depend on bit j) exceed memory."""
    # Float32, in `Tables.dependence`.
    require_memory(f"a restriction of length n = {length}", 4 * length**2)


def restrict(
    model: jm.Transformer,
    length: int,
    pre_restriction: ArrayLike | None,
    symbols: Sequence[int],
    query: int,
    plan: SearchPlan,
) -> Restriction:
    """Best restriction that `plan` finds; arguments are those of `find_restriction`."""
    expect_hook("report", plan.report)
    if not callable(plan.remember):
        raise InputError(f"remember = {show(plan.remember)}; expected a function")
    model = check_hard_model(model)
    length = expect_length(length)
    plan.check(model)
    require_table(length)
    query = check_query(query, length)
    if pre_restriction is None:
        pre_restriction = np.full(length, FREE)
    size, what = model.vocab_size, "the pre-restriction"
    given = read_partial_input(what, pre_restriction, symbols, size, length)
    found = Search(model, given, query, plan).find_best()
    # From scratch: nothing that the search tabulated is used.
    analysis = analyse(model, found.partial, query)
    # Tables shrink under further restriction: what closed the search closes this.
    assert analysis.constant
    partial = analysis.partial
    # Any completion will do, as the output is the same for all.
    tokens = partial.complete(np.zeros(len(partial.free), int))
    output = final_activation(model, tokens, query)
    reasons = ()
    if not partial.free and given.free:
        left = output_dependence(model, given, query)
        many = "" if left is None else f" (the possible sets leave {left} that matter)"
        reasons = (
            f"no bit is left free of {len(given.free)}{many}: the output may depend on "
            "all of them, and nothing is shown; try a longer input or more attempts",
        )
    return Restriction(
        rho=partial.tokens,
        symbols=partial.symbols,
        given=given.tokens,
        free=partial.free,
        query=query,
        output=output,
        mode="exact" if analysis.exact else "floating",
        method=found.method,
        stages=found.stages,
        certificate=certificate_of(model, analysis, output),
        reasons=reasons,
    )


def final_activation(model: jm.Transformer, tokens: Tokens, query: int) -> Output:
    """Returns the final activation at a position, as the model computes it."""
    # Winners were decided by proven bounds; a tie elsewhere does not matter here.
    return np.asarray(jm.apply(model, tokens, ties="ignore"))[query]


def _text(tokens: Tokens) -> str:
    """Tokens as text; of more than 64, the first and the last 32."""
    words = [str(token) for token in tokens.tolist()]
    if len(words) > 64:
        words = [*words[:32], "…", *words[-32:]]
    return " ".join(words)
