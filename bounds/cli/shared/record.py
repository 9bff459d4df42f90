"""Destination of a run's results, and the provenance in every JSON output."""

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from bounds.cli.shared.exports import publish
from bounds.cli.shared.options import Group
from bounds.cli.start import STORE_NAME
from bounds.store.pictures import FORMATS, save_figure
from bounds.store.provenance import provenance
from bounds.store.results import ResultStore

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Output:
    """Output of one run of a command, as its flags name it."""

    command: str
    folder: str  # as typed
    values: Mapping[str, Any]  # of all flags
    running: frozenset[str]  # flags that change no export
    seed: int | None  # None where nothing is drawn

    @classmethod
    def of(cls, command: str, options: Group) -> Self:
        """Output of a run with some options."""
        values = options.values()
        seed = values["seed"] if getattr(options, "is_random", True) else None
        return cls(command, values["out"], values, options.running(), seed)

    @property
    def fresh(self) -> bool:
        """True if the store's results are to be ignored."""
        return self.values["fresh"]

    def path(self, name: str) -> Path:
        """Path of a file in the output folder."""
        return Path(self.folder) / name

    @contextlib.contextmanager
    def exports(self) -> Iterator[Self]:
        """Yields the output in a temporary folder, whose files go to --out together."""
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        made = tempfile.TemporaryDirectory(".part", f".{self.command}.", self.folder)
        with made as staged:
            try:
                yield dataclasses.replace(self, folder=staged)
                publish(self.command, self.values, self.running, Path(staged))
            except OSError as error:
                if isinstance(name := error.filename, str):  # the user's path
                    error.filename = name.replace(str(Path(staged)), self.folder, 1)
                raise

    def record(self) -> dict[str, Any]:
        """Head of a JSON output: command, flags, seed and provenance."""
        return {
            "command": self.command,
            "flags": dict(self.values),
            "seed": self.seed,
            "dtype": self.values.get("dtype"),
            **provenance().as_dict(),
        }

    def open_store(self) -> ResultStore:
        """Store in the folder, open for writing: a context manager."""
        return ResultStore(self.path(STORE_NAME), fresh=self.fresh)

    def draw(self, figure: "Figure", stem: str | None = None) -> list[str]:
        """Writes a figure in the formats of the flag; returns the files' names."""
        formats = [x for x in self.values["figure_format"] if x in FORMATS]
        paths = save_figure(figure, self.path(stem or self.command), formats)
        return [path.name for path in paths]
