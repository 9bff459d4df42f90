"""The perturbation lemma of one layer, written a second time, plainly, in NumPy.

One substitution, loops over rows and heads, every mean, covariance and distance by its
definition from the n x n weights: no rank-one update, no factored exponent, no maximum
in place of a sum. So its radii are a little smaller than those of the fast kernels, never
larger. Without layer norms; dot-product and additive scores.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np


def softmax(scores):
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


class PlainLayer:
    """One layer's tensors as NumPy arrays, and its maps."""

    def __init__(self, layer, n):
        self.layer, self.n = layer, n
        a, f = layer.attention, layer.feed_forward
        self.q, self.k, self.v = (np.asarray(x) for x in (a.query, a.key, a.value))
        self.h, self.width = self.v.shape[:2]
        biases = a.query_bias, a.key_bias, a.value_bias
        self.bq, self.bk, self.bv = (np.asarray(x) for x in biases)
        self.additive = a.score == "additive"
        self.scale = 1.0 if a.score != "scaled_dot_product" else self.k.shape[1] ** 0.5
        if self.additive:
            self.w = np.asarray(a.score_vector)
        self.o = [np.eye(self.width)] * self.h
        self.concat = a.output is None
        if not self.concat:
            out = np.asarray(a.output).reshape(-1, self.h, self.width)
            self.o = [out[:, head] for head in range(self.h)]
        self.w1, self.b1, self.w2 = (np.asarray(x) for x in (f.w1, f.b1, f.w2))
        index = np.arange(n)
        self.seen = np.asarray(a.sight.visible(index[:, None], index))

    def scores(self, head, query, keys):
        """Scores of one query row over all keys."""
        if self.additive:
            return np.tanh(query + keys) @ self.w[head] / self.scale
        return keys @ query / self.scale

    def slopes(self, head, query, keys):
        """Their slopes in the (projected) query [n, e]."""
        if self.additive:
            return (1 - np.tanh(query + keys) ** 2) * self.w[head] / self.scale
        return keys / self.scale

    def key_slopes(self, head, query, keys):
        """Norms of their slopes in the key's input [n]."""
        if self.additive:
            return np.linalg.norm(self.slopes(head, query, keys) @ self.k[head], axis=1)
        return np.full(len(keys), np.linalg.norm(query @ self.k[head]) / self.scale)


def norm(x):
    return np.linalg.norm(x, 2)


def score_errors(plain, head, steep, slope, query, radius):
    """Bounds on the score errors of columns, of second order too."""
    keys = norm(plain.k[head]) * radius
    error = query * steep + slope * radius
    if not plain.additive:
        return error + query * keys / plain.scale
    w = plain.w[head]
    bend = 4 / 3**1.5 * np.abs(w).max() / plain.scale
    error = error + 0.5 * bend * (query + keys) ** 2
    step = np.minimum(norm(w) * (query + keys), 2 * np.abs(w).sum()) / plain.scale
    return np.minimum(error, step + norm(w) / plain.scale * query)


def around(plain, head, rows, centre, j, i, all_centres) -> Any:
    """Numbers of one head at row j, column i held apart from the others.

    With `all_centres` every column is at its centre; otherwise only column i is.
    """
    q, k, v, o = plain.q[head], plain.k[head], plain.v[head], plain.o[head]
    held, own = np.full(plain.n, all_centres), np.arange(plain.n) == i
    held[i], seen = True, plain.seen[j]
    at = rows + np.where(held[:, None], centre, 0.0)
    base_query, step = rows[j] @ q.T + plain.bq[head], centre[j] @ q.T
    query = base_query + (step if all_centres else 0.0)
    keys, base_keys = (x @ k.T + plain.bk[head] for x in (at, rows))
    values, base_values = (x @ v.T + plain.bv[head] for x in (at, rows))
    weight, c, base_weight = np.zeros((3, plain.n))
    scores, others = plain.scores(head, query, keys), seen & ~own
    if seen.any():
        weight[seen] = softmax(scores[seen])
        base_weight[seen] = softmax(plain.scores(head, base_query, base_keys)[seen])
    if others.any():
        c[others] = softmax(scores[others])
    mean, slopes = c @ values, plain.slopes(head, query, keys)
    apart = slopes - c @ slopes
    return SimpleNamespace(
        held=held,
        others=others,
        weight=weight[own].sum(),
        remain=weight[others].sum(),
        c=c,
        shift=norm(o @ (base_weight @ base_values - mean)),
        base=base_weight @ base_values,
        change=weight @ values - base_weight @ base_values,
        away=np.linalg.norm((values - mean) @ o.T, axis=1),
        steep=np.linalg.norm(apart, axis=1),
        slope=plain.key_slopes(head, query, keys),
        covariance=(c[:, None] * (values - mean)).T @ apart,
        step=step,
    )


def head_radius(plain, head, rows, centre, radius, j, i, all_centres):
    """What one head attends to at row j [v], the centre [v] of its change, and the radius.

    Columns that are not held at their centres enter by their sizes, and the own query to
    first order.
    """
    q, v, o = plain.q[head], plain.v[head], plain.o[head]
    if not plain.seen[j].any():
        return np.zeros(plain.width), np.zeros(plain.width), 0.0
    found = around(plain, head, rows, centre, j, i, all_centres)
    held, others, c, a = found.held, found.others, found.c, found.weight
    away, steep, step = found.away, found.steep, found.step
    size = np.where(held, radius, radius + np.linalg.norm(centre, axis=1))
    moved = np.linalg.norm(centre @ (o @ v).T, axis=1)
    value_size = norm(o @ v) * radius + np.where(held, 0.0, moved)
    query_size = norm(q) * radius[j] + (0.0 if all_centres else np.linalg.norm(step))
    error = score_errors(plain, head, steep, found.slope, query_size, size)
    linear = np.zeros(plain.width)
    if all_centres:
        remainder = (c * np.expm1(error) * away)[others].sum()
    else:
        linear = found.covariance @ step
        x = query_size * steep
        rest = np.maximum(error - x, 0.0)
        growth = np.exp(x) * np.expm1(rest)
        bent = (x**2 / 2 * np.exp(x))[others].max(initial=0.0)
        remainder = (c * (bent / 2 + growth) * away)[others].sum()
        remainder += norm(o @ found.covariance @ q) * radius[j]
    slack = (c * np.expm1(error))[others].sum()
    exponent = error[i] + np.log1p(slack)
    logit = np.inf if a == 1 else (-np.inf if a == 0 else np.log(a / (1 - a)))
    up, low = (1 / (1 + np.exp(-(logit + s * exponent))) for s in (1, -1))
    shift = max(up - a, a - low)
    size_linear = np.linalg.norm(o @ linear)
    left = min(1.0, 1 - a + shift)
    bound = shift * (away[i] + size_linear)
    bound += left * (slack * size_linear + (1 + slack) * remainder)
    largest = value_size[others].max(initial=0.0)
    carried = (1 + slack) * (c * np.exp(error) * value_size)[others].sum()
    own_value = value_size[i]
    carried = left * min(carried, largest) + min(1.0, a + shift) * own_value
    bound += min(carried, max(own_value, largest))
    farthest = max(
        (1 - a) * away[i] + own_value,
        away[others].max(initial=0.0) + a * away[i] + largest,
    )
    bound = min(bound, farthest + (1 - a) * size_linear)
    return found.base, found.change + (1 - a) * linear, bound


def row_radius(plain, rows, centre, radius, j, i, all_centres, anywhere):
    """The radius around the change of output row j, relu.

    `anywhere` holds the block's Lipschitz constants in each of its inputs.
    """
    given = rows, centre, radius, j, i, all_centres
    heads = [head_radius(plain, head, *given) for head in range(plain.h)]
    attended, changes, reach = zip(*heads, strict=True)
    d = rows.shape[1]
    out = plain.layer.attention.output_bias
    out = 0.0 if out is None or plain.concat else np.asarray(out)
    if plain.concat:
        base = np.concatenate([rows[j], *attended])
        moved = np.concatenate([centre[j], *changes])
        cuts = [plain.w1[:, :d]] + [
            plain.w1[:, d + plain.width * head : d + plain.width * (head + 1)]
            for head in range(plain.h)
        ]
        radii = [radius[j], *reach]
    else:
        through = lambda parts: sum(o @ x for o, x in zip(plain.o, parts, strict=True))
        base = rows[j] + through(attended) + out
        moved = centre[j] + through(changes)
        cuts, radii = [plain.w1], [radius[j] + sum(reach)]
    z, dz = plain.w1 @ base + plain.b1, plain.w1 @ moved
    at = z + dz if all_centres else z
    dz = 0.0 if all_centres else dz
    active = at > 0
    spread = sum(
        np.linalg.norm(cut, axis=1) * r for cut, r in zip(cuts, radii, strict=True)
    )
    unstable = np.where(active, at + dz <= spread, -(at + dz) <= spread)
    local = (unstable * spread * np.linalg.norm(plain.w2, axis=0)).sum()
    for block, (cut, r) in enumerate(zip(cuts, radii, strict=True)):
        jacobian = plain.w2 @ (active[:, None] * cut)
        local += norm(jacobian + (np.eye(d) if block == 0 else 0.0)) * r
    return min(local, sum(a * r for a, r in zip(anywhere, radii, strict=True)))
