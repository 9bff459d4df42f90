"""Substitutions shared out over devices have the influences that one device finds."""

import contextlib
import dataclasses
import functools
import json
import signal
import socket
import subprocess
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from benchmarks.operations import Outline, shapes_of
from bounds import Run, Screened, device_mesh
from bounds.influence import METHODS, compute_influence
from bounds.influence.blocks.kernel import Kernel, Part, run_kernel
from bounds.influence.build import build_request
from bounds.influence.propagation import sparse
from bounds.store.results import read_store
from tests.bounds.influence.asking import on_host
from tests.bounds.influence.expect import meet
from tests.bounds.influence.models import build

N, EACH = 45, 5  # 44 positions: nine blocks of five on one device, two on eight


def draw(num_layers, weighting="softmax", **case):
    case |= {"num_layers": num_layers, "weighting": weighting, "vocab_size": 2}
    model = build(case, seed=3)
    return model, np.random.default_rng(4).integers(0, 2, N, dtype=np.int32)


def in_blocks_of_five(method):
    """The method with five substitutions to a block, on every device."""

    class OfFive(type(method)):
        def kernel(self, request):
            return super().kernel(request).in_blocks(EACH)

    return OfFive()


def over(num_devices, request):
    return dataclasses.replace(request, mesh=device_mesh(num_devices))


def influences(method, request):
    blocks = list(method.blocks(request))
    found = [request.read(block.changes) for block in blocks]
    return np.concatenate(found), blocks[-1].ties


@pytest.mark.parametrize(
    ("name", "num_layers", "weighting"),
    [
        ("partial", 2, "softmax"),
        ("exhaustive", 2, "softmax"),
        ("incremental", 1, "softmax"),
        ("incremental", 2, "softmax"),
        ("incremental", 2, "average_hard"),
        ("incremental", 3, "softmax"),
    ],
)
def test_equal_blocks_agree_to_the_bit_on_two_and_eight_devices(
    name, num_layers, weighting
):
    model, tokens = draw(num_layers, weighting)
    request = build_request(model, tokens)
    method = in_blocks_of_five(METHODS[name])
    two, ties = influences(method, over(2, request))
    eight, same_ties = influences(method, over(8, request))
    assert two.max() > 0
    np.testing.assert_array_equal(eight, two)
    assert same_ties == ties
    assert (ties is not None) == model.is_hard
    # The compiler fuses the program of a lone device in its own way.
    alone, ties_alone = influences(method, request)
    np.testing.assert_allclose(two, alone, rtol=1e-13, atol=1e-15 * alone.max())
    assert ties is None or ties_alone.ambiguous == ties.ambiguous


@pytest.mark.slow
@pytest.mark.parametrize("weighting", ["leftmost_hard", "average_hard"])
def test_several_devices_follow_the_rows_that_one_does_to_the_bit(
    weighting, monkeypatch
):
    monkeypatch.setattr(sparse, "window_size", lambda length: 7)
    met, touched = set(), sparse.touched_rows

    def told(*arguments):
        met.update(device.id for device in arguments[-1].devices())
        return touched(*arguments)

    monkeypatch.setattr(sparse, "touched_rows", told)
    model, tokens = draw(3, weighting)
    asked = {"method": "incremental", "rounding": "none", "positions": range(21)}
    alone: Any = compute_influence(model, tokens, **asked)
    assert met == {0}
    run = Run(device_mesh(2))
    shared: Any = compute_influence(model, tokens, run=run, **asked)
    assert met == {0, 1}
    np.testing.assert_array_equal(shared.upper, alone.upper)
    assert (shared.position, shared.ties) == (alone.position, alone.ties)
    assert 0 < shared.zeros < shared.substitutions


def test_every_device_has_its_own_share():
    """A kernel that says where it ran: the device's number for each substitution."""
    request = build_request(*draw(1))

    @jax.jit
    def where(position, symbol):
        here = jax.lax.axis_index("positions").astype("float64")
        return jax.numpy.full(position.shape, here), jm.TieReport.empty("float64")

    made = METHODS["incremental"].kernel(request)
    part = dataclasses.replace(made.parts[0], batch=EACH, options={})
    kernel = dataclasses.replace(made, function=where, shared=(), parts=(part,))
    blocks = run_kernel(kernel, over(8, request))
    found = np.concatenate([block.changes for block in blocks])
    shares = np.repeat(np.arange(8), EACH)
    np.testing.assert_array_equal(found, np.tile(shares, 2)[: len(request.pairs)])


@pytest.mark.slow
@pytest.mark.parametrize(("num_devices", "num_layers"), [(8, 2), (3, 3)])
def test_a_screen_over_devices_encloses_as_one_does(num_devices, num_layers):
    model, tokens = draw(num_layers)
    ask = functools.partial(compute_influence, model, tokens)
    alone = ask(method=Screened(budget=6))
    shared = ask(method=Screened(budget=6), run=Run(device_mesh(num_devices)))
    np.testing.assert_allclose(shared.upper, alone.upper, rtol=1e-9)
    np.testing.assert_allclose(shared.lower, alone.lower, 1e-9, 1e-9 * alone.max)
    assert meet(shared, ask(method="exhaustive"))
    assert (shared.max, shared.position) == (alone.max, alone.position)
    assert [level.screened for level in shared.levels][:1] == [N - 1]


@jax.jit
def first_lost(position, symbol):
    """Changes of which the first eight from the middle of 64 lose their digits."""
    lost = (position >= 32) & (position < 40)
    return jnp.where(lost, jnp.nan, 1.0)[:, None, None], jm.TieReport.empty("float64")


@jax.jit
def never_lost(position, symbol):
    return jnp.full((position.size, 1, 1), 2.0), jm.TieReport.empty("float64")


@pytest.mark.parametrize("num_devices", [1, 2, 4])
def test_any_number_of_devices_gives_up_products_alike(num_devices):
    request = build_request(draw(1)[0], np.zeros(64, np.int32), include_query=True)
    asked = over(num_devices, request)
    again, products = (
        Kernel(function, (), (Part(0, 64, 8, {}),), None)
        for function in (never_lost, first_lost)
    )
    (block,) = run_kernel(dataclasses.replace(products, again=again), asked)
    assert (block.changes == 2).all()


def test_a_bare_function_runs_on_one_device():
    function = on_host(lambda x: np.cumsum(x * 1.0).sum(), 2)
    found = compute_influence(function, [0, 1, 1], run=Run(device_mesh(2)))
    assert found.max == pytest.approx(3)


TWO_LAYERS = ("--num_layers=2",)
SPARSE = ("--num_layers=3", "--weighting=leftmost_hard", "--method=incremental")
SCREEN = ("--num_layers=3", "--weighting=softmax", "--method=screened", "--rtol=1e-3")
# Attention is so peaked that most are left, and enumerated.
TO_THE_END = (*SCREEN[:-1], "--scale=2", "--budget=0")


def command(out, *more):
    arguments = ["influence", "--length=40", f"--out={out}"]
    return [sys.executable, "-m", "bounds", *arguments, *more]


@contextlib.contextmanager
def started(folder, asked, of_the_second=()):
    """Two processes that write what they say to files, killed at the end."""
    with socket.socket() as free:  # a port that was free a moment ago
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    more = [*asked, f"--coordinator={address}", "--num_processes=2"]
    with contextlib.ExitStack() as stack:
        processes = []
        for number, extra in enumerate([(), of_the_second]):
            out, err = (
                stack.enter_context((folder / f"{number}.{name}").open("w"))
                for name in ("out", "err")
            )
            arguments = [*more, f"--process_id={number}", *extra]
            arguments = command(folder / "out", *arguments)
            process = subprocess.Popen(arguments, stdout=out, stderr=err)
            stack.callback(process.wait)
            stack.callback(process.kill)
            processes.append(process)
        yield processes


def two_processes(folder, *of_the_second, asked=TWO_LAYERS):
    """Exit codes and messages of two processes with two devices each."""
    asked = (*asked, "--num_devices=2")
    with started(folder, asked, of_the_second) as processes:
        codes = [process.wait(1200) for process in processes]
    return codes, [(folder / f"{number}.err").read_text() for number in range(2)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "asked",
    [TWO_LAYERS, SPARSE, SCREEN, TO_THE_END],
    ids=["incremental", "sparse", "screened", "to the end"],
)
def test_two_processes_agree_with_one(tmp_path, asked):
    alone = tmp_path / "alone"
    subprocess.run(command(alone, *asked), check=True, capture_output=True)
    codes, errors = two_processes(tmp_path, asked=asked)
    assert codes == [0, 0], errors
    folders = alone, tmp_path / "out"
    results = ((x / "influence.json").read_text() for x in folders)
    one, two = map(json.loads, results)
    assert (one["position"], one["symbol"]) == (two["position"], two["symbol"])
    assert abs(one["max"] - two["max"]) <= one["max_upper"] - one["max_lower"]


@pytest.mark.slow
@pytest.mark.parametrize("other", ["--seed=1", "--length=9000", "--query=3"])
def test_processes_that_are_asked_different_questions_refuse(tmp_path, other):
    codes, errors = two_processes(tmp_path, other)
    assert codes == [1, 1], errors
    for error in errors:
        assert "process 1 was asked another question than process 0" in error
    assert not read_store(tmp_path / "out" / "results.sqlite").rows


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=lambda x: x.name)
@pytest.mark.parametrize("victim", [0, 1])
def test_where_one_process_is_killed_the_other_ends_and_both_resume(
    tmp_path, victim, how
):
    asked = ("--num_layers=3", "--method=exhaustive", "--length=1000")
    with started(tmp_path, asked) as processes:
        told = tmp_path / "0.out"
        while " of 1000 positions" not in told.read_text():
            assert [process.poll() for process in processes] == [None, None]
            time.sleep(0.1)
        processes[victim].send_signal(how)
        assert processes[1 - victim].wait(120) != 0
    with started(tmp_path, asked) as processes:
        assert [process.wait(600) for process in processes] == [0, 0]
    assert json.loads((tmp_path / "out/influence.json").read_text())["n"] == 1000


def pose(num_layers, include_query=False, **case):
    model, tokens = draw(num_layers, **case)
    return build_request(model, tokens, query=20, include_query=include_query)


@pytest.mark.parametrize(
    ("name", "num_layers", "case"),
    [
        ("incremental", 1, {"include_query": True}),
        ("incremental", 2, {"weighting": "average_hard"}),
        ("incremental", 3, {"temperature": "inverse_log"}),
        ("exhaustive", 2, {}),
        ("partial", 2, {}),
    ],
    ids=["one layer", "two", "three", "exhaustive", "partial"],
)
def test_an_outline_is_the_kernel_without_numbers(name, num_layers, case):
    method, asked = METHODS[name], pose(num_layers, **case)
    outline, kernel = Outline.of(method, asked).kernel, method.kernel(asked)
    assert (outline.function, outline.parts) == (kernel.function, kernel.parts)
    given, told = (jax.tree.flatten(shapes_of(x.shared)) for x in (kernel, outline))
    assert given == told
