"""What is asked of kernels of lanes: beside `incremental`, and of what they are made."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np

import jax_models as jm
from bounds.influence import METHODS, Problem, fused_sums
from bounds.influence.change_block import change_block, prepare

TYPES = ("float32", "float64")


def draw(seed=0, **options):
    shape = {"num_layers": 2, "num_heads": 2, "d_model": 8, "d_ff": 16, "vocab_size": 3}
    options = {**shape, "dtype": "float64", **options}
    return jm.random_transformer(jax.random.key(seed), **options)


def ask(model, length, method, **question):
    """Influences and their radii."""
    tokens = np.random.default_rng(length).integers(0, 3, length)
    problem = Problem.ask(model, tokens, **question)
    blocks = list(METHODS[method].blocks(problem))
    return [
        np.concatenate([getattr(x, y) for x in blocks]) for y in ("influence", "radius")
    ]


def disagreement(model, length, **question):
    """The largest difference to `incremental`, over the lesser radius of the two."""
    (found, one), (expected, two) = (
        ask(model, length, method, **question) for method in ("fused", "incremental")
    )
    apart, room = np.abs(found - expected), np.minimum(one, two)
    assert expected.max() > 0
    # Where neither may be off, any difference is too large; and so is what is not a number.
    return np.nan_to_num(apart / np.where(room > 0, room, 1e-300), nan=np.inf).max()


def noticed(model, length, plant):
    """Whether all agrees, and no longer once an error is planted."""
    before = disagreement(model, length)
    plant()
    jax.clear_caches()
    after = disagreement(model, length)
    jax.clear_caches()
    return before < 1 and not after < 1


def plant_weights(monkeypatch):
    """The change of a weight is off by 1e-9 of it."""
    right = fused_sums.moved_weights

    def wrong(*about):
        new, difference = right(*about)
        return new, difference * (1 + 1e-9)

    monkeypatch.setattr(fused_sums, "moved_weights", wrong)


def plant_centre(monkeypatch):
    """A centre is near enough where what moves is small beside 1, not beside itself."""

    def wrong(centre, mean, spread):
        return jnp.where(jnp.abs(mean - centre) <= 1, centre, mean)

    monkeypatch.setattr(fused_sums, "_centre", wrong)


def plant_reference(monkeypatch):
    """Exponents are taken relative to what the first row was."""
    monkeypatch.setattr(fused_sums, "ROOM", 1e9)


def traced(**options):
    """The program of a block, on a machine that may lack the device."""
    model = draw(**options)
    tokens, some = jnp.zeros(20, jnp.int32), jax.ShapeDtypeStruct((5,), jnp.int32)
    state = jax.eval_shape(lambda *x: prepare(*x, 19, None), model, tokens)
    options = {"query": 19, "target": "activation", "row_tile": 8, "fused": True}
    return change_block.trace(model, tokens, state, some, some, **options)


def equations(jaxpr, inside=False):
    """How many a program's kernels have, with those of their loops and branches."""
    count = 0
    for equation in jaxpr.eqns:
        kernel = inside or equation.primitive.name == "pallas_call"
        parts = jax.tree.leaves(equation.params, is_leaf=is_program)
        parts = [getattr(x, "jaxpr", x) for x in parts if is_program(x)]
        count += inside + sum(equations(x, kernel) for x in parts)
    return count


def is_program(x):
    return hasattr(getattr(x, "jaxpr", x), "eqns")


def on_cuda():
    """A context in which programs are lowered for a card that is not there."""
    kind = getattr(jax.sharding, "AbstractDevice", None)
    if kind is None:
        return jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ()))
    told = {"device_kind": "NVIDIA H100", "num_cores": None, "platform": "gpu"}
    told = {name: told[name] for name in inspect.signature(kind).parameters}
    mesh = jax.sharding.AbstractMesh((1,), ("x",), abstract_device=kind(**told))
    return jax.sharding.use_abstract_mesh(mesh)
