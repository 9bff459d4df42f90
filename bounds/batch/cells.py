"""A cell of a sweep, what it is expected to take, and what came of it."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bounds.store.provenance import Provenance


@dataclasses.dataclass(frozen=True)
class Work:
    """How much a cell does, as far as its flags tell.

    Attributes:
        terms: Counts that its time may be proportional to, by name; the same names in
            all cells of a command.
        bytes: Of the arrays that it works on at a time.
    """

    terms: Mapping[str, float]
    bytes: float


@dataclasses.dataclass(frozen=True)
class BatchCell:
    """One run of a command.

    Attributes:
        key: Its key in the store.
        config: Everything the result depends on.
        label: The swept flags, as typed.
        arguments: What is typed after the command's name.
        work: What it is expected to do.
        levels: The swept flags that decide what is compiled, as typed.
        kinds: Those of them that the work's terms do not tell apart as sizes.
        shape: Names all but its data: equal for cells that do the same.
        programs: Names of what it runs compiled; cells may share some.
    """

    key: str
    config: Mapping[str, Any]
    label: str
    arguments: tuple[str, ...]
    work: Work
    levels: tuple[str, ...]
    kinds: tuple[str, ...]
    shape: str
    programs: tuple[str, ...]

    @property
    def files(self) -> dict[str, str]:
        """The SHA-256 of every file that a flag names, by path."""
        return {
            self.config[name.removesuffix("_sha256")]: digest
            for name, digest in self.config.items()
            if name.endswith("_sha256")
        }

    @property
    def memory(self) -> int:
        """Bytes that its blocks may take where no flag says; their sizes follow from it."""
        return self.config["block_memory"]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of a cell.

    Attributes:
        rows: The result; None where it failed.
        message: Why it failed.
        seconds: Wall time.
        cpu_seconds: Of all threads of its process.
        compile_seconds: The wall time that went into tracing and compiling.
        peak_bytes: The most memory its process has held until then; None where the
            system does not tell.
        origin: What produced it.
    """

    rows: list[dict[str, Any]] | None
    message: str | None
    seconds: float
    cpu_seconds: float
    compile_seconds: float
    peak_bytes: int | None
    origin: Provenance

    def payload(self) -> dict[str, Any]:
        """Returns what is recorded of a result."""
        return {
            "rows": self.rows,
            "cpu_seconds": self.cpu_seconds,
            "compile_seconds": self.compile_seconds,
            "peak_bytes": self.peak_bytes,
        }


# What two runs of one sweep differ in.
TIMING = ("seconds", "finished", "cpu_seconds", "compile_seconds", "peak_bytes")
