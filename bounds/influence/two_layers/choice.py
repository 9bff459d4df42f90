"""Choice of products of matrices for a two-layer model, and sizes of their blocks.

A substitution puts another symbol at one position; a request lists those to compute, in
blocks of some at a time. A row is a token position of the first layer's output. For
each pair of a row and a substitution `change_block` forms a vector ("vectors"), and
`product_block` one number per head, by products of matrices ("products").
"""

import math

import jax
import numpy as np

from bounds.influence.blocks.block_memory import BlockSizes, base_bytes, fit_block
from bounds.influence.blocks.kernel import symbol_changes
from bounds.influence.propagation.change_block import IN_FLIGHT
from bounds.influence.propagation.pointwise import has_relu_block
from bounds.influence.request import InfluenceRequest
from jax_models.errors import InputError
from jax_models.model.transformer import Transformer
from jax_models.run.blocks import tile_elements
from jax_models.run.compiler import SAFE_ROWS

# Tokens for each symbol, at least: below, a second is not to be gained, and a column that
# lost digits compiles the program of vectors as well.
SHORTEST = 512
# Tokens in all: longer inputs have products of more rows than one CPU compiler does.
LONGEST = SAFE_ROWS
# Multiplications of a pair by products that cost as much as one of its vectors.
CHEAPER = 25
# Substitutions of a block at most, and rows of a tile.
BLOCK, ROWS = 288, 128


def by_products(request: InfluenceRequest) -> bool:
    """True if a request is computed by `product_block` rather than `change_block`."""
    model, n, count = request.model, request.tokens.size, request.position.size
    if request.watches_many or request.precision is not None:
        return False
    # Tiles and their costs were measured on CPUs alone.
    shortest = SHORTEST * model.vocab_size
    if jax.default_backend() != "cpu" or not shortest <= n <= LONGEST:
        return False
    if not (is_factored(model) and _is_cheaper(model)):
        return False
    try:
        size = product_sizes(request).substitutions
    except InputError:  # vectors take less memory
        return False
    # The last block of each change of symbol takes the time of a whole one.
    _, each = np.unique(symbol_changes(request), return_counts=True)
    return bool((-(-each // size)).sum() * size <= max(n, 2 * count))


def is_factored(model: Transformer) -> bool:
    """True for two softmax layers whose key and value changes depend on symbols alone."""
    if len(model.layers) != 2 or model.is_hard or model.entry is not None:
        return False
    below = model.layers[0]
    # Changes that depend on the position too would be two scalars a pair: at n = 1024 in
    # float64 these took a tenth more time than vectors. A gate makes rows piecewise
    # quadratic: a product of factors for each two heads, three times as wide.
    for one in model.layers:
        attention, sight = one.attention, one.attention.sight
        if one.reads.bent or not attention.scoring.bilinear:
            return False
        if not attention.linear_keys or sight.end is not None:
            return False
    return has_relu_block(below)


def _is_cheaper(model: Transformer) -> bool:
    """True if a pair of row and substitution costs less by products than by vectors."""
    below, layer = (x.attention for x in model.layers)
    hidden = model.layers[0].feed_forward.hidden
    pairs = below.num_heads * layer.num_heads
    products = pairs * (2 * (hidden + 1) + layer.value_width + layer.key_width)
    vectors = model.width + below.num_heads * below.value_width
    return products <= CHEAPER * vectors


def product_sizes(request: InfluenceRequest) -> BlockSizes:
    """Sizes of blocks and row tiles of `product_block` that fit the memory."""
    model, length = request.model, request.tokens.size
    base = base_bytes(model, length)

    def taken(size: int) -> float:
        return base + IN_FLIGHT * product_bytes(model, length, size)

    # One size for all inputs of a length, so that they share a program: positions of one
    # symbol are an even share of them, and in random inputs seldom many more.
    even = length / model.vocab_size
    each = math.ceil(even + 2 * math.sqrt(even))
    # Whole vector registers: 268 take a sixth more time than 288 in float32.
    suited = min(BLOCK, 32 * math.ceil(each / math.ceil(each / BLOCK) / 32))
    size = fit_block(suited, taken, request.memory_limit)
    return BlockSizes(size, min(length, ROWS), taken(size))


def product_bytes(model: Transformer, length: int, substitutions: int) -> float:
    """Upper bound on the bytes of one `product_block`, its arguments left out."""
    below, layer = (x.attention for x in model.layers)
    hidden = model.layers[0].feed_forward.hidden
    heads = below.num_heads + layer.num_heads
    # Scalars of pairs; factors of a tile's rows and of columns; factors of all rows, and
    # a tile of scores of the replaced rows.
    widths = layer.value_width + layer.key_width + below.value_width + below.key_width
    factors = below.num_heads * layer.num_heads * (hidden + 1 + widths)
    rows = min(length, ROWS)
    pairs = 12 * heads * rows * substitutions
    factors *= 6 * (rows + substitutions)
    everywhere = 4 * heads * (model.width + widths + 2) * length
    scores = 3 * min(
        substitutions * below.num_heads * length,
        max(below.num_heads * length, tile_elements() // 2),
    )
    return float((pairs + factors + everywhere + scores) * model.dtype.itemsize)
