"""A caller's function of the tokens, wrapped to be called on many inputs at once.

Rows are token positions; a result that is a matrix has one row for each. An influence
is the norm of the result's change when one token is replaced. A radius bounds the error
of a result; moving a parameter is to change it by a few roundings.
"""

import collections.abc
import copy
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, Shaped

from bounds.influence.substitution import padded
from bounds.rounding.moved_inputs import float_leaves, move_alike
from jax_models import InputError
from jax_models.arguments import expect_integer, expect_kind, show

# Bound on an evaluation's error in the 2-norm: a number, or a function of tokens.
Radius: TypeAlias = float | collections.abc.Callable[[np.ndarray], Any]
# Result for one input: a number, [classes] or [tokens, classes]; or, of a function that
# takes the rows, their vectors [rows, classes].
ANY_RESULT = "a number, a vector [m], or a matrix [n, m] with a row for each token"
ROWS_RESULT = "a vector [m]"
# Inputs of one call.
INPUTS_AT_ONCE = 32
# Integers up to here are numbers of float64.
LARGEST_INTEGER = 2**53


class Callable:
    """Any function from tokens to numbers, for `compute_influence` and `scan`.

    It returns a number, a vector [classes], or a matrix [tokens, classes] of which
    `query` and `rows` pick. Parameters are arguments of its compiled program, which is
    made once for each length, as long as the object lives.
    """

    def __init__(
        self,
        apply: collections.abc.Callable[..., Any],
        params: Any = None,
        *,
        batched: bool,
        vocab_size: int,
        radius: Radius | None = None,
        host: bool = False,
        check: bool = True,
    ) -> None:
        """Holds a function and its parameters.

        Args:
            apply: a function of `params` and int32 tokens, [inputs, tokens] if
                `batched` and else [tokens], that returns an array, [inputs, ...] if
                `batched`. Of JAX, without side effects.
            params: any tree; its arrays are arguments of the compiled program, the rest
                is part of the program. Where some are of floats, radii are found by
                moving them.
            batched: whether `apply` takes many inputs at once; else it is
                `jax.vmap`ped.
            vocab_size: V, the number of symbols.
            radius: bound on the 2-norm distance of the result for an input (for a
                matrix, of each row), as float64, from the true value; a number, or a
                function of the tokens that returns one. Without a radius and without
                parameters influences are estimates.
            host: whether `apply` takes NumPy arrays and returns one, as a model of
                PyTorch or ONNX Runtime behind a function does: the tokens alone, or
                `params` first where they are given.
            check: whether a batch of inputs is compared with single passes first, in
                every question. They may differ by the square root of the float type's
                epsilon times the largest entry: 1.5e-8 in float64, 3.5e-4 in float32. A
                function that computes in float32 should therefore return float32.

        Raises:
            InputError: an argument is not what is expected.
        """
        if not callable(apply):
            raise InputError(f"apply = {show(apply)}; expected a function")
        for name, flag in (("batched", batched), ("host", host), ("check", check)):
            expect_kind(name, flag, bool, "True or False")
        if radius is not None and not callable(radius):
            radius = check_radius(radius)
        self.vocab_size = expect_integer("vocab_size", vocab_size, 1)
        self.radius, self.check, self.host = radius, check, host
        self._apply, self._batched = apply, batched
        self._expected = ANY_RESULT
        leaves, tree = jax.tree.flatten(params)
        # Arrays become arguments, so that a run with moved parameters compiles nothing; other
        # leaves, such as sizes and names, stay constants of the program.
        kinds = [isinstance(x, jax.Array | np.ndarray) for x in leaves]
        as_array = np.asarray if host else jnp.asarray
        self.arrays = [
            as_array(x) for x, array in zip(leaves, kinds, strict=True) if array
        ]
        others = [None if array else x for x, array in zip(leaves, kinds, strict=True)]

        def run(arrays: Any, tokens: Any, rows: Any) -> Any:
            given, both = iter(arrays), zip(others, kinds, strict=True)
            filled = [next(given) if array else x for x, array in both]
            asked = (jax.tree.unflatten(tree, filled),)
            return self._call(() if host and params is None else asked, tokens, rows)

        self._run = run if host else jax.jit(run)

    @classmethod
    def of_rows(
        cls,
        apply: collections.abc.Callable[..., Any],
        params: Any = None,
        **options: Any,
    ) -> "Callable":
        """`Callable` of a function that takes rows too, and returns a vector for each."""
        made = cls(apply, params, batched=False, check=False, **options)
        made._expected = ROWS_RESULT
        return made

    def __repr__(self) -> str:
        """Name of the function, and vocabulary size."""
        name = getattr(self._apply, "__name__", type(self._apply).__name__)
        return f"Callable({name}, vocab_size={self.vocab_size})"

    @property
    def params_move(self) -> bool:
        """True if parameters have floats, which are moved to find how the function rounds."""
        return bool(float_leaves(self.arrays))

    @property
    def size(self) -> int:
        """Number of entries of the parameters' arrays, at least 1."""
        return max(1, sum(int(np.size(x)) for x in self.arrays))

    def moved(self, run: int, step: float) -> "Callable":
        """Copy with float parameters moved by relative steps, up or down drawn by `run`."""
        other = copy.copy(self)  # shares the compiled program
        # `run` counts the runs with other signs, from 1.
        moved = move_alike(self.arrays, run, lambda _: step)
        other.arrays = list(map(np.asarray, moved)) if self.host else moved
        return other

    def evaluate(
        self, tokens: Int[np.ndarray, "inputs tokens"], rows: Int[np.ndarray, "rows"]
    ) -> Shaped[np.ndarray, "inputs *rows_classes"]:
        """Results for up to `INPUTS_AT_ONCE` inputs, of matrices only the given `rows`."""
        if self.host:
            return _numbers(self._run(self.arrays, np.array(tokens), rows))
        try:
            found = self._run(self.arrays, tokens, rows)
        except jax.errors.JAXTypeError as error:
            raise InputError(
                f"the function asks for the values of traced arrays "
                f"({type(error).__name__}); write it in jax.numpy, or give host=True if it "
                "is of NumPy, PyTorch or ONNX Runtime"
            ) from error
        return _numbers(np.asarray(found))

    def batch(
        self, tokens: Int[np.ndarray, "inputs tokens"], rows: Int[np.ndarray, "rows"]
    ) -> Shaped[np.ndarray, "inputs *rows_classes"]:
        """Results of `evaluate`, run as a full batch so that all share one program."""
        if self.host and not self._batched:
            return self.evaluate(tokens, rows)
        # A short batch repeats its last input; its results are cut off again.
        return self.evaluate(padded(tokens, INPUTS_AT_ONCE), rows)[: len(tokens)]

    def _call(self, params: tuple[Any, ...], tokens: Any, rows: Any) -> Any:
        """Results of `apply` for [inputs, tokens]; of matrices only the given `rows`."""
        by_rows = self._expected == ROWS_RESULT
        told = (rows,) if by_rows else ()

        def one(x: Any) -> Any:
            return self._of_array(self._apply(*params, x, *told))

        if self._batched:
            found = one(tokens)
        elif self.host:
            each = [one(x) for x in tokens]
            for x in each:
                if x.shape != each[0].shape:
                    raise self._misshapen(x.shape)
            found = np.stack(each)
        else:
            found = jax.vmap(one)(tokens)
        size, n = tokens.shape
        if found.ndim == 0 or found.shape[0] != size:
            raise InputError(
                f"apply returned an array of shape {found.shape} for a batch of {size} "
                f"inputs; expected ({size}, ...), or give batched=False if it takes one"
            )
        shape = found.shape[1:]
        # A matrix has a row for each token; `of_rows` functions have chosen their rows
        # already.
        whole = len(shape) == 2 and not by_rows
        fits = len(shape) == 2 if by_rows else len(shape) <= 2
        if not fits or 0 in shape or (whole and shape[0] != n):
            raise self._misshapen(shape[1:] if by_rows else shape)
        return found[:, rows] if whole else found

    def _of_array(self, found: Any) -> Any:
        """Result of `apply` as a JAX array, or as a NumPy array if `host` is set."""
        if not self.host:
            if not isinstance(found, jax.Array | np.ndarray | np.generic):
                raise InputError(
                    f"the function returned a {type(found).__name__}; expected one array: "
                    "pick it from what the model returns"
                )
            return jnp.asarray(found)
        try:
            return np.array(found)  # a copy: a buffer may be written to again
        except Exception as error:
            reason = " ".join(str(error).split())
            raise InputError(
                f"the function returned a {type(found).__name__} that is no array of one "
                f"shape ({reason}); expected {self._expected}"
            ) from error

    def _misshapen(self, shape: tuple[int, ...]) -> InputError:
        return InputError(
            f"the function returned an array of shape {shape} for one input; expected "
            f"{self._expected}, not empty and of one shape for all inputs"
        )


def _numbers(found: Shaped[np.ndarray, "..."]) -> Shaped[np.ndarray, "..."]:
    """Results `found`, unchanged; raises for integers beyond 2^53 and entries not real."""
    if jnp.issubdtype(found.dtype, jnp.integer):
        if (
            found.size
            and max(abs(int(found.min())), int(found.max())) > LARGEST_INTEGER
        ):
            raise InputError(
                f"the function returned {found.dtype.name} beyond 2^53, which float64 does "
                "not hold; return floats"
            )
    elif not (jnp.issubdtype(found.dtype, jnp.floating) or found.dtype == bool):
        raise InputError(
            f"the function returned an array of {found.dtype}; expected real numbers"
        )
    return found


def check_radius(value: Any, where: str = "") -> float:
    """Stated radius as a float, checked; `where` follows its name in the message."""
    found = np.asarray(value)
    number = found.ndim == 0 and found.dtype.kind in "iuf"
    if not (number and 0 <= found < np.inf):
        raise InputError(
            f"radius{where} = {value!r}; expected a finite number of at least 0, or a "
            "function of the tokens that returns one"
        )
    return float(found)
