"""What hard attention does compute: every function of (H + 1)^L symbols.

With positions 0 … n - 1, let head h of layer l (both from 0) at position i look at
position i - (h + 1) (H + 1)^l, by the score -(j - target)^2, and let every activation
keep all symbols it has met, with their positions. After l layers position i knows the
(H + 1)^l symbols that end at itself, so that the last position knows (H + 1)^L: their
parity, or whether they are well-bracketed. One layer can do no better: closing fixes at
most H + 1 bits, H where the output is read at a further position whose symbol is given.
"""

from bounds.closed_form.domain import whole


def computable_length(
    num_layers: int, num_heads: int, *, read_out: bool = False
) -> int:
    """Returns the length up to which any function of the input is computed.

    n <= (H + 1)^L; with a separate read-out position, which is one of those that the
    look-ups reach, n <= (H + 1)^L - 1.

    Args:
        num_layers: L >= 1.
        num_heads: H >= 1 in each layer.
        read_out: Whether the output is read at a further position without a symbol of
            its own.

    Returns:
        The length, exact; for one layer and PARITY it is the largest there is.

    Raises:
        ValueError: A number is below 1.

    Source:
        docs/theory/hard-attention.md, section 3, Theorem 5.
    """
    layers = whole("num_layers", num_layers, 1)
    heads = whole("num_heads", num_heads, 1)
    return (heads + 1) ** layers - read_out


def one_layer_parity_threshold(num_heads: int, *, read_out: bool = False) -> int:
    """Returns the least length at which one layer cannot compute PARITY, exactly.

    n = H + 2, or H + 1 with a separate read-out position.

    Args:
        num_heads: H >= 1.
        read_out: Whether the output is read at a further position without a symbol of
            its own.

    Returns:
        The length, exact.

    Raises:
        ValueError: H is below 1.

    Source:
        docs/theory/hard-attention.md, section 3, Theorem 4.
    """
    return computable_length(1, num_heads, read_out=read_out) + 1
