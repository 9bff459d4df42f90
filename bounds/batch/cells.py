"""A cell of a sweep, and what came of it."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bounds.store.provenance import Provenance


@dataclasses.dataclass(frozen=True)
class BatchCell:
    """One run of a command.

    Attributes:
        key: Its key in the store.
        config: Everything the result depends on.
        label: The swept flags, as typed.
        arguments: What is typed after the command's name.
    """

    key: str
    config: Mapping[str, Any]
    label: str
    arguments: tuple[str, ...]

    @property
    def files(self) -> dict[str, str]:
        """The SHA-256 of every file that a flag names, by path."""
        return {
            self.config[name.removesuffix("_sha256")]: digest
            for name, digest in self.config.items()
            if name.endswith("_sha256")
        }

    @property
    def length(self) -> int:
        """The longest n that its flags name, 0 where a file decides."""
        lengths = self.config.get("lengths") or (self.config.get("length") or 0,)
        return max(lengths)

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
