"""The kernel that fuses two layers, interpreted on a CPU, is `incremental` and no other."""

import itertools

import jax.numpy as jnp
import pytest

import jax_models as jm
from bounds.influence import (
    Problem,
    fused_body,
    fused_kernel,
    fused_pairs,
    fused_soft,
)
from bounds.influence.choice import choose_method
from jax_models.model.mask import MASKS
from tests.bounds.influence.fused_questions import (
    TYPES,
    disagreement,
    draw,
    equations,
    noticed,
    on_cuda,
    plant_centre,
    plant_reference,
    plant_weights,
    traced,
)
from tests.bounds.influence.models import TEMPERATURES, scaled_weights

pytestmark = pytest.mark.usefixtures("quick_compilation", "small_blocks")
TINY = {"num_heads": 1, "d_model": 2, "d_ff": 16}


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 16 substitutions and chunks of 8 rows, so that there are several."""
    monkeypatch.setattr(fused_pairs, "ROWS", 8)
    monkeypatch.setattr(fused_kernel, "LANES", 16)


SHAPES = {
    "usual": {},
    "odd": {"num_heads": 3, "d_model": 6, "d_ff": 5, "position": None},
    "concat": {"num_heads": 1, "d_model": 4, "d_ff": 24, "combine": "concat"},
    "window": {"window": 4, "score": "dot_product"},
    "temperature": {"temperature": TEMPERATURES["power of the position"]},
}


def cases():
    """Both types of the usual shape under every mask, the others in turn."""
    for (k, mask), name in itertools.product(enumerate(MASKS), SHAPES):
        if name != "temperature" or "future" in mask:
            types = TYPES if name == "usual" else TYPES[k % 2 :][:1]
            for dtype in types:
                quick = (name, mask, dtype) == ("usual", "future", "float64")
                marks = () if quick else pytest.mark.slow
                yield pytest.param(name, mask, dtype, marks=marks)


@pytest.mark.parametrize(("shape", "mask", "dtype"), list(cases()))
def test_the_kernel_is_incremental_within_the_radius(shape, mask, dtype):
    """From flat attention to scores beside which all but one weight underflow."""
    query = 0 if "past" in mask else 20
    for seed, scale in enumerate((0.5, 1.0, 3.0, 10.0, 30.0)):
        model = draw(seed, mask=mask, dtype=dtype, **SHAPES[shape])
        for value in (1.0, 20.0):
            scaled = scaled_weights(model, query=scale, key=scale, value=value)
            question = {"query": query, "include_query": True}
            assert disagreement(scaled, 21, **question) < 1, (scale, value)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES)
def test_so_it_is_at_the_size_of_the_benchmarks(dtype):
    shape = {"num_heads": 2, "d_model": 16, "d_ff": 32}
    for mask in ("none", "future"):
        assert disagreement(draw(3, mask=mask, dtype=dtype, **shape), 60) < 1


@pytest.mark.slow
def test_more_neurons_flip_than_the_plain_path_orders():
    """Beside few columns, and with large values: some rows flip more than eight."""
    model = scaled_weights(draw(mask="none", d_ff=32), value=20.0, output=5.0)
    assert disagreement(model, 6) < 1


# ------------------------------------------------------------ what would be noticed


def plant_mean(monkeypatch):
    """A mean of the first layer is off by 1e-11 of it."""
    right = fused_soft.replaced_mean
    monkeypatch.setattr(
        fused_soft, "replaced_mean", lambda *about: right(*about) * (1 + 1e-11)
    )


def plant_no_flips(monkeypatch):
    """No neuron flips."""
    monkeypatch.setattr(
        fused_pairs, "flip_distance", lambda u, w1: jnp.full_like(u, jnp.inf)
    )


def plant_half_flips(monkeypatch):
    """A neuron that flips keeps what it was."""

    class Steady:
        def change(self, row, change):
            return jnp.where(row > 0, change, 0)

    monkeypatch.setattr(fused_body, "RELU", Steady())


def plant_rows(monkeypatch):
    """Every chunk lacks its last row."""
    right = fused_kernel.sum_chunk
    monkeypatch.setattr(
        fused_kernel, "sum_chunk", lambda *about: right(*about[:-1], about[-1] - 1)
    )


def plant_deviation(monkeypatch):
    """A step of the centre leaves the sums of values where they were."""
    right = fused_soft._weigh

    def wrong(*about):
        rows, chunks = right(*about)
        return rows._replace(deviation=0 * rows.deviation), chunks

    monkeypatch.setattr(fused_soft, "_weigh", wrong)


PLANTED = {
    "mean": plant_mean,
    "no flips": plant_no_flips,
    "half flips": plant_half_flips,
    "weights": plant_weights,
    "rows": plant_rows,
    "deviation": plant_deviation,
    "centre": plant_centre,
    "reference": plant_reference,
}
# Beside those that any model tells: what is reached by weights of some 1e-9 alone, and what
# has one weight beside which the others underflow.
TELLING = {
    "centre": (6, {"d_model": 4, "window": 4}, {"key": 10.0}),
    "reference": (0, {}, {"query": 30.0, "key": 30.0}),
}


@pytest.mark.parametrize(
    "error",
    [
        "mean",
        *(pytest.param(x, marks=pytest.mark.slow) for x in PLANTED if x != "mean"),
    ],
)
def test_a_planted_error_is_noticed(error, monkeypatch):
    seed, options, factors = TELLING.get(error, (0, {}, {}))
    model = scaled_weights(draw(seed, mask="none", **{**TINY, **options}), **factors)
    assert noticed(model, 9, lambda: PLANTED[error](monkeypatch))


# -------------------------------------------------------------- what kernels are made of


KERNELS = pytest.mark.parametrize(
    ("layers", "name"), [(2, "fused_pairs"), (3, "fused_layer")]
)


@KERNELS
def test_a_larger_model_has_no_longer_kernel(layers, name):
    small, large = (
        equations(traced(num_layers=layers, num_heads=h, d_model=d, d_ff=f).jaxpr.jaxpr)
        for h, d, f in ((1, 4, 17), (3, 24, 30))
    )
    assert small == large > 100


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The Pallas Triton backend:DeprecationWarning")
@KERNELS
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("mask", MASKS)
def test_it_lowers_for_cuda_without_a_card(mask, dtype, layers, name):
    shape = {"num_layers": layers, "num_heads": 3, "d_model": 12}
    with on_cuda():
        program = traced(mask=mask, dtype=dtype, **shape)
        lowered = program.lower(lowering_platforms=("cuda",))
    assert name in lowered.as_text()


# --------------------------------------------------------------------- who asks for it


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"num_layers": 1}, "it fuses two layers or more, and the model has 1"),
        ({"score": "additive"}, "products of queries and keys"),
        ({"layer_norm": "pre"}, "no norm before the second layer's attention"),
        ({"layer_norm": "post"}, "ReLU blocks"),
        ({"activation": "gelu"}, "ReLU blocks"),
    ],
    ids=str,
)
def test_what_it_cannot_do_it_refuses(options, why):
    problem = Problem.ask(draw(**options), [0, 1, 2, 1])
    with pytest.raises(jm.InputError, match=f"'fused' cannot do this model: .*{why}"):
        choose_method("fused", problem)


def test_it_is_never_chosen_unasked():
    choice = choose_method("auto", Problem.ask(draw(), [0, 1, 2, 1]))
    assert choice.way.name != "fused"
    assert "fused" not in choice.reason
