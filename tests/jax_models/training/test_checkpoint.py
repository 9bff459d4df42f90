"""A run that is cut short goes on to the same bits; another run's checkpoint is refused."""

import dataclasses

import jax
import numpy as np
import pytest
import safetensors
import safetensors.numpy

import jax_models as jm
from jax_models.constructions.rnn import init_elman
from jax_models.model.pytree import in_bytes
from jax_models.training import Measuring, describe, run_training
from tests.bounds.influence.expect import refused

SOURCE = jm.ParitySource(0.5)
TRAINING = jm.Training(
    4, 7, batch_size=4, num_lengths=2, growth=0.5, checkpoint_every=3
)
MEASURING = Measuring((3,), 8)
KEY = jax.random.key(1)


def make(width=4):
    return init_elman(jax.random.key(0), width=width, vocab_size=2, num_classes=3)


def run(path=None, **changed):
    arguments = {"measuring": MEASURING, "checkpoint": path, **changed}
    model = arguments.pop("model", make())
    source, training = (
        arguments.pop("source", SOURCE),
        arguments.pop("training", TRAINING),
    )
    return run_training(model, source, training, arguments.pop("key", KEY), **arguments)


def stop_at(step):
    def progress(standing):
        if standing.step == step:
            raise KeyboardInterrupt

    return progress


def everything(found):
    losses = [found.losses, found.optimal]
    losses += [np.r_[at, one.mean, one.standard_error] for at, one in found.measured]
    return in_bytes((found.network, losses))


@pytest.fixture(scope="module")
def undisturbed():
    return run()


@pytest.mark.parametrize("step", [0, 3, 6, 7])
def test_a_run_that_is_cut_short_ends_with_the_same_bits(tmp_path, undisturbed, step):
    path = tmp_path / "checkpoint.safetensors"
    with pytest.raises(KeyboardInterrupt):
        run(path, progress=stop_at(step))
    assert path.exists() == (step > 0)
    seen = []
    again = run(path, progress=seen.append)
    assert [one.step for one in seen] == [at for at in (0, 3, 6, 7) if at >= step]
    assert in_bytes(seen[-1].state[0]) == in_bytes(again.network)
    assert describe(seen[-1]) == f"step 7, loss {again.losses[-1]:.5f}"
    assert everything(again) == everything(undisturbed)
    assert [at for at, _ in again.measured] == [0, 3, 6, 7]
    assert again.losses.shape == again.optimal.shape == (7,)
    assert (again.losses > again.optimal).all()


@pytest.mark.parametrize("planted", ["mu", "nu", "count", "network"])
def test_a_checkpoint_that_lost_part_of_the_state_would_be_noticed(
    tmp_path, undisturbed, planted
):
    path = tmp_path / "checkpoint.safetensors"
    with pytest.raises(KeyboardInterrupt):
        run(path, progress=stop_at(3))
    with safetensors.safe_open(path, framework="np") as file:
        metadata = file.metadata()
        arrays = {name: file.get_tensor(name) for name in file.keys()}
    marks = {"mu": ".mu", "nu": ".nu", "count": ".count", "network": "state[0].readout"}
    chosen = [name for name in arrays if marks[planted] in name]
    assert chosen
    for name in chosen:
        arrays[name] = np.zeros_like(arrays[name])
    path.write_bytes(safetensors.numpy.save(arrays, metadata=metadata))
    assert everything(run(path)) != everything(undisturbed)


def test_starting_over_ignores_what_the_checkpoint_holds(tmp_path, undisturbed):
    path = tmp_path / "checkpoint.safetensors"
    run(path, key=jax.random.key(2))
    assert everything(run(path, fresh=True)) == everything(undisturbed)
    seen = []
    run(path, progress=lambda standing: seen.append(standing.step))
    assert seen == [7]


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        (
            {"training": dataclasses.replace(TRAINING, learning_rate=0.5)},
            "its learning_rate is 0.003, here 0.5",
        ),
        (
            {"source": jm.ParitySource(0.25)},
            r"its source is .ParitySource\(end_probability=0.5\)., here",
        ),
        ({"model": make(6)}, "its first weights is"),
        ({"about": {"width": 4}}, "its width is null, here 4"),
    ],
)
def test_the_checkpoint_of_another_run_is_refused_by_name(tmp_path, changed, complaint):
    path = tmp_path / "checkpoint.safetensors"
    with pytest.raises(KeyboardInterrupt):
        run(path, progress=stop_at(3))
    before = path.read_bytes()
    with refused(f"of another run: {complaint}"):
        run(path, **changed)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"", b"nonsense", b"\x08" + b"\0" * 7 + b"{}      "]
)
def test_what_is_no_checkpoint_is_refused(tmp_path, content):
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes(content)
    with refused("no readable checkpoint"):
        run(path)


def test_a_loss_that_is_not_finite_keeps_the_last_good_checkpoint(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    # A step of this size overflows float32; the first of the warm-up is zero.
    training = dataclasses.replace(
        TRAINING, steps=20, learning_rate=1e38, checkpoint_every=1
    )
    with pytest.raises(jm.InputError, match=r"not finite|loss is (nan|inf)") as raised:
        run(path, training=training)
    assert "lower the learning rate (1e+38)" in str(raised.value)
    assert f"{path} holds step" in str(raised.value)
    with safetensors.safe_open(path, framework="np") as file:
        for name in file.keys():
            assert np.isfinite(file.get_tensor(name)).all(), name
