"""Influences on "activation" or "logits", and scans of these, in many digits.

The model is run again in mpmath (`benchmarks.reference`) for every substitution. Its weights
are rounded ones: in float32 those of the float32 file.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import jax_models as jm
from benchmarks import reference
from bounds.influence.request import InfluenceRequest
from bounds.influence.table.layout import choose


def exact_values(
    request: InfluenceRequest, digits: int, chosen: Sequence[int] | None = None
) -> np.ndarray:
    """Influences, or a scan's reading of changes, computed in mpmath with `digits` digits.

    Of all substitutions, or of those `chosen`. Two outputs are subtracted, as in
    `exhaustive`: of a norm that is not 10 digits above their rounding nothing is known, and
    it counts as 0.
    """
    arithmetic = reference.multiprecision(digits)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        jm.save(request.model, path)
        config, tensors = reference.read_file(path)
    run = {"activation": reference.forward, "logits": reference.logits}[request.target]

    def outputs(tokens: np.ndarray) -> np.ndarray:
        # What rounding may decide otherwise is reported of the method, not here.
        return run(config, tensors, tokens, arithmetic, ties="ignore")[request.rows]

    def norms(vectors: np.ndarray) -> Any:
        found = arithmetic.sqrt((vectors * vectors).sum(axis=-1))
        return np.where(found > floor, found, 0 * found)

    base, floor = outputs(request.tokens), 0
    floor = norms(base).max() * arithmetic.numbers(10) ** -(digits - 10)
    changes = []
    for index in range(len(request.pairs)) if chosen is None else chosen:
        tokens = request.tokens.copy()
        tokens[request.position[index]] = request.symbol[index]
        changes.append(outputs(tokens) - base)
    if request.reading is None:
        return norms(np.stack(changes)[:, 0])
    found = choose(np.stack(changes), request.chosen)
    if request.reading.kind == "signed":
        return found
    if request.reading.kind == "largest":
        return abs(found).max(axis=-1)
    return found[..., 0] if found.shape[-1] == 1 else norms(found)
