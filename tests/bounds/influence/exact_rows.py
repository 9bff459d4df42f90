"""The query row with many digits, at lengths where a full rerun would take hours.

`ExactRows` evaluates the base pass of a model with one or two layers once, in decimal
arithmetic, and then each substitution by what it touches: one column of the first
layer's rows, the substituted row, and the query row of the second layer. Sums are
updated by subtraction, which costs as many digits as a dominant column is ahead; there
are enough of them. Dot-product scores, residual sums, ReLU; norms before them or none.
"""

import contextlib
import decimal
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np

from benchmarks import reference


@contextlib.contextmanager
def digits(count: int) -> Iterator[None]:
    """Decimal arithmetic with that many digits inside the block."""
    with decimal.localcontext() as context:
        context.prec = count
        yield


def _elementwise(function):
    return lambda values: np.asarray(np.frompyfunc(function, 1, 1)(values), object)


def _number(value):
    return Decimal(value.item() if isinstance(value, np.generic) else value)


DECIMAL = reference.Arithmetic(
    numbers=lambda values: _elementwise(_number)(np.asarray(values)),
    exp=_elementwise(Decimal.exp),
    log=_elementwise(Decimal.ln),
    sqrt=_elementwise(Decimal.sqrt),
    nearest_integer=_elementwise(lambda x: int(x.to_integral_value())),
)
EXP = np.frompyfunc(Decimal.exp, 1, 1)


class ExactRows:
    """A softmax model on one input, ready for substitutions, watched at one row."""

    def __init__(self, config, tensors, tokens, query):
        self.config = {"layer_norm": "none", "layer_norm_epsilon": 1e-5, **config}
        assert self.config.get("activation", "relu") == "relu"
        assert self.config.get("combine", "residual") == "residual"
        assert self.config["layer_norm"] in ("none", "pre")
        assert "final_norm.scale" not in tensors
        self.depth = len(config["layers"])
        assert self.depth in (1, 2)
        self.tokens, self.query = np.asarray(tokens), query % len(tokens)
        n, dtype = len(tokens), tensors["embedding"].dtype
        table = reference.position_table(config, tensors, n).astype(dtype)
        self.t = {name: DECIMAL.numbers(tensor) for name, tensor in tensors.items()}
        self.positions = DECIMAL.numbers(table)
        self.rows = self.t["embedding"][self.tokens] + self.positions
        # All rows of the first layer where a second one reads them.
        self.wanted = np.arange(n) if self.depth == 2 else np.asarray([self.query])
        u = self.read(0, self.rows)
        self.heads = []
        for head in range(len(self.t["layers.0.attention.query"])):
            q, k, v = (
                self.project(0, head, part, u) for part in ("query", "key", "value")
            )
            odds = np.stack([self.odds(0, i, q[i], k) for i in self.wanted])
            self.heads.append((q, k, v, odds, odds.sum(axis=1), odds @ v))
        self.first = self.layer_output(
            0, self.rows[self.wanted], [b / z[:, None] for *_, z, b in self.heads]
        )
        self.base = self.last_output(self.first)

    def read(self, number, y):
        """What attention reads of rows y."""
        if self.config["layer_norm"] != "pre":
            return y
        return self.norm(f"layers.{number}.norm1", y)

    def norm(self, name, y):
        epsilon = DECIMAL.numbers(self.config["layer_norm_epsilon"])
        scale, bias = self.t[f"{name}.scale"], self.t[f"{name}.bias"]
        return reference.layer_norm(y, scale, bias, epsilon, DECIMAL)

    def project(self, number, head, part, u):
        name = f"layers.{number}.attention.{part}"
        projected = u @ self.t[name][head].T
        if f"{name}_bias" in self.t:
            projected = projected + self.t[f"{name}_bias"][head]
        return projected

    def odds(self, number, row, q, k, columns=slice(None)):
        """exp(score) of columns k as one row sees them; 0 where they are masked."""
        layer = self.config["layers"][number]
        assert layer["weighting"] == "softmax"
        scores = k @ q
        if layer["score"] == "scaled_dot_product":
            scores = scores / Decimal(len(q)).sqrt()
        else:
            assert layer["score"] == "dot_product"
        assert layer.get("temperature") is None
        n = len(self.tokens)
        visible = {"none": np.ones(n, bool), "future": np.arange(n) <= row}
        weights: Any = EXP(scores)
        return np.where(
            visible[layer["mask"]][columns], weights, np.full(1, Decimal(0))
        )

    def layer_output(self, number, y, heads):
        """Output rows of a layer from its input rows and its heads' outputs."""
        name, kind = f"layers.{number}", self.config["layer_norm"]
        c = y + np.concatenate(heads, axis=1) @ self.t[f"{name}.attention.output"].T
        if f"{name}.attention.output_bias" in self.t:
            c = c + self.t[f"{name}.attention.output_bias"]
        z = self.norm(f"{name}.norm2", c) if kind == "pre" else c
        hidden = z @ self.t[f"{name}.ffn.w1"].T + self.t[f"{name}.ffn.b1"]
        hidden = reference.activate("relu", hidden, DECIMAL)
        return c + hidden @ self.t[f"{name}.ffn.w2"].T + self.t[f"{name}.ffn.b2"]

    def last_output(self, first):
        """The final query row, from the wanted rows of the first layer."""
        y = first
        if self.depth == 2:
            u, heads = self.read(1, first), []
            for head in range(len(self.t["layers.1.attention.query"])):
                k, v = (self.project(1, head, part, u) for part in ("key", "value"))
                own = u[self.query : self.query + 1]
                q = self.project(1, head, "query", own)[0]
                odds = self.odds(1, self.query, q, k)
                heads.append((odds @ v / odds.sum())[None])
            y = self.layer_output(1, first[self.query : self.query + 1], heads)
        return y[0]

    def influence(self, position, symbol):
        """The influence of one substitution."""
        row = (self.t["embedding"][symbol] + self.positions[position])[None]
        own, heads = self.wanted == position, []
        u = self.read(0, row)
        for head, (q, k, v, odds, total, weighted) in enumerate(self.heads):
            new_q, new_k, new_v = (
                self.project(0, head, part, u)[0] for part in ("query", "key", "value")
            )
            # One score of every row moves; the row itself asks a new question.
            column = np.stack(
                [
                    self.odds(0, i, q[i], new_k[None], slice(position, position + 1))[0]
                    for i in self.wanted
                ]
            )
            gain = column - odds[:, position]
            z = total + gain
            b = (
                weighted
                + column[:, None] * new_v
                - odds[:, position, None] * v[position]
            )
            if own.any():
                keys, values = k.copy(), v.copy()
                keys[position], values[position] = new_k, new_v
                asked = self.odds(0, position, new_q, keys)
                z[own], b[own] = asked.sum(), asked @ values
            heads.append(b / z[:, None])
        y = self.rows[self.wanted].copy()
        y[own] = row
        change = self.last_output(self.layer_output(0, y, heads)) - self.base
        return float((change * change).sum().sqrt())
