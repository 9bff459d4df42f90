"""A traced program of changes with its products in half precision.

The program computes how outputs change when symbols of an input are replaced. Its
traced jaxpr has two kinds of arrays: those that the base pass, of the unchanged input,
fixes (weights, rows, scores, summaries), and those that have *moved*, which a change
enters. Every `dot_general` that a moved array enters is replaced, in whatever loop,
branch or call it stands (`Rounding.product`), and nothing else.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun

from bounds.rounding.precision import Rounding


def round_products(
    rounding: Rounding,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    moves: tuple[Any, ...],  # pytrees of booleans, of the arguments' structure
) -> Any:
    """Result of function(*arguments) with half-precision products of moved arrays."""
    program, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
    entering = jax.tree.leaves(moves)
    found = _run(rounding, program, entering, jax.tree.leaves(arguments))
    return jax.tree.unflatten(jax.tree.structure(shape), found)


def _run(
    rounding: Rounding,
    program: ClosedJaxpr,
    entering: Sequence[bool],
    arguments: Sequence[Any],
) -> list[Any]:
    """Results of a program with rounded products; `entering` marks its moved arguments."""
    jaxpr = program.jaxpr
    moving = _moving(jaxpr, entering)
    held = dict(zip(jaxpr.constvars, program.consts, strict=True))
    held |= dict(zip(jaxpr.invars, arguments, strict=True))

    def read(x: Any) -> Any:
        return x.val if isinstance(x, Literal) else held[x]

    for equation in jaxpr.eqns:
        moves = _which(equation.invars, moving)
        # Products are linear in the moved arrays: a rounded operand puts them off by about as
        # much, relative to the change. In scores of the base, exponentials and statistics of
        # norms rounding would count as often as a row is larger than its change.
        if equation.primitive is jax.lax.dot_general_p and any(moves):
            operands = [read(x) for x in equation.invars]
            found = [rounding.product(operands, moves, equation.params)]
        else:
            if any(moves):
                equation = equation.replace(params=_rounded(rounding, equation, moves))
            inputs = {x: held[x] for x in equation.invars if not isinstance(x, Literal)}
            # An operation that stays is run as a program of its own, with all its parameters.
            alone = jaxpr.replace(
                constvars=[],
                invars=list(inputs),
                outvars=equation.outvars,
                eqns=[equation],
                effects=equation.effects,
                debug_info=jaxpr.debug_info.with_unknown_names(),
            )
            found = jaxpr_as_fun(ClosedJaxpr(alone, ()))(*inputs.values())
        held |= dict(zip(equation.outvars, found, strict=True))
    return [read(x) for x in jaxpr.outvars]


def _rounded(
    rounding: Rounding, equation: Any, moves: Sequence[bool]
) -> dict[str, Any]:
    """Parameters of a JAX operation, with products in its nested programs rounded."""
    parameters = dict(equation.params)
    for name, programs in _programs(equation, moves).items():
        rounded = tuple(
            jax.make_jaxpr(lambda *x, p=p, inner=inner: _run(rounding, p, inner, x))(
                *(_shape(a) for a in p.in_avals)
            )
            if _has_product(p.jaxpr)
            else p
            for p, inner in programs
        )
        several = isinstance(parameters[name], tuple)
        parameters[name] = rounded if several else rounded[0]
    return parameters


def _shape(a: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type)


def _has_product(jaxpr: Jaxpr) -> bool:
    return any(
        equation.primitive is jax.lax.dot_general_p
        or any(_has_product(x.jaxpr) for x in _closed(equation))
        for equation in jaxpr.eqns
    )


def _closed(equation: Any) -> Iterator[ClosedJaxpr]:
    """Yields the nested programs among the parameters of an operation."""
    for value in equation.params.values():
        for one in value if isinstance(value, tuple | list) else (value,):
            if isinstance(one, ClosedJaxpr):
                yield one


def _which(variables: Sequence[Any], moving: set[Any]) -> list[bool]:
    return [not isinstance(x, Literal) and x in moving for x in variables]


def _moving(jaxpr: Jaxpr, entering: Sequence[bool]) -> set[Any]:
    """Set of moved variables of a program; `entering` marks its moved arguments."""
    moving = {x for x, moves in zip(jaxpr.invars, entering, strict=True) if moves}
    for equation in jaxpr.eqns:
        moves = _which(equation.invars, moving)
        if any(moves):
            leaving = zip(equation.outvars, _leaving(equation, moves), strict=True)
            moving |= {x for x, moved in leaving if moved}
    return moving


def _results(jaxpr: Jaxpr, entering: Sequence[bool]) -> list[bool]:
    """Mask of the moved results of a program; `entering` marks its moved arguments."""
    return _which(jaxpr.outvars, _moving(jaxpr, entering))


def _leaving(equation: Any, moves: Sequence[bool]) -> list[bool]:
    """Mask of the moved results of an operation with a moved argument."""
    programs = _programs(equation, moves)
    # A moved condition of a loop or branch moves all results.
    chosen = equation.primitive.name == "cond" and moves[0]
    chosen |= any(_results(p.jaxpr, x)[0] for p, x in programs.pop("cond_jaxpr", ()))
    if chosen or len(programs) != 1:
        return [True] * len(equation.outvars)
    (several,) = programs.values()
    found = (_results(program.jaxpr, inner) for program, inner in several)
    return [any(x) for x in zip(*found, strict=True)]


def _programs(
    equation: Any, moves: Sequence[bool]
) -> dict[str, list[tuple[ClosedJaxpr, list[bool]]]]:
    """Nested programs by parameter, each with a mask of its moved arguments."""
    name, parameters, moves = equation.primitive.name, equation.params, list(moves)
    if name == "scan":
        body = parameters["jaxpr"]
        first = parameters["num_consts"]
        moves = _settled(body.jaxpr, moves, first, first + parameters["num_carry"])
        return {"jaxpr": [(body, moves)]}
    if name == "while":
        tested, first = parameters["cond_nconsts"], parameters["body_nconsts"]
        body, inner = parameters["body_jaxpr"], moves[tested:]
        inner = _settled(body.jaxpr, inner, first, len(inner))
        asked = [*moves[:tested], *inner[first:]]
        test = parameters["cond_jaxpr"]
        return {"body_jaxpr": [(body, inner)], "cond_jaxpr": [(test, asked)]}
    if name == "cond":
        return {"branches": [(one, moves[1:]) for one in parameters["branches"]]}
    return {
        key: [(one, moves)]
        for key, one in parameters.items()
        if isinstance(one, ClosedJaxpr) and len(one.in_avals) == len(moves)
    }


def _settled(body: Jaxpr, moves: list[bool], first: int, last: int) -> list[bool]:
    """Mask of loop body arguments that ever move; [first, last) is the carry."""
    while True:
        # What moves at the end of a round moves at the start of the next: until nothing is
        # added.
        carried = moves[first:last]
        found = _results(body, moves)[: last - first]
        after = [a or b for a, b in zip(carried, found, strict=True)]
        if after == carried:
            return moves
        moves = [*moves[:first], *after, *moves[last:]]
