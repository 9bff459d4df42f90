"""Products over many rows are formed in tiles, which one CPU compiler needs to be right.

See `jax_models.run.compiler`. The programs are traced at a length beyond that of its defect
and with its inner widths; what they compute there is compared with the option that avoids
it, and without, by `test_long_inputs_are_the_same_with_the_option_and_without`.
"""

import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.operations import Outline
from bounds.influence import METHODS
from bounds.influence.build import build_request
from jax_models.model.transformer import forward
from jax_models.run.compiler import REMEDY, SAFE_ROWS, is_affected
from tests.architecture import small_model
from tests.compiled import equations
from tests.long_inputs import long_inputs

# Traced here, or compared with what the option gives.
pytestmark = long_inputs
LENGTH = 20_001
TOKENS = np.arange(LENGTH) % 3


def long_products(program):
    """Shapes of products with an axis of over `SAFE_ROWS` entries that is kept."""
    for equation in equations(program):
        if equation.primitive is jax.lax.dot_general_p:
            summed, _ = equation.params["dimension_numbers"]
            shapes = [x.aval.shape for x in equation.invars]
            if any(
                size > SAFE_ROWS and axis not in axes
                for shape, axes in zip(shapes, summed, strict=True)
                for axis, size in enumerate(shape)
            ):
                yield shapes


def draw(**options):
    shape = {"num_layers": 2, "vocab_size": 3, "position": None, "dtype": "float64"}
    return small_model(1, **{**shape, **options})


CASES = [
    ("incremental", {"d_model": 3, "num_layers": 1, "layer_norm": "pre"}),
    ("incremental", {"d_model": 5, "mask": "future", "score": "additive"}),
    ("incremental", {"d_model": 6, "weighting": "average_hard"}),
    ("incremental", {"d_model": 5, "num_layers": 3}),
    ("exhaustive", {"d_model": 6, "layer_norm": "pre", "num_classes": 3}),
    ("partial", {"d_model": 3, "mask": "future", "num_layers": 3}),
]


@pytest.mark.parametrize(
    ("method", "options"),
    CASES,
    ids=lambda x: x if isinstance(x, str) else ",".join(map(str, x.values())),
)
def test_kernels_form_products_over_many_rows_in_tiles(method, options):
    request = build_request(draw(**options), TOKENS, positions=range(0, LENGTH, 200))
    outline = Outline.of(METHODS[method], request)
    assert list(long_products(outline.base.jaxpr)) == []
    for part in outline.kernel.parts:
        assert list(long_products(outline.trace(part).jaxpr)) == []


def test_a_forward_pass_forms_products_over_many_rows_in_tiles():
    model = draw(d_model=5, layer_norm="post", num_classes=3)
    assert list(long_products(jax.make_jaxpr(forward)(model, TOKENS))) == []


def test_a_product_over_many_rows_is_found_wherever_it_is():
    weight, rows = jnp.ones((3, 3)), jnp.ones((LENGTH, 3))

    def looped(x):
        return jax.lax.map(lambda _: jnp.matmul(weight, x.T).max(0), jnp.arange(2))

    assert list(long_products(jax.make_jaxpr(looped)(rows))) == [[(3, 3), (3, LENGTH)]]
    summed = jax.make_jaxpr(lambda x: jnp.matmul(x.T, x))(rows)
    assert list(long_products(summed)) == []


MEASURE = """
import json, sys
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
import warnings
warnings.simplefilter("ignore")
import bounds, jax_models as jm
n, found = 20_001, {}
width, heads, layers = map(int, sys.argv[1:])
tokens, places = np.arange(n) % 3, [0, 7, 16_383, 16_384, n - 2]
model = jm.random_transformer(
    jax.random.key(width), num_layers=layers, num_heads=heads, d_model=width, d_ff=4,
    vocab_size=3, position=None, num_classes=3, layer_norm="pre", dtype="float64")
found["apply"] = np.asarray(jm.apply(model, tokens))[[0, 16_384, n - 1]].ravel().tolist()
asked = [("incremental", "activation"), ("incremental", "logits")]
asked += [(method, "activation") for method in ("exhaustive", "partial")]
if layers > 1:
    asked.append(("screened", "logits"))
for method, target in asked:
    one = bounds.compute_influence(
        model, tokens, method=method, positions=places, target=target)
    found[f"{method} {target}"] = one.upper[places].ravel().tolist()
scan = bounds.scan(model, tokens, positions=places, rows=[0, 16_390, n - 1])
found["scan"] = np.asarray(scan.values).ravel().tolist()
if layers == 1:
    plain = jm.random_transformer(
        jax.random.key(width), num_layers=1, num_heads=heads, d_model=width, d_ff=4,
        vocab_size=3, position=None, dtype="float64", scale=0.3)
    found["certificate"] = [float(bounds.certify_influence(plain, tokens).max_upper)]
    forms = bounds.closed_form_bounds(plain, n)
    found["closed form"] = [forms.corrected.others.log10_value]
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.skipif(not is_affected(), reason="this jaxlib has no defect")
@pytest.mark.parametrize(
    "sizes", ["3 1 2", "3 3 1", "5 1 2", "6 1 1", "6 2 2", "6 3 1"]
)
def test_long_inputs_are_the_same_with_the_option_and_without(sizes):
    command, results = [sys.executable, "-c", MEASURE, *sizes.split()], []
    for flags in ("", REMEDY):
        settings = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
        settings["PYTHONWARNINGS"] = "ignore"
        done = subprocess.check_output(command, env=settings, text=True)
        results.append(json.loads(done))
    without, with_option = results
    assert without.keys() == with_option.keys()
    for name, numbers in without.items():
        np.testing.assert_allclose(numbers, with_option[name], rtol=1e-9, err_msg=name)
