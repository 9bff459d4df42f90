"""Covering arrays: few cases that meet every combination of any t factors' values."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Case = dict[str, Any]


def combinations(
    factors: Mapping[str, Sequence[Any]], strength: int, allowed: Callable[[Case], bool]
) -> set[frozenset[tuple[str, Any]]]:
    """Every allowed assignment to `strength` of the factors."""
    wanted = set()
    for names in itertools.combinations(factors, strength):
        for values in itertools.product(*(factors[name] for name in names)):
            part = dict(zip(names, values, strict=True))
            if allowed(part):
                wanted.add(frozenset(part.items()))
    return wanted


def cover(
    factors: Mapping[str, Sequence[Any]],
    strength: int,
    allowed: Callable[[Case], bool] = lambda case: True,
) -> list[Case]:
    """Cases that together meet every allowed combination of `strength` factors."""
    wanted = combinations(factors, strength, allowed)
    order = {name: at for at, name in enumerate(factors)}
    # Sorted, so that the cases are the same in every run.
    queue = sorted(wanted, key=lambda part: sorted(map(repr, part)))
    left, cases = set(wanted), []

    def gain(case: Case) -> int:
        items = sorted(case.items(), key=lambda item: order[item[0]])
        parts = itertools.combinations(items, strength)
        return sum(frozenset(part) in left for part in parts)

    while left:
        case: Case = dict(next(part for part in queue if part in left))
        rest = [name for name in factors if name not in case]
        for name in sorted(rest, key=lambda name: -len(factors[name])):
            choices = [{**case, name: value} for value in factors[name]]
            unused = [-sum(c[name] == x for c in cases) for x in factors[name]]
            ranked = zip(choices, unused, strict=True)
            case, _ = max(
                (pair for pair in ranked if allowed(pair[0])),
                key=lambda pair: (gain(pair[0]), pair[1]),
            )
        case = {name: case[name] for name in factors}
        left -= {frozenset(p) for p in itertools.combinations(case.items(), strength)}
        cases.append(case)
    return cases
