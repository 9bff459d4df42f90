"""One measurement: the maximum influence of one symbol on one input of one model."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jax.sharding import Mesh

from bounds.curves.inputs import InputSource
from bounds.influence.answer import answer
from bounds.influence.block_memory import BlockSizes
from bounds.influence.build import build_request
from bounds.influence.choice import SCREENS, Choice, choose_method, precision_of
from bounds.influence.method import Way
from bounds.influence.request import InfluenceRequest
from bounds.influence.run import Run
from bounds.numbers.notation import temperature_label
from bounds.rounding.precision import Precision
from bounds.store.forms import fields, ordered
from bounds.store.output import sha256
from jax_models.format.temperature import encode_temperature
from jax_models.model.reweight import at_length
from jax_models.model.transformer import Transformer
from jax_models.run.evaluate import TieRule

# What `measure` says, in the order of columns.
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
FORM = fields(
    *(*ROW, "input", "weighting"),
    **{"=": ordered("influence_lower", "influence_upper")},
)


@dataclasses.dataclass(frozen=True)
class Question:
    """What is asked about a model and an input.

    Attributes:
        query: Position whose output is looked at; negative ones count from the end.
        target: "activation", "logits", or what else influences may watch.
        method: An influence method, its name, or "auto".
        ties: What an ambiguous tie of hard attention is: "error" or "warn".
        memory_limit: Bytes for the blocks under way; None is what the device has.
    """

    query: int = -1
    target: Any = "activation"
    method: Way | str = "auto"
    ties: TieRule = "error"
    memory_limit: int | None = None

    @property
    def precision(self) -> Precision | None:
        """Half precision of the products of changes; None for the model's float type."""
        return precision_of(self.method)

    def request(
        self,
        model: Transformer,
        tokens: np.ndarray,
        mesh: Mesh | None = None,
        **more: Any,
    ) -> InfluenceRequest:
        """Returns the question put to a model and an input.

        Args:
            model: The model.
            tokens: The input [n].
            mesh: Devices to share the substitutions out over.
            more: As `build_request` takes it.

        Raises:
            InputError: It does not fit them.
        """
        return build_request(
            model,
            tokens,
            query=self.query,
            target=self.target,
            run=Run(mesh=mesh, memory_limit=self.memory_limit),
            precision=self.precision,
            **more,
        )


@dataclasses.dataclass(frozen=True)
class Subject:
    """A model, inputs, and what is asked about them.

    Attributes:
        model: The model.
        model_sha256: What names it in a store.
        source: Where its inputs come from.
        inputs: Tokens [n], by length n and index.
        question: What is asked of each.
        seed: Of what is sampled or searched.
    """

    model: Transformer
    model_sha256: str
    source: InputSource
    inputs: Mapping[tuple[int, int], np.ndarray]
    question: Question
    seed: int

    @property
    def label(self) -> str:
        """The model's weighting in a word."""
        return weighting_label(self.model)

    @property
    def named(self) -> dict[str, str]:
        """What names the model in a row."""
        return {"weighting": self.label, "model_sha256": self.model_sha256}

    def config(self, length: int) -> dict[str, Any]:
        """Key of results on all inputs of a length."""
        hashes = self.tokens_sha256(length)
        dtype = self.model.dtype.name
        return {**self.named, "tokens_sha256": hashes, "dtype": dtype}

    def tokens_sha256(self, length: int) -> list[str]:
        """Returns the hashes of all inputs of a length."""
        return [tokens_sha256(x) for (n, _), x in self.inputs.items() if n == length]


def measure(
    model: Transformer,
    tokens: np.ndarray,
    question: Question,
    choice: Choice | None = None,
    checkpoint: Path | None = None,
) -> dict[str, Any]:
    """Returns the maximum influence on one input, as a row of a curve.

    Args:
        model: The model.
        tokens: The input [n].
        question: What is asked.
        choice: How it is done, if that was planned.
        checkpoint: Where a screen keeps where it stands.

    Returns:
        `influence_lower` and `influence_upper`, which enclose the maximum, and its
        `kind`, which is `exact` or not; the `position` and `symbol` that attain it
        (None where nothing can be substituted); the `method`, and the sizes of its
        blocks (None where it found them on the way); and whether a hard winner was
        `ambiguous`, decided within rounding.

    Raises:
        InputError: The tokens do not fit the model, or the method refuses it.
    """
    request = question.request(at_length(model, len(tokens)), tokens)
    choice = choice or choose_method(question.method, request, keep="max")
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


def plan(model: Transformer, tokens: np.ndarray, question: Question) -> Choice:
    """Returns how an input will be measured; its block sizes are part of a cell's key.

    They move the last bits of an answer, so it is kept under them.

    Args:
        model: The model.
        tokens: The input [n].
        question: What is asked.

    Raises:
        InputError: The method refuses the question, or memory is too small for it.
    """
    request = question.request(at_length(model, len(tokens)), tokens)
    return choose_method(question.method, request, keep="max")


def block_columns(block: BlockSizes | None) -> dict[str, int | None]:
    """Returns the sizes of a method's blocks as columns of a row.

    Args:
        block: The sizes; None where they were found on the way.
    """
    sizes = block or BlockSizes(0)
    return {
        "block_substitutions": sizes.substitutions or None,
        "block_rows": sizes.rows,
    }


def influence_value(row: Mapping[str, Any]) -> float:
    """Returns the one number that stands for a row: the middle, or the upper bound.

    Args:
        row: Has `influence_lower`, `influence_upper` and `method`.

    Returns:
        Where every influence was computed the middle of its enclosure, and 0 where that
        reaches down to 0: a change below its own rounding radius is not told apart from
        none. Where they were screened the upper end.
    """
    screened = row["method"] in SCREENS
    return enclosed_value(row["influence_lower"], row["influence_upper"], screened)


def enclosed_value(lower: float, upper: float, screened: bool) -> float:
    """Returns the one number that stands for an enclosure; see `influence_value`."""
    if screened:
        return upper
    return 0.5 * (lower + upper) if lower > 0 else 0.0


def weighting_label(model: Transformer) -> str:
    """Returns a model's weighting in a word, as in `softmax@inverse_log:1`.

    Returns:
        The name of the weighting, several joined by "+" where layers differ, and after
        an "@" the temperature, where it is not 1.
    """
    attentions = [layer.attention for layer in model.layers]
    names = dict.fromkeys(attention.weighting.name for attention in attentions)
    temperatures = dict.fromkeys(
        temperature_label(encode_temperature(attention.temperature))
        for attention in attentions
    )
    label = "+".join(names) or "none"
    return label if set(temperatures) <= {"1"} else f"{label}@{'+'.join(temperatures)}"


def tokens_sha256(tokens: np.ndarray) -> str:
    """Returns the SHA-256 of tokens as a little-endian int32 array.

    Args:
        tokens: Integers [n].

    Returns:
        64 hexadecimal digits.
    """
    return sha256(np.asarray(tokens, "<i4").tobytes())
