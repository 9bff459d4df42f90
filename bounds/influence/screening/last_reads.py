"""The last layer's keys, values and watched scores as a reader of the rows before it.

An unknown change e of row m moves a head's key there by W_k e, its value by W_v e and the
score of the watched row by q^T W_k e. Norms of these three, by the parts that make up e,
are far below |W_k| |e|, |W_v| |e| and |q| |W_k| |e|.

Source: docs/screened.md, section 2.10.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from bounds.numbers.matrix_norm import spectral_norms
from bounds.readings.slopes import pull
from jax_models.model.layer import Layer
from jax_models.model.pytree import register

HIGHEST = jax.lax.Precision.HIGHEST
READS = "reads"  # a key among names of rows; no row has this name


@register
@dataclasses.dataclass(frozen=True)
class LastReads:
    """The last layer as a reader of rows."""

    layer: Layer
    query: Float[Array, "heads d_k"]  # of the watched row, scaled

    @property
    def maps(
        self,
    ) -> tuple[
        Float[Array, "heads d_k width"],
        Float[Array, "heads d_v width"],
        Float[Array, "heads 1 width"],
    ]:
        """W_k, W_v and q^T W_k, behind any pre-norm."""
        attention = self.layer.attention
        key, value = attention.key_by_head, attention.value_by_head
        score = jnp.einsum("he,hed->hd", self.query, key, precision=HIGHEST)
        return key, value, score[:, None]

    @property
    def map_norms(self) -> Float[Array, "reads"]:
        """Spectral norms of the maps: keys, values and scores of every head."""
        return jnp.concatenate([spectral_norms(x) for x in self.maps])

    def derivative(
        self, rows: Float[Array, "rows width"]
    ) -> Float[Array, "*rows maps width"]:
        """Maps of the rows, stacked; one matrix for all rows without a pre-norm."""
        maps = jnp.concatenate([x.reshape(-1, x.shape[-1]) for x in self.maps])
        program = self.layer.reads
        return pull(program, {"y": rows}, {program.output: maps})["y"]

    def norms_of(
        self, rows: int, of_entries: bool, derivative: Float[Array, "*rows maps inputs"]
    ) -> Float[Array, "rows reads *inputs"]:
        """Norms of the maps times a derivative; of each column with `of_entries`."""
        norm: Callable[[Array], Array] = _columns if of_entries else spectral_norms
        lead, width = derivative.shape[:-2], derivative.shape[-1]
        found, first = [], 0
        for h, e in (x.shape[:2] for x in self.maps):
            part = derivative[..., first : first + h * e, :]
            found.append(norm(part.reshape(*lead, h, e, width)))
            first += h * e
        norms = jnp.concatenate(found, axis=len(lead))
        return norms if lead else jnp.broadcast_to(norms, (rows, *norms.shape))


def _columns(
    maps: Float[Array, "*batch read width"],
) -> Float[Array, "*batch width"]:
    return jnp.sqrt((maps * maps).sum(axis=-2))
