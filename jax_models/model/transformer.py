"""The transformer: a frozen pytree, and the forward pass in bounded memory.

A model is data; everything that computes is a pure function of a model. `forward` is
the pure, traceable pass; `jax_models.apply` also checks, on the host, its input and
decisions of hard attention that rounding may change (ties), and is what a caller
normally wants. A tie report holds the smallest distance of such decisions from a tie, and
whether any row is ambiguous: rounding may have decided it. Rows are vectors of single
positions; the entry is the norm and projection between embedding and layers.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jaxtyping import Bool, Float, Int

from jax_models.arguments import expect_array, refuse_empty, show
from jax_models.errors import InputError
from jax_models.model.attending import RowBlock, project_queries, store_keys, summarise
from jax_models.model.attention import Attention
from jax_models.model.entry import Entry, Padding, TokenDropout
from jax_models.model.layer import Layer
from jax_models.model.position import PairTable, Position
from jax_models.model.pytree import pytree, static
from jax_models.model.readout import Accept, Head, Pooling, Readout
from jax_models.model.rows import Affine, Norm, Program, Step
from jax_models.run.blocks import key_tile, map_rows, row_block
from jax_models.run.compiler import warn_of_miscompilation
from jax_models.run.device_memory import require_memory
from jax_models.run.perturbation import perturb
from jax_models.weighting import TieReport


@pytree
class Transformer:
    """Weights and rules of a whole transformer; layers may differ in everything but d.

    A layer may stand in several places: as the same object it has its weights once, in
    memory, in files and for derivatives. Rows of the `padding` are seen by no row, so that
    sequences of different lengths, filled up behind their ends, go through `jax.vmap`
    of a forward pass together. With a `head_row` the head reads that row of an input
    alone, as heads for whole sequences do. `special` symbols stand for no text: a caller
    may list them as substitutes or positions, unlike others that are not `substitutable`.
    """

    embedding: Float[
        Array, "symbols d_embedding"
    ]  # [V, E], E = d but where the entry projects
    layers: tuple[Layer, ...] = dataclasses.field(metadata={"shared": True})
    position: Position | None = None
    entry: Entry | None = dataclasses.field(default=None, kw_only=True)
    token_dropout: TokenDropout | None = dataclasses.field(default=None, kw_only=True)
    pooling: Pooling | None = dataclasses.field(default=None, kw_only=True)
    padding: Padding | None = dataclasses.field(default=None, kw_only=True)
    head_row: Literal["first", "last"] | None = static(default=None, kw_only=True)
    special: tuple[int, ...] | None = static(default=None, kw_only=True)
    final_norm: Norm | None = None
    readout: Readout | Head | None = None
    accept: Accept | None = static(default=None)
    vocabulary: tuple[str, ...] | None = static(default=None)
    substitutable: tuple[int, ...] | None = static(default=None)

    def __post_init__(self) -> None:
        """Makes tuples of lists or arrays of layers, names and symbols."""
        for name in ("layers", "vocabulary", "substitutable", "special"):
            value = getattr(self, name)
            is_array = isinstance(value, np.ndarray) and value.ndim > 0
            of_numpy = isinstance(value, tuple) and any(
                isinstance(x, np.integer) for x in value
            )
            if of_numpy or is_array or isinstance(value, list):
                plain = (int(x) if isinstance(x, np.integer) else x for x in value)
                vars(self)[name] = tuple(plain)

    def __repr__(self) -> str:
        """One line: number and kinds of layers, sizes and float type, no weights."""
        layers = [layer for layer in self.layers if isinstance(layer, Layer)]
        said = [f"{len(self.layers)} layers"]
        said += dict.fromkeys(layer.attention.weighting.name for layer in layers)
        said += dict.fromkeys(f"mask {layer.attention.mask}" for layer in layers)
        # JAX puts other objects in place of arrays: such a tree has no sizes.
        if getattr(self.embedding, "ndim", None) == 2:
            heads = {getattr(x.attention.query, "shape", (0,))[0] for x in layers}
            said += [f"H = {max(heads)}"] if heads else []
            said += [f"d = {self.width}", f"V = {self.vocab_size}", str(self.dtype)]
        return f"Transformer({', '.join(said)})"

    @property
    def dtype(self) -> Any:
        """The float type of the parameters."""
        return self.embedding.dtype

    @property
    def width(self) -> int:
        """Width d of the layers' rows."""
        if self.entry is None or self.entry.projection is None:
            return self.embedding_width
        return self.entry.projection.shape[0]

    @property
    def embedding_width(self) -> int:
        """Width E of embeddings; E = d unless the entry projects."""
        return self.embedding.shape[1]

    @property
    def vocab_size(self) -> int:
        """Number V of symbols."""
        return self.embedding.shape[0]

    @property
    def head(self) -> Program:
        """Program from the final activation, row `final`, to logits; needs a read-out."""
        assert self.readout is not None
        operations, steps, read = self.readout.operations(self.embedding), [], "final"
        for at, operation in enumerate(operations):
            steps.append(Step(f"head {at}", operation, (read,)))
            read = steps[-1].name
        return Program(tuple(steps), read)

    @property
    def classes(self) -> int | None:
        """Number of logits; None without a read-out."""
        if self.readout is None:
            return None
        # Only affine maps change a row's width.
        width = self.width
        for step in self.head.steps:
            if isinstance(step.operation, Affine):
                width = step.operation.weight.shape[0]
        return width

    @property
    def is_hard(self) -> bool:
        """Whether any layer has a hard weighting."""
        return any(layer.attention.weighting.hard for layer in self.layers)


def read_logits(
    model: Transformer, rows: Float[Array, "... width"]
) -> Float[Array, "... classes"]:
    """Logits of final activations, by the model's head."""
    program = model.head
    return program.value({"final": rows})[program.output]


def encode_positions(
    model: Transformer, length: int
) -> Float[Array, "tokens d_embedding"]:
    """Position encodings of `length` positions in the model's float type; 0 without any."""
    require_activations(model, length)
    warn_of_miscompilation(length)
    width = model.embedding_width
    if model.position is None:
        return jnp.zeros((length, width), model.dtype)
    return jnp.asarray(model.position.encode(length, width), model.dtype)


def require_activations(model: Transformer, length: int) -> None:
    """Raises `InputError` if activations of `length` rows do not fit the memory."""
    # A formula takes 5/2 rows of float64 while it is formed; its rows, the activations and
    # what attention reads of them are then held together.
    row = model.width * (5 * 8 // 2 + 4 * model.dtype.itemsize)
    require_memory(f"length n = {length} at width d = {model.width}", length * row)


def embedded(
    model: Transformer, tokens: Int[Array, "tokens"]
) -> Float[Array, "tokens d_embedding"]:
    """Returns embedding[x] + position for each token x, before a norm or projection."""
    model = of_input(model, tokens)
    return _symbol_embeddings(model, tokens) + encode_positions(model, tokens.shape[0])


def of_input(
    model: Transformer, tokens: Int[Array | np.ndarray, "tokens"]
) -> Transformer:
    """Returns the model with the position table and token dropout of the input `tokens`."""
    # Table and dropout may depend on all tokens. Inputs of one length, with padding and
    # `shared_symbols` at the same positions, have the same model.
    if isinstance(model.position, PairTable):
        require_activations(model, tokens.shape[0])
        model = dataclasses.replace(model, position=model.position.of_input(tokens))
    if model.token_dropout is None:
        return model
    dropout = model.token_dropout.of_input(tokens, model.dtype, model.padding)
    return dataclasses.replace(model, token_dropout=dropout)


def shared_symbols(model: Transformer) -> list[int]:
    """Returns symbols that change other positions' first rows; none after `of_input`."""
    found, dropout = [], model.token_dropout
    if dropout is not None and dropout.scale is None:
        found.append(dropout.mask)
    if isinstance(model.position, PairTable):
        found.append(model.position.separator)
    return found


def _symbol_embeddings(
    model: Transformer, symbols: Int[Array, "..."]
) -> Float[Array, "... d_embedding"]:
    rows = model.embedding[symbols]
    return rows if model.token_dropout is None else model.token_dropout(rows, symbols)


def embed(
    model: Transformer, tokens: Int[Array, "tokens"]
) -> Float[Array, "tokens width"]:
    """Returns y^(0), the first layer's input: the entry of embedding[x] + position."""
    model = of_input(model, tokens)
    return symbol_rows(model, tokens, encode_positions(model, tokens.shape[0]))


def symbol_rows(
    model: Transformer,
    symbols: Int[Array, "..."],
    # position encodings; None adds nothing
    places: Float[Array, "... d_embedding"] | None,
) -> Float[Array, "... width"]:
    """Returns the first layer's input for symbols, of a model after `of_input`."""
    rows = _symbol_embeddings(model, symbols)
    rows = rows if places is None else perturb(rows + places)
    return rows if model.entry is None else perturb(model.entry(rows))


def symbol_changes(
    model: Transformer,
    old: Int[Array, "..."],
    new: Int[Array, "..."],
    places: Float[Array, "... d_embedding"] | None,
) -> Float[Array, "... width"]:
    """Returns the exact changes of `symbol_rows` when symbols `old` become `new`."""
    rows = _symbol_embeddings(model, old)
    # The position's encoding drops out: added to both it would only be rounded.
    change = perturb(_symbol_embeddings(model, new) - rows)
    if model.entry is None:
        return change
    # An entry's norm is not linear: it changes at the row with its position.
    rows = rows if places is None else rows + places
    return perturb(model.entry.change(rows, change))


def attention_input(
    layer: Layer, rows: Float[Array, "*batch rows width"]
) -> Float[Array, "*batch rows width"]:
    """Attention's input for the layer's input rows."""
    program = layer.reads
    return program.value({"y": rows})[program.output]


def combine_heads(
    layer: Layer,
    rows: Float[Array, "*batch rows width"],
    heads: Float[Array, "*batch rows concatenated"],
) -> Float[Array, "*batch rows width"]:
    """Returns the layer's output rows from its input rows and its head outputs."""
    program = layer.writes
    return program.value({"y": rows, "heads": heads})[program.output]


def join_heads(
    heads: Float[Array, "heads rows d_v"],
) -> Float[Array, "rows concatenated"]:
    """Returns head outputs concatenated along each row."""
    return heads.swapaxes(0, 1).reshape(heads.shape[1], -1)


def apply_layer(
    layer: Layer,
    # input rows of all positions
    rows: Float[Array, "tokens width"],
    # positions of the rows to compute; all by default
    queried: Int[Array, "rows"] | None = None,
    # rows that no row sees
    hidden: Bool[Array, "tokens"] | None = None,
    # `combine_heads` by default
    combine: Callable[[Layer, Array, Array], Any] | None = None,
) -> tuple[Any, TieReport | None]:
    """Returns the layer's output rows, and its tie report, None for softmax."""
    length = rows.shape[0]
    inputs = attention_input(layer, rows)
    store = store_keys(layer.attention, inputs)
    store = store if hidden is None else dataclasses.replace(store, hidden=hidden)
    positions = jnp.arange(length, dtype=jnp.int32) if queried is None else queried

    def run(block: RowBlock) -> tuple[Any, Any]:
        at, y, u = block
        queries = project_queries(layer.attention, u, length, at)
        summary = summarise(layer.attention, queries, at, store)
        heads, reports = read_heads(layer.attention, at, summary)
        return (combine or combine_heads)(layer, y, heads), reports

    per_row = scores_per_row(layer.attention, key_tile(length))
    # Rows in blocks against keys in tiles: nothing of size n x n is stored.
    block = row_block(positions.shape[0], per_row)
    if queried is not None:
        rows, inputs = rows[queried], inputs[queried]
    output, reports = map_rows(run, (positions, rows, inputs), block)
    return output, None if reports is None else reduce_reports(reports)


def read_heads(
    attention: Attention, positions: Int[Array, "rows"], summary: Any
) -> tuple[Float[Array, "rows concatenated"], TieReport | None]:
    """Attended values of all heads, concatenated by row, and each row's tie report."""
    weighting = attention.weighting
    # A report for each row: the row that is named then does not depend on the blocks.
    reports = jax.vmap(weighting.ties, in_axes=(1, 0))(summary, positions)
    return join_heads(weighting.read(summary)), reports


def scores_per_row(attention: Attention, tile: int) -> int:
    """Number of floats held per query row while it is scored against a block of keys."""
    return attention.num_heads * tile * attention.pair_width


def reduce_reports(reports: TieReport) -> TieReport:
    """Joins stacked tie reports: the first ambiguous row, else that of least gap."""
    # Ambiguous rows come before any gap; of equal ones `argmin` takes the first.
    at = jnp.argmin(jnp.where(reports.ambiguous, -jnp.inf, reports.gap))
    return TieReport(
        gap=reports.gap.min(),
        spread=reports.spread.max(),
        ambiguous=reports.ambiguous.any(),
        row=reports.row[at],
        scores=reports.scores[at],
    )


def check_tokens(vocab_size: int, tokens: Any) -> Int[Array, "tokens"]:
    """Tokens [n] as int32; `InputError` unless, if not traced, all are in [0, V)."""
    if not isinstance(tokens, jax.Array):
        given, tokens = tokens, expect_array("tokens", tokens)
        if tokens.dtype.kind not in "biufc":  # a text, None, or another object
            raise InputError(
                f"tokens = {show(given)}; expected integers, one for each symbol, [n]"
            )
    shape, dtype = tokens.shape, tokens.dtype
    refuse_empty("tokens", tokens)
    if len(shape) != 1:
        raise InputError(
            f"tokens have shape {shape}; expected one sequence [n] with n >= 1"
        )
    if not jnp.issubdtype(dtype, jnp.integer):
        raise InputError(f"tokens have type {dtype}; expected integers in [0, V)")
    warn_of_miscompilation(shape[0])
    if isinstance(tokens, Tracer):
        return tokens.astype(jnp.int32)
    concrete = np.asarray(tokens)
    bad = np.flatnonzero((concrete < 0) | (concrete >= vocab_size))
    if bad.size:
        raise InputError(
            f"token {concrete[bad[0]]} at position {bad[0]} is outside the model's "
            f"vocabulary of {vocab_size} symbols; tokens are integers from 0 to "
            f"{vocab_size - 1}"
        )
    # No program is compiled for the length.
    return jax.device_put(concrete.astype(np.int32))


def forward(
    model: Transformer,
    tokens: Int[Array, "tokens"],
    rows: Int[Array, "rows"] | None = None,
) -> tuple[Float[Array, "rows width"], tuple[TieReport | None, ...]]:
    """Returns the final activations and one tie report per layer; pure and traceable.

    Args:
        model: the transformer.
        tokens: integers in [0, V) [n]; under a transformation only their shape and type
            are checked.
        rows: positions whose final activation is wanted [r]; all by default. The last
            layer then computes only those.

    Returns:
        Activations [n, d] or [r, d], and the reports (None for soft layers).
    """
    tokens = check_tokens(model.vocab_size, tokens)
    hidden = None if model.padding is None else model.padding.hides(tokens)
    return run_layers(
        model,
        embed(model, tokens),
        lambda layer, y, rows: apply_layer(layer, y, rows, hidden),
        rows,
    )


def run_layers(
    model: Transformer,
    # the first layer's input
    y: Float[Array, "tokens width"],
    # from a layer, its input and the rows wanted, all if None, to output and tie report
    apply: Callable[[Layer, Array, Array | None], tuple[Array, TieReport | None]],
    rows: Int[Array, "rows"] | None = None,
) -> tuple[Float[Array, "rows width"], tuple[TieReport | None, ...]]:
    """Final activations of `rows`, all by default, and one tie report per layer."""
    reports = []
    for depth, layer in enumerate(model.layers):
        last = depth == len(model.layers) - 1
        # Rows of the last layer are read by no other: those not wanted are left out.
        y, report = apply(layer, y, rows if last else None)
        reports.append(report)
    if not model.layers and rows is not None:
        y = y[rows]
    if model.final_norm is not None:
        y = model.final_norm(y)
    return y, tuple(reports)
