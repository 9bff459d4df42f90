"""The two references of a certificate: the base pass, and exact changes after a layer.

DD-base: the base pass is the reference in every layer. The substituted row starts with a
radius, the largest distance of a substitute's embedding, all others with none; one
certificate serves every symbol at a position.

DD-centred: every row's change after the first layer is known exactly. One layer is exact,
and so are two: the last layer's query row is followed with all rows at their centres. From
the third layer on the middle layers leave radii.
"""

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np

from bounds.certificate.base_pass import prepare_pass, runs
from bounds.certificate.moved_rows import OwnMove
from bounds.certificate.output import exact_without_layers
from bounds.certificate.result import Certifier
from bounds.influence.problem import Problem
from bounds.influence.sizes import scaled_norm
from bounds.influence.substitution import padded


def _blocks_around_base(problem: Problem) -> Iterator[np.ndarray]:
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
    blocks=_blocks_around_base,
)


def _blocks_around_changes(problem: Problem) -> Iterator[np.ndarray]:
    model = problem.model
    if not model.layers:
        yield exact_without_layers(problem)
        return
    held = prepare_pass(problem)
    table = np.asarray(model.embedding)
    for part, size, at_query in runs(problem, problem.position, held.batch):
        at, symbol = problem.position[part], problem.symbol[part]
        with np.errstate(over="ignore"):  # reported as an overflow of the model
            change = table[symbol] - table[problem.tokens[at]]
        # The embedding's change is one subtraction; its rounding is in the layer's.
        own = OwnMove(
            jnp.asarray(padded(at, size)),
            jnp.asarray(padded(change, size)),
            jnp.zeros(size),
        )
        upper = held.certify(problem.target, own, at_query)
        yield np.asarray(upper)[: at.size]


DD_CENTRED = Certifier(
    name="centred",
    source="Hahn 2020, Lemma 5, made explicit for one input: docs/certificates.md, "
    "section 6, the certificate around exact changes",
    blocks=_blocks_around_changes,
)
