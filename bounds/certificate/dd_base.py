"""DD-base: the base pass is the reference in every layer.

The substituted row starts with a radius, the largest distance of a substitute's
embedding, all others with none; one certificate serves every symbol at a position.
"""

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np

from bounds.certificate.base_pass import prepare_pass, runs
from bounds.certificate.moved_rows import OwnMove
from bounds.certificate.output import exact_without_layers
from bounds.certificate.result import Certifier
from bounds.influence.base import Problem
from bounds.influence.sizes import scaled_norm
from bounds.influence.substitution import padded


def _blocks(problem: Problem) -> Iterator[np.ndarray]:
    model = problem.model
    if not model.layers:
        yield exact_without_layers(problem)
        return
    held = prepare_pass(problem)
    table = np.asarray(model.embedding)
    with np.errstate(over="ignore"):  # an infinite distance is reported as an overflow
        change = table[problem.symbol] - table[problem.tokens[problem.position]]
    distance = np.asarray(scaled_norm(jnp.asarray(change)))
    positions, starts = np.unique(problem.position, return_index=True)
    radii = np.maximum.reduceat(distance, starts)
    counts = np.diff(starts, append=problem.position.size)
    for part, size, at_query in runs(problem, positions, held.batch):
        at = jnp.asarray(padded(positions[part], size))
        still = jnp.zeros((size, model.width))
        own = OwnMove(at, still, jnp.asarray(padded(radii[part], size)))
        upper = held.certify(problem.target, own, at_query)
        yield np.repeat(np.asarray(upper)[: positions[part].size], counts[part])


DD_BASE = Certifier(
    name="base",
    source="Hahn 2020, Lemma 5, made explicit for one input: docs/certificates.md, "
    "section 6, the certificate around the base",
    blocks=_blocks,
)
