"""One checked influence question, shared by methods, certificates and benchmarks."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any, Self, get_args

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, UInt

from bounds.influence.callable import Callable, Radius
from bounds.influence.classes import Places, distinct_places
from bounds.influence.reading import Chosen, Reading
from bounds.influence.run import Run, check_run
from bounds.influence.shared_base import SharedBase
from bounds.influence.substitution import (
    Substitutions,
    Symbols,
    check_query,
    fix_input,
    list_substitutions,
    reached,
)
from bounds.influence.targets.base import PlainTarget
from bounds.influence.targets.function import TargetFunction
from bounds.influence.targets.table import (
    Watched,
    as_value,
    check_head_row,
    check_target,
)
from bounds.rounding.precision import Precision, Rounding, choose_precision
from jax_models import InputError, Transformer
from jax_models.arguments import choose_name
from jax_models.format.model_check import check_model
from jax_models.run.evaluate import check_tokens
from jax_models.run.float_type import check_float_type


@dataclasses.dataclass(frozen=True)
class InfluenceRequest:
    """One influence question, checked; made by `ask`."""

    model: Any  # a Transformer, or a Callable
    tokens: Int[np.ndarray, "tokens"]  # int32
    query: int
    target: Any  # "activation", "logits" or a value of `targets`
    pairs: Substitutions
    shared: SharedBase = dataclasses.field(default_factory=SharedBase, compare=False)
    # Devices that substitutions are shared out over; None is one device.
    mesh: Mesh | None = None
    # Bytes for the blocks under way and their shared arrays; None: all of the device.
    memory_limit: int | None = None
    # Bound on the error of an evaluation of a Callable; None where none is stated.
    radius: Radius | None = None
    # Of a scan of several rows: these rows, and the number read from each change.
    watched: tuple[int, ...] | None = None
    reading: Reading | None = None
    # Precision of products of changes; None for the model's float type.
    precision: Rounding | None = None
    run: int = 0  # number of the run with moved inputs; 0 moves nothing

    @classmethod
    def ask(
        cls,
        model: Transformer | Callable,
        tokens: Any,
        *,
        query: int | None = None,
        target: Watched = "activation",
        symbols: Symbols | None = None,
        positions: Sequence[int] | None = None,
        include_query: bool = False,
        dtype: Any = None,
        run: Run | None = None,
        shared: SharedBase | None = None,
        precision: Precision | None = None,
    ) -> Self:
        """Question about a model and an input; see `compute_influence`.

        Args:
            model: a transformer, or a `Callable`.
            tokens: integers in [0, V) [n].
            query: the watched row; see `compute_influence`.
            target: a name or a value of `targets`.
            symbols: substitute symbols, or rows of them for each of the positions; by
                default all that the model allows.
            positions: positions that are changed; all by default.
            include_query: whether the query's own token is changed too.
            dtype: asserts the float type.
            run: the devices and the memory limit; the rest is not read.
            shared: holds a base pass for several questions.
            precision: precision of products of changes.

        Raises:
            InputError: an argument does not fit the model.
        """
        padding = 0
        if isinstance(model, Transformer):
            model = check_model(model)
            target = check_target(model, target)
            _check_dtype(model, dtype)
            checked = np.asarray(check_tokens(model.vocab_size, tokens))
            if model.padding is not None:
                given, checked = checked, model.padding.leave(checked)
                padding = given.size - checked.size
            if as_value(target).is_joint:
                with _naming(padding):
                    as_value(target).rows(checked.size)
                include_query = True  # no row is watched more than another
            allowed, special, radius = model.substitutable, model.special or (), None
        else:
            check_callable(model)
            checked = np.asarray(check_tokens(model.vocab_size, tokens))
            allowed, special, radius = None, (), model.radius
            choose_name("target", target, get_args(PlainTarget))
        with _naming(padding):
            query = check_query(query, checked.size, model)
        if isinstance(model, Transformer):
            check_head_row(model, target, [query], checked.size)
        with _naming(padding):
            pairs = list_substitutions(
                checked,
                model.vocab_size,
                query=query,
                symbols=symbols,
                positions=positions,
                substitutable=allowed,
                special=special,
                include_query=include_query,
            )
        if isinstance(model, Transformer):
            if isinstance(target, TargetFunction):
                model, radius = target.of_tokens(model), target.radius
            else:
                model = fix_input(model, checked, pairs)
        run = check_run(run)
        return cls(
            model=model,
            tokens=checked,
            query=query,
            target=target,
            pairs=pairs,
            shared=shared or SharedBase(),
            mesh=run.mesh,
            memory_limit=run.memory_limit,
            radius=radius,
            precision=choose_precision(model, precision),
        )

    @property
    def position(self) -> Int[np.ndarray, "substitutions"]:
        """Replaced positions."""
        return self.pairs.position

    @property
    def symbol(self) -> Int[np.ndarray, "substitutions"]:
        """Substitutes."""
        return self.pairs.symbol

    @property
    def chosen(self) -> Chosen:
        """Entries of the target that count; None for all."""
        return None if self.reading is None else self.reading.chosen

    def read(
        self, changes: Float[np.ndarray, "substitutions watched classes"]
    ) -> Float[np.ndarray, "substitutions *scan"]:
        """Norms of changes, or the numbers that `reading` takes from them.

        Args:
            changes: changes of the target, of the chosen entries.
        """
        if self.reading is None:
            return np.abs(Reading("norm")(changes)[:, 0])
        return self.reading(changes)

    @property
    def watches_many(self) -> bool:
        """True where many rows are watched together, independent of the query."""
        return self.target_value.is_joint or self.watched is not None

    @property
    def target_value(self) -> Any:
        """The target as a value, rows themselves included."""
        return as_value(self.target)

    @property
    def rows(self) -> Int[np.ndarray, "rows"]:
        """Positions of the watched rows: of the query, a scan or the target."""
        if self.target_value.is_joint:
            return self.target_value.rows(self.tokens.size).astype(np.int32)
        watched = (self.query,) if self.watched is None else self.watched
        return np.asarray(watched, np.int32)

    @property
    def moved_run(self) -> UInt[Array, ""]:
        """Run number as an argument of programs."""
        return jnp.uint32(self.run)

    def reached(
        self, these: slice = slice(None)
    ) -> Bool[np.ndarray, "substitutions watched"]:
        """True where a substitution may move a watched row, of a transformer.

        Args:
            these: the substitutions; a target of many rows counts as one.
        """
        where = self.position[these], self.symbol[these]
        moves = reached(self.model, self.tokens, self.rows, *where)
        joint = self.target_value.is_joint
        return np.asarray(moves.any(axis=1, keepdims=True) if joint else moves)

    @functools.cached_property
    def places(self) -> Places | None:
        """Distinct position encodings at this length; None where too many to lump."""
        return distinct_places(self.model, self.tokens.size)


@contextlib.contextmanager
def _naming(padding: int) -> Iterator[None]:
    """Adds to errors that positions are counted without the padding."""
    try:
        yield
    except InputError as error:
        if not padding:
            raise
        raise InputError(
            f"{error} (positions are counted without the padding, the last {padding} of "
            "the tokens given)"
        ) from error


def one_row(request: InfluenceRequest) -> str | None:
    """Reason why a method that follows one row cannot do a request, or None."""
    if request.watches_many:
        return "it follows one row, and the target is of many"
    return None


def check_callable(model: Any) -> None:
    """Refuses all but a `Callable`."""
    if not isinstance(model, Callable):
        raise InputError(
            f"model is a {type(model).__name__}; expected a Transformer, such as "
            "jax_models.load returns, or a function in a bounds.Callable: "
            "Callable(apply, params, batched=..., vocab_size=...)"
        )


def _check_dtype(model: Transformer, dtype: Any) -> None:
    if dtype is not None:
        check_float_type(dtype, "the dtype asked for")
    if dtype is not None and jnp.dtype(dtype) != jnp.dtype(model.dtype):
        raise InputError(
            f"dtype = {jnp.dtype(dtype).name} but the model is "
            f"{jnp.dtype(model.dtype).name}; convert the model, or leave dtype out"
        )
