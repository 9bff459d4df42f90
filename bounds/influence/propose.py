"""The maximum, proposed in float32 and decided in float64.

What may be proposed in a lower precision at all is said here too; `ranked` does half ones.

All substitutions are computed in float32 with their radii. Those whose upper end reaches
the largest lower end are computed in float64, in blocks of the size that all would be: the
first of the largest of them is the maximum that float64 finds among all.

A float32 model is the given one with every weight, embedding, position and temperature
rounded once. To first order a rounding of a product or sum is a rounding of its operands,
of which the rounding model counts at least one for each: one more is at most twice as many
(`CONVERTED`). What that has to spare, the scalar operations of every layer, is far more
than a float64 radius, 2^-29 of a float32 one, so that no computed float64 value of what is
left out reaches the maximum either.

Where changes are carried, one operand is not so: the change of a symbol, e' - e, is rounded
relative to itself, and rounding e and e' before moves it by up to u (|e| + |e'|). A radius
counts one rounding of it at least, and there counts that of the embeddings instead.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from bounds.influence.block_memory import BlockSizes
from bounds.influence.checkpoint import Checkpoint, Standing
from bounds.influence.incremental import INCREMENTAL
from bounds.influence.kernel import Kernel, Part, as_pair, run_blocks, run_kernel
from bounds.influence.method import Method, Progress
from bounds.influence.problem import Problem, SharedBase
from bounds.influence.result import Block, Enclosures
from bounds.influence.stillness import still_where_nothing_moves, stilled
from bounds.influence.vanishing import not_finite
from bounds.numbers.rounding import unit_roundoff
from bounds.version import __version__
from jax_models import Transformer
from jax_models.model.reweight import with_dtype
from jax_models.run.mesh import count_devices

# Radii about the given model's influences, of the radii about its float32 copy's.
CONVERTED = 2
# Blocks from which half as many, two that decide and a second base pass are fewer.
FEWEST_BLOCKS = 8
# A share of the change of a symbol beyond which its rounding is not of first order.
FIRST_ORDER = 2.0**-8
# From radii [p] of some substitutions to radii.
Widen = Callable[[np.ndarray, slice | np.ndarray], np.ndarray]
# Operations that compiling a second program is worth, on a CPU and elsewhere.
WORTH = (2**38, 2**47)
# A radius of the largest value of a block, relative to it, beyond which nothing is left out.
TELLS_APART = 0.1


def lacks_of_proposal(
    problem: Problem, way: Method, propose: str = "float32"
) -> str | None:
    """Returns why nothing can be proposed in a lower precision, None if it can.

    Args:
        problem: the question.
        way: the method that decides it.
        propose: the float type that proposes.
    """
    model = problem.model
    if not isinstance(model, Transformer):
        return f"a function that is not ours has no {propose} form"
    if model.dtype != np.float64:
        return f"the model is {model.dtype.name}, and float64 is to decide"
    if problem.precision is not None:
        return f"products of {problem.precision.name} are estimates, and decide nothing"
    if model.is_hard:
        return f"hard attention's winners in {propose} may be others than in float64"
    if not way.in_blocks:
        return f"method {way.name!r} does not compute some substitutions alone"
    # Half precision carries changes, whatever decides.
    return None if propose == "float32" else INCREMENTAL.refuse(problem)


def proposal_refused(propose: str, lack: str) -> str:
    """Returns the message of a proposal that was asked for and cannot be made.

    Args:
        propose: the float type that was to propose.
        lack: as `lacks_of_proposal` says it.
    """
    return f"propose = {propose!r}: {lack}; leave propose out"


def pays(problem: Problem, way: Method, sizes: BlockSizes | None) -> bool:
    """Whether proposing promises to be cheaper by count, if radii tell enough apart.

    A float32 block counts half a float64 one. Besides that it is a second program to
    compile, which pays where there is much to do.

    Args:
        problem: a question that lacks nothing.
        way: its method.
        sizes: of its blocks.
    """
    if sizes is None:
        return False
    devices = count_devices(problem.mesh)
    blocks = len(problem.pairs) / (sizes.substitutions * devices)
    return blocks >= FEWEST_BLOCKS and worth_compiling(problem, way.cost(problem))


def worth_compiling(problem: Problem, passes: float) -> bool:
    """Whether work is so much that another program may be compiled to save half of it.

    Args:
        problem: of a transformer.
        passes: the work in forward passes.
    """
    model, n = problem.model, problem.tokens.size
    devices = count_devices(problem.mesh)
    weights = sum(x.size for x in jax.tree.leaves(model.layers) if hasattr(x, "size"))
    one_pass = 2.0 * n * (weights + 2 * n * model.width * len(model.layers))
    return passes * one_pass >= WORTH[jax.default_backend() != "cpu"] * devices


class Proposals:
    """What is proposed of all substitutions and decided of some, kept in a file.

    Attributes:
        estimate: What is proposed [P], NaN where nothing is yet.
        lower: Lower ends [P].
        upper: Upper ends [P].
        value: What is decided [P], NaN where nothing is.
        done: How many are proposed, the first ones.
    """

    def __init__(self, problem: Problem, checkpoint: str | None, *rules: Any) -> None:
        """Starts where the file stands, or with nothing known.

        Args:
            problem: the question.
            checkpoint: the file; None keeps nothing.
            rules: what proposes, and what decides.
        """
        self._file = None
        if checkpoint is not None:
            self._file = Checkpoint(checkpoint, problem, *rules, __version__)
        kept = self._file and self._file.read()
        known = kept or Standing.nothing(len(problem.pairs))
        self.lower, self.upper, self.value = known.lower, known.upper, known.value
        self.estimate, self.done = known.estimate, known.done

    def add(self, estimate: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> None:
        """Takes in the next ones' estimates [p] and ends [p]."""
        these = slice(self.done, self.done + estimate.size)
        self.estimate[these], self.done = estimate, these.stop
        self.lower[these], self.upper[these] = lower, upper
        self._save()

    def decide(self, problem: Problem, at: np.ndarray, *found: np.ndarray) -> None:
        """Takes in values [p] and radii [p] of some.

        Args:
            problem: the question.
            at: their indices [p].
            found: the values and the radii.

        Raises:
            InputError: a value is not a finite number.
        """
        value, radius = found
        require_finite(problem, at, value)
        self.value[at] = value
        self.lower[at], self.upper[at] = np.maximum(value - radius, 0), value + radius
        self._save()

    def _save(self) -> None:
        if self._file is not None:
            ends = self.lower, self.upper
            self._file.save(Standing(*ends, self.estimate, self.value, done=self.done))


def decide_proposed(
    problem: Problem,
    way: Method,
    progress: Progress | None,
    checkpoint: str | None,
    *,
    always: bool,
) -> Enclosures | None:
    """Returns enclosures of all influences, those that may be the largest in float64.

    Args:
        problem: a question that lacks nothing, with substitutions.
        way: its method.
        progress: called with (substitutions proposed, all) after every block.
        checkpoint: the file that keeps where it stands; None keeps nothing.
        always: whether to go on where float32 tells too little apart.

    Returns:
        The enclosures; None where that is given up.

    Raises:
        InputError: an influence that is decided is not a finite number.
    """
    known = Proposals(problem, checkpoint, "float32", way.name, way.sizes(problem))
    if not _propose(known, problem, way, progress, always):
        return None
    kernel, moves = way.kernel(problem), moving(problem, way)
    assert kernel is not None

    def left() -> np.ndarray:
        open_ones = np.isnan(known.value) & (known.upper >= known.lower.max())
        return np.flatnonzero(open_ones)

    # The block of the largest first: what it comes to leaves others out.
    begun = np.isfinite(known.value).any()
    some = left() if begun else np.argmax(known.estimate, keepdims=True)
    while some.size:
        blocks = _whole(problem, kernel, some)
        for at, *found in decide(problem, kernel, blocks, moves):
            which = np.isin(at, some)
            known.decide(problem, at[which], *(x[which] for x in found))
        some = left()
    return Enclosures(known.lower, known.upper, known.value, some, ())


def moving(problem: Problem, way: Method) -> np.ndarray | None:
    """Returns which substitutions can move what is watched [P], where a way subtracts.

    Args:
        problem: the question.
        way: what decides it; one that carries changes finds 0 by itself, and None.
    """
    return None if way.rounds else problem.reached()[:, 0]


def _whole(problem: Problem, kernel: Kernel, chosen: np.ndarray) -> np.ndarray:
    """All substitutions of the blocks that some are in, so that each has its own place.

    What a block finds of one may differ in the last digit from place to place, and equal
    influences are told apart by their digits.
    """
    devices = count_devices(problem.mesh)
    found = []
    for part in kernel.parts:
        some = chosen[(part.start <= chosen) & (chosen < part.end)]
        size = part.batch * devices
        for number in np.unique((some - part.start) // size).tolist():
            start = part.start + number * size
            found.append(np.arange(start, min(start + size, part.end)))
    return np.concatenate(found)


def conversion(problem: Problem, way: Method) -> Widen:
    """Returns what makes of radii about a float32 copy's influences those about the model's.

    Args:
        problem: about the given model.
        way: what finds the influences.
    """
    if not way.rounds:
        return lambda radius, _: CONVERTED * radius
    assert isinstance(problem.model, Transformer)
    embedding = np.asarray(problem.model.embedding, np.float64)
    sizes = np.linalg.norm(embedding, axis=1)

    def widen(radius: np.ndarray, these: slice | np.ndarray) -> np.ndarray:
        new, old = problem.symbol[these], problem.tokens[problem.position[these]]
        moved = np.linalg.norm(embedding[new] - embedding[old], axis=1)
        # Equal ones stay equal.
        times = np.where(
            moved > 0, (sizes[new] + sizes[old]) / np.where(moved > 0, moved, 1), 1.0
        )
        far = times * unit_roundoff(np.float32) > FIRST_ORDER
        return np.where(far, np.inf, CONVERTED * np.maximum(1.0, times) * radius)

    return widen


def _propose(
    known: Proposals,
    problem: Problem,
    way: Method,
    progress: Progress | None,
    always: bool,
) -> bool:
    """Adds values in float32 and radii around what float64 is of; False: given up."""
    low = with_dtype(problem.model, "float32")
    low = dataclasses.replace(problem, model=low, shared=SharedBase())
    widen, count = conversion(problem, way), len(problem.pairs)
    tells = always or bool((known.estimate[: known.done] > 0).any())
    for block in blocks_behind(known.done, low, way):
        these = slice(known.done, known.done + block.influence.size)
        found, radius = block.influence, widen(block.radius, these)
        # What float32 has no number for may be anything.
        lost = ~np.isfinite(found + radius)
        found, radius = np.where(lost, 0.0, found), np.where(lost, np.inf, radius)
        top = int(np.argmax(found))
        if not tells and found[top] > 0:
            tells = True
            if radius[top] > TELLS_APART * found[top]:
                return False
        estimate = np.where(lost, np.inf, found)
        known.add(estimate, np.maximum(found - radius, 0), found + radius)
        if progress is not None:
            progress(known.done, count)
    return True


def blocks_behind(done: int, problem: Problem, way: Method) -> Iterator[Block]:
    """Returns a method's blocks behind those of some substitutions.

    Args:
        done: how many, whole blocks of them.
        problem: the question.
        way: the method, which is `in_blocks`.
    """
    if not done:
        return way.blocks(problem)
    if done == len(problem.pairs):
        return iter(())
    kernel = way.kernel(problem)
    assert kernel is not None
    blocks = run_kernel(kernel.behind(done), problem)
    return blocks if way.rounds else still_where_nothing_moves(problem, blocks, done)


def decide(
    problem: Problem,
    kernel: Kernel,
    chosen: np.ndarray,
    moves: np.ndarray | None = None,
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yields influences of some substitutions, computed as they are among all.

    Args:
        problem: the question.
        kernel: what computes all of them.
        chosen: the indices of those that are to be computed, in order.
        moves: which of all can move what is watched [P]; None where the kernel finds 0
            of the others by itself.

    Yields:
        Of each block the indices [p], influences [p] and radii [p].
    """
    for part in kernel.parts:
        some = chosen[(part.start <= chosen) & (chosen < part.end)]
        alone = Part(0, some.size, part.batch, part.options)
        one = dataclasses.replace(kernel, parts=(alone,))
        where = problem.position[some], problem.symbol[some]
        for these, found, _ in run_blocks(one, *where, problem.mesh):
            at = some[these]
            value, relative = (x[: at.size] for x in as_pair(jax.device_get(found)))
            radius = kernel.radii(relative, at)
            if moves is not None:
                value, radius = stilled(moves[at], value, radius)
            yield at, value, radius


def require_finite(problem: Problem, at: np.ndarray, value: np.ndarray) -> None:
    """Refuses an influence that is not a finite number, naming its substitution.

    Args:
        problem: the question.
        at: the indices of substitutions [p].
        value: their influences [p].

    Raises:
        InputError: one of them is not finite.
    """
    if not np.isfinite(value).all():
        raise not_finite(problem, int(at[~np.isfinite(value)][0]))
