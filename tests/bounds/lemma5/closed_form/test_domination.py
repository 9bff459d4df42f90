"""Exact influence <= corrected recursion <= C1 and C2, on random tiny transformers.

The exact side is a brute force in plain NumPy (`toy`): every position, every symbol.
"""

import itertools
import math

import numpy as np
import pytest

from bounds.lemma5.closed_form import (
    influence_recursion,
    masked_recursion,
    printed_shape_bound,
    single_exponential_bound,
    uniform_constants,
)
from tests.bounds.lemma5.closed_form import toy

LENGTHS = (2, 3, 8, 33)
SHAPES = [
    ("residual", "none"),
    ("residual", "pre"),
    ("residual", "post"),
    ("concat", "none"),
]
CASES = [
    (form, layer_norm, score, depth)
    for (form, layer_norm), score, depth in itertools.product(
        SHAPES, ("dot", "additive"), (1, 2, 3, 4)
    )
]
SCALES = (0.1, 0.3, 1.0, 3.0)


def family(form, layer_norm, score, depth, index, masks=("none",)):
    """A family whose other settings run through their values with the index."""
    return toy.Family(
        form=form,
        layer_norm=layer_norm,
        score=score,
        num_layers=depth,
        num_heads=1 + index % 4,
        masks=masks,
        scale=SCALES[index % 4],
        score_scale=SCALES[index // 4 % 4],
        temperature=(0.5, 1.0, 2.0)[index % 3],
        biases=index % 5 > 0,
    )


def models(masks=("none",)):
    """Every case at every scale, lengths in turn: 128 models and an input each."""
    for index, (case, _) in enumerate(itertools.product(CASES, SCALES)):
        model = toy.draw(family(*case, index, masks), index)
        length = LENGTHS[(index + index // 4) % len(LENGTHS)]
        tokens = np.random.default_rng(index).integers(0, toy.VOCABULARY, length)
        yield model, tokens


def radius(model, tokens):
    """Rounding of two forward passes that are subtracted."""
    size = np.linalg.norm(toy.run(model, tokens[None]), axis=-1).max()
    return 100 * np.finfo(float).eps * size


def test_the_chain_of_bounds_holds_without_exception():
    slack = {"others": math.inf, "own": math.inf}
    halves = 0
    for model, tokens in models():
        n = len(tokens)
        exact = toy.influence(model, tokens)
        layers, norms = toy.layer_constants(model, n)
        distance = toy.distance(model)
        assert np.linalg.norm(toy.run(model, tokens[None]), axis=-1).max() <= norms[-1]
        saturating = influence_recursion(layers, n, distance)[-1]
        linear = influence_recursion(layers, n, distance, saturating=False)[-1]
        uniform = uniform_constants(layers)
        for closed in (single_exponential_bound, printed_shape_bound):
            c = closed(uniform, n, distance)
            assert linear.others <= c.others
            assert linear.own <= c.own
        assert saturating.others <= linear.others
        assert saturating.own <= linear.own
        off = exact[~np.eye(n, dtype=bool)].max()
        for name, value in (("others", off), ("own", np.diag(exact).max())):
            bound = getattr(saturating, name)
            assert value <= bound.value + radius(model, tokens)
            slack[name] = min(slack[name], bound.value / value)
        halves += off > 0.5 * saturating.others.value
    # A bound that were vacuous everywhere would not be a bound worth having.
    assert 1 <= slack["others"] < 2
    assert 1 <= slack["own"] < 1.1
    # The oracle notices a bound that is too small: half of this one is.
    assert halves > 0
    print(f"smallest slack, no mask: {slack}")


@pytest.mark.parametrize(
    "masks",
    [
        ("none",),
        pytest.param(("future",), marks=pytest.mark.slow),
        pytest.param(("past",), marks=pytest.mark.slow),
        pytest.param(("strict_future",), marks=pytest.mark.slow),
        pytest.param(("strict_past",), marks=pytest.mark.slow),
        ("future", "past"),
        ("strict_past", "none", "future"),
    ],
    ids="-".join,
)
def test_the_masked_recursion_dominates_every_row(masks):
    slack = math.inf
    for index, (model, tokens) in enumerate(models(masks)):
        if index % 3 != len(masks[0]) % 3:
            continue
        n = len(tokens)
        exact = toy.influence(model, tokens)
        layers, _ = toy.layer_constants(model, n)
        layer_masks = [model.family.mask(k) for k in range(len(layers))]
        distance, margin = toy.distance(model), radius(model, tokens)
        every = masked_recursion(
            layers, layer_masks, n, distance, saturating=index % 2 > 0
        )
        position = index % n
        one = masked_recursion(layers, layer_masks, n, distance, position=position)
        linear = masked_recursion(
            layers, layer_masks, n, distance, position=position, saturating=False
        )
        # Two float recursions: each is certified, their order holds up to rounding.
        assert one.own().log_value <= linear.own().log_value + 1e-12
        for j in range(n):
            if j != position:
                bound = one.others(j)
                assert exact[position, j] <= bound.value + margin
                assert bound.log_value <= linear.others(j).log_value + 1e-12
                if exact[position, j] > margin:
                    slack = min(slack, bound.value / exact[position, j])
            rest = np.delete(exact[:, j], j).max()
            assert rest <= every.others(j).value + margin
            assert exact[j, j] <= every.own().value + margin
        assert exact[position, position] <= one.own().value + margin
    assert 1 <= slack < 5
    print(f"smallest slack, {masks}: {slack}")


@pytest.mark.parametrize("mask", ["none", "future", "past"])
def test_one_run_for_every_position_covers_each_of_them(mask):
    """For the masks in which sorting loses nothing, it is the worst of them."""
    model = toy.draw(toy.Family(num_layers=3, masks=(mask,)), 5)
    n = 9
    layers, _ = toy.layer_constants(model, n)
    runs = [masked_recursion(layers, [mask] * 3, n, 0.3, position=i) for i in range(n)]
    every = masked_recursion(layers, [mask] * 3, n, 0.3)
    for j in range(n):
        worst = max(runs[i].others(j).log_value for i in range(n) if i != j)
        assert every.others(j).log_value == pytest.approx(worst, abs=1e-10)
    worst = max(run.own().log_value for run in runs)
    assert every.own().log_value == pytest.approx(worst, abs=1e-10)
