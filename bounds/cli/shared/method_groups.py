"""Groups of options of methods, named after the classes whose fields they are."""

import dataclasses
from typing import Any

from bounds.cli.shared.options import Group, option

SCREENED: dict[str, Any] = {
    "used_if": lambda one: one.method == "screened" and one.propose is None,
    "otherwise": "is of --method=screened; leave it out",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ties(Group):
    """Ties of hard attention."""

    ties: str = option(
        "error", "Hard attention: what an ambiguous tie is.", *("error", "warn")
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Method(Ties):
    """Method of computing influences."""

    method: str = option(
        "auto",
        "How the influence is computed; auto picks the cheapest exact method, screened "
        "certifies the maximum and encloses the rest.",
        "bounds.influence.choice:METHOD_NAMES",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Screened(Group):
    """Options of the screen, those of `bounds.Screened`."""

    rtol: float = option(
        "bounds.influence:Screened.rtol",
        "Of --method=screened: stop when the maximum is enclosed this closely, upper / "
        "lower - 1.",
        least=0.0,
        **SCREENED,
    )
    budget: int = option(
        "bounds.influence:Screened.budget",
        "Of --method=screened: the most exact evaluations; 0 is as many as it takes.",
        least=0,
        **SCREENED,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Incremental(Group):
    """Option of changes carried through the layers, that of `bounds.Incremental`."""

    precision: str | None = option(
        "bounds.influence:Incremental.precision",
        "Half precision of the products of changes, by --method=incremental: answers are "
        "estimated, and the error of a sample in float64 stands beside them. By default "
        "all is of --dtype.",
        "bounds.rounding.precision:PRECISIONS",
        used_if=lambda one: (
            one.method in ("auto", "incremental") and not getattr(one, "propose", None)
        ),
        otherwise="is of --method=incremental, without --propose; leave it out",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proposed(Group):
    """Option of what is computed first, that of `bounds.Proposed`."""

    propose: str | None = option(
        None,
        "Compute all in this float type first, and in float64 those that may be the "
        "largest. After float32 the maximum is the same, and the ends of the others are "
        "wider; after a half precision, whose errors are measured, not bounded, the value "
        "is exact, that it is the maximum is estimated, and the others are estimates.",
        "bounds.influence.proposed:Cheap",
    )
