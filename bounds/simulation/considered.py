"""The inputs that a simulation is certified for: all of a length, or given ones."""

import dataclasses
import itertools

import numpy as np

from bounds.all_inputs.universe import AllInputs, list_inputs
from bounds.inputs import GivenInputs, InputSource
from jax_models import Transformer
from jax_models.device_memory import require_memory


@dataclasses.dataclass(frozen=True)
class Considered:
    """A set of inputs of one length.

    Attributes:
        tokens: [S, n].
        all_inputs: Whether they are all inputs of the length: any symbol that may be
            substituted everywhere, and at the last position an end token, if the model
            has such.
        unlisted: All inputs of the length, where the tokens are only some to run and the
            model's structure tells about all; None elsewhere.
    """

    tokens: np.ndarray
    all_inputs: bool
    unlisted: AllInputs | None = None


def consider(
    model: Transformer, length: int, source: InputSource, budget: int
) -> Considered:
    """Returns all inputs of a length where that can be, else those of a source.

    Args:
        model: A hard model.
        length: n.
        source: Where inputs come from; given ones are taken as they are.
        budget: The most inputs that are enumerated.

    Raises:
        InputError: The source has no input of that length.
    """
    inputs = list_inputs(
        model,
        length,
        query=-1,
        target="activation",
        query_symbols=None,
        include_query=False,
    )
    if isinstance(source, GivenInputs) or inputs.num_inputs > budget:
        drawn = [source.draw(length, index) for index in range(source.count)]
        tokens = np.unique(np.stack(drawn), axis=0)
        # Rows of the first layer depend on one symbol each, those of others on inputs.
        known = len(model.layers) == 1 and not isinstance(source, GivenInputs)
        return Considered(tokens, known, inputs if known else None)
    require_memory(
        f"{inputs.num_inputs} inputs of length {length}, all there are",
        inputs.num_inputs * (8 * length + 56),  # a Python tuple each
    )
    alphabets = [inputs.symbols] * (length - 1) + [inputs.query_symbols]
    every = np.array(list(itertools.product(*alphabets)), np.int32)
    return Considered(every.reshape(-1, length), True)
