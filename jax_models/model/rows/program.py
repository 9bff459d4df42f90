"""Row programs: what a layer does to its rows, apart from attention, as straight lines.

A program is data. A *reading* of a program is a function that goes through its steps with one
rule per operation: here are its value and its exact change. Rows are named.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from jax import Array

from jax_models.model.rows.base import Operation
from jax_models.model.rows.norm import Norm
from jax_models.run.perturbation import perturb

Rows = Mapping[str, Array]


@dataclasses.dataclass(frozen=True)
class Step:
    """name = operation(inputs)."""

    name: str
    operation: Operation
    inputs: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Program:
    """Steps in order; each reads rows that are given or came before."""

    steps: tuple[Step, ...]
    output: str

    @property
    def kept(self) -> tuple[str, ...]:
        """The rows that readings of changes ask of the base, the output left out.

        Those that operations read which are not linear, that norms write, and that are
        read more than once.
        """
        reads = [name for step in self.steps for name in step.inputs]
        found = [name for step in self.bent for name in step.inputs]
        found += [x.name for x in self.steps if isinstance(x.operation, Norm)]
        found += [name for name in reads if reads.count(name) > 1]
        return tuple(dict.fromkeys(x for x in found if x != self.output))

    def value(self, given: Rows) -> dict[str, Array]:
        """Returns all rows by their names."""
        return self.run(given, lambda step, *rows: perturb(step.operation(*rows)))

    def run(self, given: Mapping[str, Any], rule: Callable[..., Any]) -> dict[str, Any]:
        """Results by name of a rule (of a step and what it reads) on all rows."""
        rows = dict(given)
        for step in self.steps:
            read = (rows[name] for name in step.inputs)
            rows[step.name] = rule(step, *read)
        return rows

    def change(self, base: Rows, given: Rows) -> dict[str, Array]:
        """Returns the exact changes of all rows by their names.

        The base has the rows that nonlinear operations read, broadcastable to their changes;
        `given` the changes of first rows, and of others that are known.
        """
        changes = dict(given)
        for step in self.steps:
            if step.name in changes:
                continue
            rows = tuple(changes[name] for name in step.inputs)
            if not step.operation.linear:
                rows = (*(base[name] for name in step.inputs), *rows)
            changes[step.name] = perturb(step.operation.change(*rows))
        return changes

    @property
    def bent(self) -> tuple[Step, ...]:
        """The steps that are not linear."""
        return tuple(step for step in self.steps if not step.operation.linear)

    def reaches(self, source: str, past: str) -> bool:
        """Whether the output reads `source` by a way that does not lead through `past`."""
        reached = {source}
        for step in self.steps:
            if step.name != past and reached & set(step.inputs):
                reached.add(step.name)
        return self.output in reached
