"""Blocks are as large as suits the device, smaller where memory is short."""

import dataclasses

import jax
import numpy as np
import pytest

import bounds
from benchmarks.operations import Outline
from bounds import Run
from bounds.influence import METHODS, SCREENS, InfluenceRequest
from bounds.influence.blocks import block_memory
from bounds.influence.blocks.block_memory import base_bytes, fit_block
from bounds.influence.methods.exhaustive import pass_bytes
from bounds.influence.propagation.change_block import block_bytes
from bounds.influence.substitution import list_substitutions
from bounds.influence.two_layers.block import product_block
from bounds.influence.two_layers.choice import product_bytes
from bounds.rounding.moved_inputs import RUNS
from tests.architecture import small_model
from tests.bounds.influence.expect import meet, refused

N = 40


def draw(**options):
    shape = {"num_layers": 2, "num_heads": 2, "d_model": 16, "d_ff": 32}
    return small_model(**{**shape, "mask": "none", "dtype": "float64", **options})


def draw_tokens(n=N):
    return np.random.default_rng(1).integers(0, 2, n, dtype=np.int32)


def pose(model, n, limit=None):
    tokens = draw_tokens(n)
    pairs = list_substitutions(tokens, 2, query=n - 1)
    # Not asked: the model may be one of shapes alone.
    return InfluenceRequest(
        model, tokens, n - 1, "activation", pairs, memory_limit=limit
    )


def test_without_a_limit_one_substitution_goes_ahead(monkeypatch):
    monkeypatch.setattr(block_memory, "memory_budget", lambda: 1)
    assert fit_block(100, lambda size: 2.0 * size, None) == 1


@pytest.mark.parametrize(
    ("method", "layers", "limit"),
    [
        ("incremental", 2, 2**21),
        ("exhaustive", 2, 2**20),
        ("partial", 2, 2**21),
        ("incremental", 1, 2**19),
        ("incremental", 3, 2**22),
        ("screened", 3, 2**23),
    ],
)
def test_short_memory_makes_smaller_blocks_and_the_same_influence(
    method, layers, limit
):
    model, asked = draw(num_layers=layers), {"method": method}
    wide = bounds.compute_influence(model, draw_tokens(), **asked)
    asked["run"] = Run(memory_limit=limit)
    narrow = bounds.compute_influence(model, draw_tokens(), **asked)
    assert 1 <= narrow.block.substitutions < wide.block.substitutions
    assert (narrow.position, narrow.symbol) == (wide.position, wide.symbol)
    assert abs(narrow.max - wide.max) <= wide.max_upper - wide.max_lower
    assert meet(narrow, wide)


def test_a_screen_whose_exact_evaluations_do_not_fit_is_refused_before_it_runs():
    model, limit = jax.eval_shape(lambda: draw(num_layers=3)), 2**20
    for method in ("screened", "incremental"):
        with refused("memory limit is 1 MiB"):
            {**METHODS, **SCREENS}[method].sizes(pose(model, N, limit))


def held(tree):
    """Bytes of all arrays."""
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"layer_norm": "post", "weighting": "average_hard"},
        {"score": "additive", "num_heads": 4},
    ],
    ids=["softmax", "norms, hard", "additive"],
)
def test_what_a_base_pass_keeps_is_below_its_model(options):
    model, n = jax.eval_shape(lambda: draw(**options)), 64
    state = Outline.of(METHODS["incremental"], pose(model, n)).kernel.shared[3]
    each = base_bytes(model, n) / (1 + RUNS)
    assert held(state) <= each <= 3 * held(state)


@pytest.mark.slow
@pytest.mark.parametrize("n", [128, 1024])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"d_ff": 256},
        {"num_layers": 1},
        {"num_layers": 3},
        {"num_layers": 2, "score": "additive"},
        {"layer_norm": "pre", "num_heads": 8},
        {"weighting": "average_hard"},
    ],
    ids=lambda options: ", ".join(f"{k}={v}" for k, v in options.items()) or "softmax",
)
def test_what_the_compiler_accounts_for_is_below_the_models(options, n):
    jax.config.update("jax_disable_most_optimizations", False)
    model = draw(**options)
    for method in ("incremental", "exhaustive"):
        outline = Outline.of(METHODS[method], pose(model, n))
        (part,) = outline.kernel.parts
        part = dataclasses.replace(part, batch=min(part.batch, part.end))
        told = outline.trace(part).lower().compile().memory_analysis()
        if method == "exhaustive":
            size = part.batch * pass_bytes(model, n)
        elif outline.kernel.function is product_block:
            size = product_bytes(model, n, part.batch)
        else:
            size = block_bytes(model, n, part.batch, part.options["row_tile"])
        assert told.temp_size_in_bytes <= size <= 8 * told.temp_size_in_bytes
