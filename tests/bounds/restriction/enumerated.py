"""Certificates made by enumeration: every completion of a tiny input, one by one.

Nothing here knows tables, intervals of cells or enclosures. Activations and scores come
from the reference forward pass, layer by layer, for all strings; what a restriction
leaves possible is read off the completions themselves.
"""

import copy
import hashlib
import itertools
from typing import Any

import jax
import numpy as np

import jax_models as jm
from benchmarks import reference
from jax_models.format.build import name_tensors
from jax_models.format.config import encode_config
from tests.bounds.restriction.drawn_models import outputs

TIES = {"leftmost_hard": "L", "rightmost_hard": "R", "average_hard": "avg"}
AR = reference.FLOAT64


class Enumeration:
    """All strings over two symbols, an end token behind them where asked for."""

    def __init__(self, model, length, end=None, symbols=(0, 1)):
        self.model, self.length, self.symbols = model, length, symbols
        self.tensors = jax.tree.map(np.asarray, name_tensors(model))
        self.config: Any = encode_config(model, self.tensors)
        self.num_bits = length - (end is not None)
        self.bits = np.array(list(itertools.product((0, 1), repeat=self.num_bits)))
        self.strings = np.array(symbols)[self.bits]
        if end is not None:
            last = np.full((len(self.strings), 1), end)
            self.strings = np.concatenate([self.strings, last], axis=1)
        traces = [self._trace(string) for string in self.strings]
        depth = len(model.layers)
        # [layer][string, position, d] and [layer][string, head, query, key]
        self.rows = [
            np.stack([rows[k] for rows, _ in traces]) for k in range(depth + 1)
        ]
        self.cells = [np.stack([cells[k] for _, cells in traces]) for k in range(depth)]
        self.final = np.stack(
            [
                reference.forward(self.config, self.tensors, s, ties="ignore")
                for s in self.strings
            ]
        )

    def _trace(self, string):
        config, n = self.config, len(string)
        inner = {k: v for k, v in self.tensors.items() if "final_norm" not in k}
        rows = [
            reference.forward(
                {**config, "layers": config["layers"][:k]}, inner, string, ties="ignore"
            )
            for k in range(len(config["layers"]) + 1)
        ]
        cells = []
        for k, layer in enumerate(config["layers"]):
            u, name = rows[k], f"layers.{k}"
            if config["layer_norm"] == "pre":
                norm = [inner[f"{name}.norm1.{part}"] for part in ("scale", "bias")]
                epsilon = config["layer_norm_epsilon"]
                u = reference.layer_norm(u, *norm, epsilon, AR)
            resolution = {**config, **layer}.get("tie_resolution") or 1e-9
            per_head = []
            for h in range(len(inner[f"{name}.attention.query"])):
                q, key = (
                    u @ inner[f"{name}.attention.{part}"][h].T
                    + inner.get(f"{name}.attention.{part}_bias", np.zeros((99, 1)))[h]
                    for part in ("query", "key")
                )
                vector = inner.get(f"{name}.attention.score_vector")
                vector = None if vector is None else vector[h]
                score = reference.scores(layer, q, key, vector, AR)
                score = score / reference.temperatures(layer["temperature"], n, AR)
                per_head.append(np.round(score / resolution))
            cells.append(np.stack(per_head))
        return rows, cells

    def completions(self, rho):
        """Which strings agree with rho, booleans."""
        rho = np.array(rho)
        return ((self.strings == rho) | (rho == -1)).all(axis=1)

    def deps(self, layer, position, rho):
        """The free bits on which an activation really depends."""
        rows = np.round(self.rows[layer][:, position], 9)
        known = dict(zip(map(tuple, self.bits), rows, strict=True))
        found = set()
        for bits in self.bits[self.completions(rho)]:
            for b in np.flatnonzero(np.array(rho)[: self.num_bits] == -1):
                other = bits.copy()
                other[b] = 1 - other[b]
                if (known[tuple(bits)] != known[tuple(other)]).any():
                    found.add(int(b))
        return sorted(found)

    def table_rows(self, layer, position, rho):
        """The completions of each row of a table, as booleans [rows, strings]."""
        deps = [position] * (rho[position] == -1)
        if layer:
            deps = self.deps(layer, position, rho)
        index = sum(
            (self.bits[:, b] << at for at, b in enumerate(deps)),
            np.zeros(len(self.bits), int),
        )
        own = index == np.arange(1 << len(deps))[:, None]
        return own & self.completions(rho)

    def attended(self, layer, head, position, chosen):
        """The positions that win, or share a win, in some of the chosen strings."""
        config = self.config["layers"][layer]
        seen = reference.visible(config["mask"], self.length)[position]
        if not seen.any():
            return set()
        found = set()
        for cells in self.cells[layer][chosen][:, head, position]:
            best = np.flatnonzero(seen & (cells == cells[seen].max()))
            tie = TIES[config["weighting"]]
            found |= set({"L": best[:1], "R": best[-1:], "avg": best}[tie].tolist())
        return found

    def is_constant(self, rho, query):
        """Whether the output is one for all completions."""
        final = self.final[self.completions(rho), query]
        return np.allclose(final, final[0], rtol=0, atol=1e-9)

    def restriction(self, generator, query):
        """A restriction with one output, fixing bits at random until there is one."""
        rho = np.full(self.length, -1)
        rho[self.num_bits :] = self.strings[0, self.num_bits :]
        order = generator.permutation(self.num_bits)
        for b in order:
            if self.is_constant(rho, query):
                break
            rho[b] = generator.choice(self.symbols)
        for b in order:
            freed = rho.copy()
            freed[b] = -1
            if self.is_constant(freed, query):
                rho = freed
        return [int(token) for token in rho]


def possible_set(enumeration, layer, head, position, chosen):
    """The possible set of a table row and its witness, from its completions."""
    config = enumeration.config["layers"][layer]
    seen = np.flatnonzero(
        reference.visible(config["mask"], enumeration.length)[position]
    )
    if not seen.size:
        return {"poss": [], "witness": None}
    cells = enumeration.cells[layer][chosen][:, head, position]
    low, high = cells.min(axis=0), cells.max(axis=0)
    tie = TIES[config["weighting"]]
    order = seen[::-1] if tie == "R" else seen
    witness = max(order, key=lambda j: low[j])  # the first of equals
    place = {j: at for at, j in enumerate(order)}
    poss = [
        int(j)
        for j in seen
        if high[j] > low[witness]
        or (high[j] == low[witness] and (tie == "avg" or place[j] <= place[witness]))
    ]
    return {"poss": poss, "witness": int(witness)}


def make_certificate(enumeration, rho, query, language="parity"):
    """The certificate of a restriction that leaves one output."""
    model, length = enumeration.model, enumeration.length
    depth = len(model.layers)
    layers = []
    for k in range(depth):
        listed = [query] if k == depth - 1 else range(length)
        entries = {}
        for i in listed:
            rows = enumeration.table_rows(k, i, rho)
            entries[str(i)] = {
                "deps": enumeration.deps(k + 1, i, rho),
                "heads": [
                    [possible_set(enumeration, k, h, i, chosen) for chosen in rows]
                    for h in range(model.layers[k].attention.num_heads)
                ],
            }
        layers.append(entries)
    if depth:
        layers[-1][str(query)]["deps"] = []
    pair, members, count = None, None, None
    free = [i for i in range(length) if rho[i] == -1]
    if language == "parity" and free:
        first = np.where(np.array(rho) == -1, enumeration.symbols[0], rho)
        second = first.copy()
        second[free[0]] = enumeration.symbols[1]
        pair = [first.tolist(), second.tolist()]
        member = jm.get_language("parity").contains
        members = [bool(member(np.array(one))) for one in pair]
        count = len(free) - 1
    string = (
        pair[0] if pair else [t if t != -1 else enumeration.symbols[0] for t in rho]
    )
    output = jm.apply(model, np.array(string, np.int32), ties="ignore")[query]
    attentions = [layer.attention for layer in model.layers]
    return {
        "format": "attention-bounds restriction certificate 1",
        "n": length,
        "L": depth,
        "H": [attention.num_heads for attention in attentions],
        "tie": [TIES[attention.weighting.name] for attention in attentions],
        "mask": [attention.mask for attention in attentions],
        "model_digest": hashlib.sha256(jm.model_bytes(model)).hexdigest(),
        "symbols": list(enumeration.symbols),
        "rho": list(rho),
        "query": query,
        "mode": "floating",
        "layers": layers,
        "output": np.asarray(output).tolist(),
        "pair": pair,
        "language": language if pair else None,
        "members": members,
        "free": len(free),
        "log2_misclassified": count,
    }


def changed(certificate, **entries):
    """A deep copy with other entries."""
    return {**copy.deepcopy(certificate), **entries}


def certified(model, seed, length=5, end=2):
    """An enumeration, and the certificate of the best of some random restrictions."""
    enumeration = Enumeration(model, length, end)
    generator = np.random.default_rng(seed)
    drawn = [enumeration.restriction(generator, length - 1) for _ in range(12)]
    rho = max(drawn, key=lambda rho: rho.count(-1))
    return enumeration, make_certificate(enumeration, rho, length - 1)


def is_true(enumeration, certificate, model=None):
    """Whether the package's forward pass gives all completions that one output."""
    chosen = enumeration.completions(certificate["rho"])
    strings = enumeration.strings[chosen]
    found = outputs(model or enumeration.model, strings, certificate["query"])
    return np.allclose(found, certificate["output"], rtol=0, atol=1e-9)
