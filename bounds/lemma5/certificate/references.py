"""The two references of a certificate: the base pass, and exact changes after a layer.

DD-base: the base pass is the reference in every layer. The substituted row starts with a
radius, the largest distance of a substitute's embedding, all others with none; one
certificate serves every symbol at a position.

DD-centred: every row's change after the first layer is known exactly. One layer is exact,
and so are two: the last layer's query row is followed with all rows at their centres. From
the third layer on the middle layers leave radii.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from bounds.influence.request import InfluenceRequest
from bounds.influence.substitution import padded
from bounds.influence.targets.base import PlainTarget
from bounds.lemma5.certificate.base_pass import prepare_pass, runs
from bounds.lemma5.certificate.moved_rows import OwnMove
from bounds.lemma5.certificate.output import exact_without_layers
from bounds.numbers.bound import Sense, directed
from bounds.numbers.euclidean import scaled_norm
from bounds.numbers.kind import Kind, OfKind

CertificateMethod = Literal["centred", "base"]


@dataclasses.dataclass(frozen=True)
class Certificate(OfKind):
    """Certified upper bounds on single-symbol influences on one input.

    Each is the smaller of the certificate of this input alone and the closed form for
    all inputs of the length. Every number is at least |y_q(x with x_i := s) - y_q(x)|_2
    of the model in real arithmetic, rounding included. It is +inf where nothing is
    certified, because numbers on the way have overflowed or rounding has no bound; a
    final norm's own bound stands even then.
    """

    upper: Float[np.ndarray, "tokens symbols"]  # NaN where nothing is substituted
    input_upper: Float[
        np.ndarray, "tokens symbols"
    ]  # by the certificate of this input alone
    position_upper: Float[np.ndarray, "tokens"]  # maxima over symbols, NaN where none
    max_upper: float  # over all substitutions, 0 where there are none
    position: int | None  # the smallest (position, symbol) of the maximum
    symbol: int | None
    query: int
    target: PlainTarget
    method: CertificateMethod
    hypotheses: tuple[str, ...]
    source: str
    substitutions: int
    seconds: float
    kind: Kind = "certified"

    @property
    def uncertified(self) -> int:
        """Number of substitutions of which nothing is certified: their bound is +inf."""
        return int(np.isposinf(self.upper).sum())

    @property
    def basis(self) -> str:
        """Basis of the maximum: "this input", or the closed form of "all inputs"."""
        if self.position is None:
            return "this input"
        at = self.position, self.symbol
        return "all inputs" if self.upper[at] < self.input_upper[at] else "this input"

    def __repr__(self) -> str:
        """One line: the maximum, where it is, and how it was certified."""
        lost = self.uncertified
        return (
            f"Certificate(max_upper={directed(self.max_upper, '.6g', Sense.UPPER)}, "
            f"basis={self.basis!r}, position={self.position}, "
            f"symbol={self.symbol}, query={self.query}, method={self.method!r}, "
            f"substitutions={self.substitutions}"
            + (f", nothing is certified for {lost} of them)" if lost else ")")
        )


@dataclasses.dataclass(frozen=True)
class Certifier:
    """A way to certify: its name, source, and the bounds of blocks of pairs."""

    name: CertificateMethod
    source: str
    blocks_of_layers: Callable[[InfluenceRequest], Iterator[np.ndarray]]

    def blocks(
        self, request: InfluenceRequest
    ) -> Iterator[Float[np.ndarray, "substitutions"]]:
        """Upper bounds of blocks of pairs; a model without layers is one exact block."""
        if request.model.layers:
            yield from self.blocks_of_layers(request)
        else:
            yield exact_without_layers(request)


def _embedding_change(
    request: InfluenceRequest, part: slice
) -> Float[np.ndarray, "substitutions width"]:
    table = np.asarray(request.model.embedding)
    with np.errstate(over="ignore"):  # an infinite change is reported as an overflow
        old = table[request.tokens[request.position[part]]]
        return table[request.symbol[part]] - old


def _blocks_around_base(request: InfluenceRequest) -> Iterator[np.ndarray]:
    held = prepare_pass(request)
    change = _embedding_change(request, slice(None))
    distance = np.asarray(scaled_norm(jnp.asarray(change)))
    positions, starts = np.unique(request.position, return_index=True)
    radii = np.maximum.reduceat(distance, starts)
    counts = np.diff(starts, append=request.position.size)
    for part, size, at_query in runs(request, positions, held.batch):
        at = jnp.asarray(padded(positions[part], size))
        still = jnp.zeros((size, request.model.width))
        own = OwnMove(at, still, jnp.asarray(padded(radii[part], size)))
        upper = held.certify(request.target, own, at_query)
        yield np.repeat(np.asarray(upper)[: positions[part].size], counts[part])


DD_BASE = Certifier(
    name="base",
    source="Hahn 2020, Lemma 5, made explicit for one input: docs/certificates.md, "
    "section 6, the certificate around the base",
    blocks_of_layers=_blocks_around_base,
)


def _blocks_around_changes(request: InfluenceRequest) -> Iterator[np.ndarray]:
    held = prepare_pass(request)
    for part, size, at_query in runs(request, request.position, held.batch):
        at, change = request.position[part], _embedding_change(request, part)
        # The embedding's change is one subtraction; its rounding is in the layer's.
        own = OwnMove(
            jnp.asarray(padded(at, size)),
            jnp.asarray(padded(change, size)),
            jnp.zeros(size),
        )
        upper = held.certify(request.target, own, at_query)
        yield np.asarray(upper)[: at.size]


DD_CENTRED = Certifier(
    name="centred",
    source="Hahn 2020, Lemma 5, made explicit for one input: docs/certificates.md, "
    "section 6, the certificate around exact changes",
    blocks_of_layers=_blocks_around_changes,
)
