"""The defect of a CPU compiler: it is noticed, warned of once, and stayed clear of."""

import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxlib import version as jaxlib_version

import jax_models as jm
from jax_models.run import blocks, compiler
from jax_models.run.progress import compiling
from tests.architecture import small_model

LONG = 65  # rows, where `few_rows` holds
affected = pytest.mark.skipif(
    not compiler.is_affected(), reason="this jaxlib has no defect"
)


@pytest.fixture
def few_rows(monkeypatch):
    """As if fewer rows were too many for the compiler."""
    for module in (compiler, blocks):
        monkeypatch.setattr(module, "SAFE_ROWS", LONG - 1)
    monkeypatch.setattr(blocks, "MAX_KEY_TILE", 16)


@pytest.fixture
def unchecked(few_rows):
    """As in a process that has not looked at its compiler yet."""
    compiler._warn_if_unsound.cache_clear()
    yield
    compiler._warn_if_unsound.cache_clear()


def say(code, flags=""):
    """What a process with these XLA_FLAGS says: output, and standard error."""
    settings = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=settings,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return done.stdout.strip(), done.stderr


@affected
@pytest.mark.parametrize(("flags", "sound"), [("", "False"), (compiler.REMEDY, "True")])
def test_the_check_finds_the_defect_unless_the_option_is_set(flags, sound):
    code = "from jax_models.run.compiler import compiles_soundly; print(compiles_soundly())"
    assert say(code, flags)[0] == sound


def test_a_wrong_result_of_the_compiler_is_noticed(monkeypatch):
    def compiled(function):
        return lambda weight, x: (weight @ x.T).max(0)

    def plant(dtype):
        """A compiler that shifts the last row of programs in one type."""

        def wrong(function):
            def run(weight, x):
                y = np.array(compiled(function)(weight, x))
                return np.roll(y, x.dtype == dtype)

            return run

        monkeypatch.setattr(jax, "jit", wrong)
        return compiler.compiles_soundly()

    # A compiler that is right of itself, whatever this process has.
    monkeypatch.setattr(jax, "jit", compiled)
    assert compiler.compiles_soundly()
    assert not plant(np.float64)
    assert not plant(np.float32)


def test_a_process_without_double_precision_checks_it_too():
    code = (
        "import jax; from jax_models.run import compiler; seen = [];"
        "compiler._keeps_rows = lambda dtype, rows: "
        "seen.append(jax.numpy.zeros(1, dtype).dtype.name) or True;"
        "compiler.compiles_soundly();"
        "print(*seen, jax.config.jax_enable_x64)"
    )
    assert say(code)[0] == "float64 float32 False"


@pytest.mark.parametrize(
    "enter", ["apply", "apply in a trace", "influence", "function"]
)
def test_the_first_long_call_warns_in_one_line_that_names_the_option(
    enter, unchecked, monkeypatch
):
    import bounds

    monkeypatch.setattr(compiler, "is_affected", lambda: True)
    checks = []
    monkeypatch.setattr(
        compiler, "compiles_soundly", lambda: bool(checks.append(1)) or False
    )
    model = small_model(d_model=2, d_ff=2, position=None, dtype="float64")
    tokens = np.zeros(LONG, np.int32)

    def call(tokens):
        if enter == "apply":
            return jm.apply(model, tokens)
        if enter == "apply in a trace":
            return jax.eval_shape(lambda x: jm.apply(model, x), tokens)
        if enter == "influence":
            asked: Any = {"method": "lumped", "rounding": "none"}
            return bounds.compute_influence(model, tokens, **asked)
        function = bounds.Callable(
            lambda _, x: jnp.zeros((len(x), 1)), None, vocab_size=2, batched=True
        )
        return bounds.compute_influence(function, tokens, positions=[0])

    call(tokens[:-1])
    assert not checks
    with pytest.warns(compiler.MiscompilationWarning) as caught:
        [call(tokens) for _ in range(2)]
    assert len(caught) == len(checks) == 1
    (said,) = caught
    assert compiler.REMEDY in str(said.message)
    assert "\n" not in str(said.message)


@pytest.mark.parametrize(
    ("version", "flags", "expected"),
    [
        ("0.10.2", None, compiler.REMEDY),
        ("0.10.2", "--xla_a=1", f"--xla_a=1 {compiler.REMEDY}"),
        ("0.10.2", f"{compiler.OPTION}=+dot", f"{compiler.OPTION}=+dot"),
        ("0.12.0.1", "--xla_a=1", "--xla_a=1"),
    ],
)
def test_the_option_is_added_where_it_helps_and_is_not_named(
    version, flags, expected, monkeypatch
):
    monkeypatch.setattr(jaxlib_version, "__version__", version)
    monkeypatch.setattr(os, "environ", {} if flags is None else {"XLA_FLAGS": flags})
    compiler.avoid_miscompilation()
    compiler.avoid_miscompilation()
    assert os.environ["XLA_FLAGS"] == expected


@pytest.mark.parametrize("shape", [(LONG, 3), (2, LONG, 3), (LONG, 2, 3), (3,), (7, 3)])
def test_a_long_axis_is_mapped_in_tiles_and_keeps_its_place(shape, few_rows):
    rows = np.random.default_rng(0).normal(size=shape)
    weight = np.random.default_rng(1).normal(size=(2, 4, 3))

    def project(rows):
        assert max(rows.shape) <= 16
        return jnp.einsum("hed,...d->h...e", weight, rows)

    found = blocks.map_long_axis(project, jnp.asarray(rows), out_offset=1)
    np.testing.assert_allclose(
        found, np.einsum("hed,...d->h...e", weight, rows), rtol=1e-12, atol=1e-14
    )


def test_jax_is_heard_to_begin_and_to_end(monkeypatch):
    begun = []
    with compiling() as under_way:
        begin = under_way.set
        monkeypatch.setattr(under_way, "set", lambda: begun.append(begin()))
        jax.jit(lambda x: jnp.sin(x) + 41)(2.0)
        assert begun
        assert not under_way.is_set()
    begun.clear()
    jax.jit(lambda x: jnp.sin(x) + 42)(2.0)
    assert begun == []
