"""Certificates of tiny inputs, and what is true of each: every completion, one by one.

Nothing here knows tables, intervals of cells or enclosures. Whom a row attends to comes from
the reference forward pass of every string.
"""

import copy
import hashlib
import itertools
from typing import Any
from unittest import mock

import jax
import numpy as np

import jax_models as jm
from benchmarks import reference
from bounds.restriction import find_counterexample
from jax_models.format.build import name_tensors
from jax_models.format.config import encode_config
from tests.bounds.restriction.drawn_models import outputs

TIES = {"leftmost_hard": "L", "rightmost_hard": "R", "average_hard": "avg"}


class Enumeration:
    """All strings of bits with an end token behind them, and their attention."""

    def __init__(self, model, length, end=2):
        self.model, self.length = model, length
        self.tensors = jax.tree.map(np.asarray, name_tensors(model))
        self.config: Any = encode_config(model, self.tensors)
        words = itertools.product((0, 1), repeat=length - 1)
        self.strings = np.array([(*word, end) for word in words])
        # By string: the positions with weight, by layer, head and query.
        self.attention = [self._attention(string) for string in self.strings]

    def _attention(self, string):
        weights, winners = reference.row_weights, []

        def recorded(*given):
            winners.append(np.flatnonzero(weights(*given)))
            return weights(*given)

        with mock.patch.object(reference, "row_weights", recorded):
            reference.forward(self.config, self.tensors, string, ties="ignore")
        # The reference goes by layer, head and query, and asks about rows that see any.
        found, order = {}, iter(winners)
        for k, layer in enumerate(self.config["layers"]):
            sees = reference.visible(layer["mask"], self.length)
            for h in range(len(self.tensors[f"layers.{k}.attention.query"])):
                for i, seen in enumerate(map(np.flatnonzero, sees)):
                    found[k, h, i] = (
                        set(seen[next(order)].tolist()) if seen.size else set()
                    )
        return found

    def completions(self, rho):
        """Which strings agree with rho, booleans."""
        rho = np.array(rho)
        return ((self.strings == rho) | (rho == -1)).all(axis=1)

    def attended(self, certificate, at):
        """The positions that win, or share a win, in some string of a table's row."""
        (k, i, h, a), rho = at, certificate["rho"]
        deps = [int(i)] * (rho[int(i)] == -1)
        if k:
            deps = certificate["layers"][k - 1][i]["deps"]
        row = [a >> place & 1 for place in range(len(deps))]
        chosen = self.completions(rho) & (self.strings[:, deps] == row).all(axis=1)
        attention = (self.attention[s][k, h, int(i)] for s in np.flatnonzero(chosen))
        return set().union(*attention)


def changed(certificate, **entries):
    """A deep copy with other entries."""
    return {**copy.deepcopy(certificate), **entries}


def forged(certificate, model, **entries):
    """A certificate that says to be of `model`, with other entries."""
    digest = hashlib.sha256(jm.model_bytes(model)).hexdigest()
    return changed(certificate, model_digest=digest, **entries)


def certified(model, seed, length=5, end=2):
    """An enumeration, and the certificate of a restriction with a pair of PARITY."""
    given = [-1] * (length - 1) + [end]
    found = find_counterexample(
        model, length, "parity", pre_restriction=given, seed=seed, attempts=6
    )
    return Enumeration(model, length, end), found.certificate


def is_true(enumeration, certificate, model=None):
    """Whether the package's forward pass gives all completions that one output."""
    chosen = enumeration.completions(certificate["rho"])
    strings = enumeration.strings[chosen]
    found = outputs(model or enumeration.model, strings, certificate["query"])
    return np.allclose(found, certificate["output"], rtol=0, atol=1e-9)
