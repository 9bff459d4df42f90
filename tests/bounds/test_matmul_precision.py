"""No product runs below full precision: a GPU's default rounds float32 to 10 bits."""

import ast
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bounds
from benchmarks.operations import Outline
from bounds.cli.main import main
from bounds.influence import METHODS
from bounds.influence.build import build_request
from bounds.lemma5.certificate import certify_influence
from tests.bounds.influence.models import TOKENS, build
from tests.test_architecture import modules

PRODUCTS = {
    *("convolve", "dot", "dot_general", "einsum", "inner"),
    *("matmul", "tensordot", "vdot"),
}
FULL = (jax.lax.Precision.HIGHEST, jax.lax.Precision.HIGHEST)
# Of NumPy arrays and enclosures, in modules that have jax.numpy for something else.
ON_THE_HOST = {
    "bounds.lemma5.certificate.sections",
    "bounds.influence.screening.envelopes",
    "bounds.restriction.checking.layer",
    "bounds.restriction.possible",
    "jax_models.programs.logic.self_test",
    "jax_models.languages.automaton",
    "jax_models.languages.dyck_source",
}


def unstated(source):
    """Lines of products of jax.numpy that name no precision, and of the operator @."""
    tree = ast.parse(source)
    calls, operators = [], []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            named = any(word.arg == "precision" for word in node.keywords)
            of_jax = ast.unparse(node.func.value) in ("jnp", "jax.numpy", "jax.lax")
            if of_jax and node.func.attr in PRODUCTS and not named:
                calls.append(node.lineno)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            operators.append(node.lineno)
    return calls, operators if "jnp" in source else []


def test_every_product_in_the_source_names_its_precision():
    missing, hosts = [], set()
    for name, path in modules("jax_models", "bounds").items():
        calls, operators = unstated(Path(path).read_text())
        missing += [f"{name}:{line}" for line in calls]
        hosts |= {name} if operators else set()
    assert not missing
    assert hosts == ON_THE_HOST


def test_a_product_without_precision_is_found_in_the_source():
    source = "import jax.numpy as jnp\ny = jnp.einsum('ij->i', x)\nz = x @ y\n"
    assert unstated(source) == ([2], [3])
    assert unstated("y = jnp.dot(x, x, precision=HIGHEST)") == ([], [])


@pytest.fixture
def bound(plant):
    """The precisions of all products that are traced or run from now on."""
    found = []
    bind = jax.lax.dot_general_p.bind

    def note(*arguments, **options):
        found.append(options["precision"])
        return bind(*arguments, **options)

    plant(jax.lax.dot_general_p, "bind", note)
    return found


def test_products_are_noted_wherever_they_are_traced(bound):
    half = (jax.lax.Precision.HIGHEST, jax.lax.Precision.DEFAULT)

    def step(x, _):
        inner = jax.jit(lambda x: jnp.matmul(x, x))
        chosen = jax.lax.cond(x[0, 0] > 0, inner, lambda x: x, x)
        return jnp.matmul(chosen, x, precision=half), None

    jax.make_jaxpr(lambda x: jax.lax.scan(step, x, None, length=3)[0])(np.eye(2))
    assert set(bound) == {None, half}


@pytest.mark.parametrize(
    "case",
    [
        {"num_layers": 2, "score": "additive", "layer_norm": "pre"},
        {"num_layers": 2, "combine": "concat", "target": "logits"},
        {"num_layers": 3, "temperature": "inverse_log", "final_norm": True},
        {"num_layers": 1, "mask": "none"},
        {"weighting": "average_hard", "layer_norm": "post"},
        {"weighting": "leftmost_hard", "activation": "gelu"},
    ],
    ids=lambda case: ", ".join(f"{k}={v}" for k, v in case.items()),
)
def test_products_of_kernels_run_at_full_precision(bound, case):
    target = case.get("target", "activation")
    request = build_request(build(case), TOKENS, target=target)
    for method in ("incremental", "exhaustive"):
        outline = Outline.of(METHODS[method], request)
        for part in outline.kernel.parts:
            outline.trace(part)
    assert len(bound) > 5
    assert set(bound) == {FULL}


@pytest.mark.slow
@pytest.mark.parametrize("combine", ["residual", "concat"])
def test_products_of_screens_and_certificates_run_at_full_precision(bound, combine):
    cases = [(2, "none"), (3, "none"), (3, "pre"), (3, "post")]
    for depth, norm in cases[:2] if combine == "concat" else cases:
        model = build({"num_layers": depth, "layer_norm": norm, "combine": combine})
        bounds.compute_influence(model, TOKENS, method="screened")
        certify_influence(model, TOKENS)
    assert len(bound) > 50
    assert set(bound) == {FULL}


@pytest.mark.slow
def test_products_of_commands_run_at_full_precision(bound, tmp_path):
    small = ["--d_model=4", "--d_ff=4", "--num_heads=1"]
    for command, *flags in (
        ("curve", "--lengths=4,8", "--num_inputs=1", "--bounds=estimate,certified"),
        ("lipschitz", "--lengths=4,8", "--num_inputs=1", "--steps=3", "--restarts=1"),
        ("supremum", "--length=6", "--mask=none", "--position=none"),
        ("train", "--length=6", "--steps=4", "--mask=future"),
        ("simulate", "--lengths=4"),
    ):
        code = main([command, *small, *flags, f"--out={tmp_path}/{command}"])
        assert code == 0, command
    assert len(bound) > 50
    assert set(bound) == {FULL}
