"""Measurements: the maximum influence of one symbol on one input.

An influence is the size of the change of a watched output by replacing one symbol (a
substitution). A screened influence is enclosed by bounds instead of computed. A row is
a line of a table with named columns. A variant of a model has its weights with another
weighting (softmax or hard) or temperature of attention.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Int

from bounds.curves.inputs import InputSource
from bounds.figures.primitives import MAX_SERIES
from bounds.influence.answer import answer
from bounds.influence.blocks.block_memory import BlockSizes
from bounds.influence.build import build_request
from bounds.influence.choice import SCREENS, Choice, choose_method, precision_of
from bounds.influence.method import Run, Way
from bounds.influence.request import InfluenceRequest
from bounds.influence.targets.table import as_value
from bounds.numbers.notation import parse_temperature, temperature_label
from bounds.store.output import sha256
from jax_models.errors import InputError
from jax_models.format.pieces import decode_temperature, encode_temperature
from jax_models.model.reweight import at_length, with_temperature, with_weighting
from jax_models.model.transformer import Transformer
from jax_models.run.evaluate import TieRule
from jax_models.weighting import WEIGHTINGS

# Columns of `measure`, in order.
ROW = (
    "influence_lower",
    "influence_upper",
    "position",
    "symbol",
    "method",
    "block_substitutions",
    "block_rows",
    "exact",
    "kind",
    "ambiguous",
)

Variant = tuple[str | None, str | None]  # weighting and temperature; None: the model's

MAIN_JOB: tuple[Variant, ...] = (
    ("leftmost_hard", None),
    ("average_hard", None),
    ("softmax", None),
    ("softmax", "inverse_log:1"),
)


@dataclasses.dataclass(frozen=True)
class Question:
    """Options of the measurement of a largest influence, for any model and input."""

    # Position whose output is watched; negative ones count from the end.
    query: int = -1
    # "activation", "logits", or another target of influences.
    target: Any = "activation"
    method: Way | str = "auto"
    # Treatment of an ambiguous tie of hard attention: "error" or "warn".
    ties: TieRule = "error"
    # Bytes for the blocks under way; None is the device's memory.
    memory_limit: int | None = None

    @property
    def watched(self) -> dict[str, Any]:
        """Watched position and target, as keyword arguments of influence functions."""
        return {"query": self.query, "target": self.target}

    def request(
        self,
        model: Transformer,
        tokens: Int[np.ndarray, "tokens"],
        mesh: Mesh | None = None,
        **more: Any,
    ) -> InfluenceRequest:
        """`InfluenceRequest` that asks this question of a model and an input."""
        return build_request(
            model,
            tokens,
            **self.watched,
            run=Run(mesh=mesh, memory_limit=self.memory_limit),
            precision=precision_of(self.method),
            **more,
        )


@dataclasses.dataclass(frozen=True)
class Subject:
    """A model, its inputs, and the question measured on each."""

    model: Transformer
    model_sha256: str  # the model's hash, its name in a store
    source: InputSource
    # Tokens by length n and index.
    inputs: Mapping[tuple[int, int], Int[np.ndarray, "tokens"]]
    question: Question
    seed: int  # of samples and searches

    @property
    def label(self) -> str:
        """Label of the model: its attention weighting and temperature."""
        return weighting_label(self.model)

    @property
    def named(self) -> dict[str, str]:
        """Columns of a row that name the model: label and hash."""
        return {"weighting": self.label, "model_sha256": self.model_sha256}

    @property
    def tokens(self) -> Int[np.ndarray, "tokens"]:
        """Tokens of the only input; fails if there are several."""
        (tokens,) = self.inputs.values()
        return tokens

    @property
    def hashes(self) -> dict[str, str]:
        """Columns of a row that identify the model and its only input."""
        return {**self.named, "tokens_sha256": tokens_sha256(self.tokens)}

    def config(self, length: int) -> dict[str, Any]:
        """Store key of results on all inputs of `length`, by hashes."""
        hashes = [tokens_sha256(x) for (n, _), x in self.inputs.items() if n == length]
        dtype = self.model.dtype.name
        return {**self.named, "tokens_sha256": hashes, "dtype": dtype}


def measure(
    model: Transformer,
    tokens: Int[np.ndarray, "tokens"],
    question: Question,
    choice: Choice | None = None,
    checkpoint: Path | None = None,
) -> dict[str, Any]:
    """Maximum influence on one input, as a row of the columns `ROW`."""
    request = question.request(at_length(model, len(tokens)), tokens)
    choice = choice or plan(model, tokens, question)
    run = Run(checkpoint=checkpoint)
    result = answer(request, choice, question.ties, keep="max", run=run)
    return {
        "influence_lower": float(result.max_lower),
        "influence_upper": float(result.max_upper),
        "position": result.position,
        "symbol": result.symbol,
        "method": result.method,
        **block_columns(result.block),
        "exact": result.exact,
        "kind": result.kind,
        "ambiguous": result.ties is not None and result.ties.ambiguous,
    }


def plan(
    model: Transformer, tokens: Int[np.ndarray, "tokens"], question: Question
) -> Choice:
    """Chosen method of measuring one input, with its block sizes."""
    request = question.request(at_length(model, len(tokens)), tokens)
    return choose_method(question.method, request, keep="max")


def block_columns(block: BlockSizes | None) -> dict[str, int | None]:
    """Columns of a row: substitutions and token rows that a method computes at once."""
    sizes = block or BlockSizes(0)
    return {
        "block_substitutions": sizes.substitutions or None,
        "block_rows": sizes.rows,
    }


def influence_value(row: Mapping[str, Any]) -> float:
    """Influence in a row of `measure`: the `enclosed_value` of its two ends."""
    screened = row["method"] in SCREENS
    return enclosed_value(row["influence_lower"], row["influence_upper"], screened)


def enclosed_value(lower: float, upper: float, screened: bool) -> float:
    """Middle of an enclosure, 0 if its lower end is 0; its upper end if `screened`."""
    if screened:
        return upper
    # An influence with a lower end of 0 is not told apart from 0.
    return 0.5 * (lower + upper) if lower > 0 else 0.0


def influence_peaks(result: Any) -> tuple[dict[int, float], str]:
    """Largest influence at each position of an `Influence`, and an axis label."""
    screens = result.method in SCREENS
    at = np.flatnonzero(result.position_symbol >= 0)
    ends = (result.position_lower[at], result.position_upper[at])
    values = (enclosed_value(*x, screens) for x in zip(*ends, strict=True))
    what = "upper bound on the influence" if screens else "largest influence"
    what += "" if result.exact else f", {result.kind}"
    peaks = dict(zip(at.tolist(), map(float, values), strict=True))
    return peaks, f"{what} ({as_value(result.target).label})"


def weighting_label(model: Transformer) -> str:
    """Label of a model, its weighting and temperature, as `softmax@inverse_log:1`."""
    attentions = [layer.attention for layer in model.layers]
    names = dict.fromkeys(attention.weighting.name for attention in attentions)
    temperatures = dict.fromkeys(
        temperature_label(encode_temperature(attention.temperature))
        for attention in attentions
    )
    label = "+".join(names) or "none"
    return label if set(temperatures) <= {"1"} else f"{label}@{'+'.join(temperatures)}"


def tokens_sha256(tokens: Int[np.ndarray, "tokens"]) -> str:
    """SHA-256 of tokens as a little-endian int32 array."""
    return sha256(np.asarray(tokens, "<i4").tobytes())


def reweighted(
    model: Transformer, weighting: str | None, temperature: str | None
) -> Transformer:
    """The model under a weighting and a temperature; None keeps the model's own."""
    if weighting is not None:
        model = with_weighting(model, weighting)
    if temperature is not None:
        entry = parse_temperature(temperature)
        model = with_temperature(model, decode_temperature("--temperature", entry))
    return model


def combine(
    model: Transformer,
    weightings: Sequence[str | None],
    temperatures: Sequence[str | None],
) -> list[Variant]:
    """Variants of all weightings and temperatures, hard ones with the first only."""
    variants = []
    for weighting in weightings:
        is_hard = model.is_hard if weighting is None else WEIGHTINGS[weighting].hard
        # A temperature divides all scores of a row, and leaves the winners of hard attention.
        some = temperatures[:1] if is_hard else temperatures
        variants += [(weighting, temperature) for temperature in some]
    return variants


def reweighted_models(
    model: Transformer, variants: Sequence[Variant]
) -> list[Transformer]:
    """Models of the variants of a model, one for each distinct `weighting_label`."""
    models = [reweighted(model, *variant) for variant in variants]
    if len(models) > MAX_SERIES:
        raise InputError(
            f"{len(models)} combinations of --weighting and --temperature; a figure "
            f"tells at most {MAX_SERIES} lines apart"
        )
    return list({weighting_label(variant): variant for variant in models}.values())
