"""Errors planted in the closed forms are caught, each by a model built for it.

One head of one layer without a feed-forward block: logits are mu times the product of
first coordinates, values are the activations, and the row that is read gains their
average. The first token is exchanged for one a small step away.
"""

import dataclasses

import numpy as np
import pytest

from benchmarks import reference
from bounds.lemma5.closed_form import recursion, uniform
from bounds.lemma5.closed_form.recursion import weight_bound
from bounds.lemma5.constants import closed_form_bounds
from bounds.numbers.interval import minimum
from jax_models.format.build import build_model


@dataclasses.dataclass(frozen=True)
class Case:
    """Tokens 0 at the first and last position, 2 elsewhere; 0 is exchanged for 1."""

    mu: float
    length: int
    symbols: tuple[tuple[float, float], ...]

    @property
    def config(self):
        layer = {"weighting": "softmax", "mask": "none", "score": "dot_product"}
        layer["temperature"] = None
        return {
            "format": "attention-bounds/1",
            "substitutable": [0, 1],
            "layers": [layer],
        }

    @property
    def tensors(self):
        name = "layers.0.attention"
        return {
            "embedding": np.array(self.symbols),
            f"{name}.query": np.array([[[self.mu, 0.0]]]),
            f"{name}.key": np.array([[[1.0, 0.0]]]),
            f"{name}.value": np.eye(2)[None],
            f"{name}.output": np.eye(2),
            "layers.0.ffn.w1": np.zeros((1, 2)),
            "layers.0.ffn.b1": np.zeros(1),
            "layers.0.ffn.w2": np.zeros((2, 1)),
            "layers.0.ffn.b2": np.zeros(2),
        }

    @property
    def exact(self):
        tokens = [0, *[2] * (self.length - 2), 0]
        found = reference.influence(self.config, self.tensors, tokens)
        return np.nanmax(found[0])

    def bounds(self, length=None):
        """The corrected bound, C1 and C2, as numbers."""
        model = build_model(self.config, self.tensors)
        forms = closed_form_bounds(model, length or self.length)
        assert forms.c1 is not None
        assert forms.c2 is not None
        return {
            "corrected": forms.corrected.others.value,
            "linear": forms.linear.others.value,
            "C1": forms.c1.others.value,
            "C2": forms.c2.others.value,
        }


# Equal weights: the influence is D/n exactly.
UNIFORM = Case(0.0, 8, ((1.0, 0.0), (1.0, 0.5), (1.0, 0.0)))
# The heaviest of the keys moves along the logits, so that its weight falls too.
HEAVY = Case(1.0, 100, ((1.0, 0.0), (1.0 - 1e-3, 0.0), (-1.0, 0.0)))


def change_of_values_only(weight, with_logits):
    """Corollary B with its parts exchangeable."""

    def bound(score, norm, length, query, other, own, saturating):
        alpha = weight(score.half_oscillation(norm), length)
        logit_other = score.query_slope(norm) * query + score.key_slope(norm) * other
        logit_own = score.query_slope(norm) * query + score.key_slope(norm) * own
        change = other + alpha * (own - other)
        change += norm * (logit_other + 2 * alpha * logit_own) * int(with_logits)
        return minimum(change, 2 * norm) if saturating else change

    return bound


@pytest.mark.parametrize("case", [UNIFORM, HEAVY])
def test_every_bound_holds_without_a_planted_error(case):
    exact = case.exact
    assert all(exact <= value * (1 + 1e-12) for value in case.bounds().values())


def test_the_scaffold_without_an_error_changes_nothing(monkeypatch):
    true = HEAVY.bounds()
    scaffold = change_of_values_only(weight_bound, with_logits=True)
    monkeypatch.setattr(recursion, "change_bound", scaffold)
    assert HEAVY.bounds() == pytest.approx(true, rel=1e-12)


def test_a_forgotten_change_of_the_weights_is_caught(monkeypatch):
    wrong = change_of_values_only(weight_bound, with_logits=False)
    monkeypatch.setattr(recursion, "change_bound", wrong)
    assert HEAVY.bounds()["corrected"] < 0.5 * HEAVY.exact


def test_e_to_the_a_in_the_recursion_is_caught(monkeypatch):
    wrong = change_of_values_only(lambda a, n: weight_bound(a / 2, n), True)
    monkeypatch.setattr(recursion, "change_bound", wrong)
    assert HEAVY.bounds()["corrected"] < 0.5 * HEAVY.exact


@pytest.mark.parametrize(("module", "name"), [(uniform, "C1"), (uniform, "C2")])
def test_e_to_the_a_in_a_closed_form_is_caught(module, name, monkeypatch):
    true = module.exp
    monkeypatch.setattr(module, "exp", lambda x: true(x / 2))
    assert HEAVY.bounds()[name] < HEAVY.exact


def test_an_off_by_one_length_is_caught():
    assert UNIFORM.exact == pytest.approx(0.5 / 8, rel=1e-12)
    longer = UNIFORM.bounds(length=9)
    for name in ("corrected", "linear", "C1"):
        assert longer[name] < UNIFORM.exact
        assert UNIFORM.bounds()[name] == pytest.approx(UNIFORM.exact, rel=1e-9)
