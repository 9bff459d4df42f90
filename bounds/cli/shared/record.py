"""Where the results of a run go, and what every JSON output says about its own making."""

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from absl import flags

import jax_models as jm
from bounds.cli.shared.exports import publish
from bounds.cli.start import STORE_NAME
from bounds.figures.primitives import FORMATS, save_figure
from bounds.store.output import sha256, write_bytes, write_json
from bounds.store.provenance import provenance
from bounds.store.results import ResultStore

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Output:
    """The output of one run of a command, as its flags name it.

    Attributes:
        command: The command's name.
        folder: Where files are written, as typed.
        values: Of all flags, by name.
    """

    command: str
    folder: str
    values: Mapping[str, Any]

    @classmethod
    def of(cls, command: str, options: flags.FlagValues) -> Self:
        """Returns the output of a run.

        Args:
            command: The command's name.
            options: Its flags, those of `define_output` among them.
        """
        values = {name: options[name].value for name in options}
        return cls(command, options.out, values)

    @property
    def fresh(self) -> bool:
        """Whether what the store holds is to be ignored."""
        return self.values["fresh"]

    def path(self, name: str) -> Path:
        """Returns where a file of a name is written."""
        return Path(self.folder) / name

    @contextlib.contextmanager
    def exports(self) -> Iterator[Self]:
        """Yield the output in a folder of its own, whose files go to --out together."""
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        made = tempfile.TemporaryDirectory(".part", f".{self.command}.", self.folder)
        with made as staged:
            try:
                yield dataclasses.replace(self, folder=staged)
                publish(self.command, self.values, Path(staged))
            except OSError as error:
                if isinstance(name := error.filename, str):  # as the user knows it
                    error.filename = name.replace(str(Path(staged)), self.folder, 1)
                raise

    def record(self) -> dict[str, Any]:
        """Returns the head of a JSON output: command, flags, seed and provenance."""
        return {
            "command": self.command,
            "flags": dict(self.values),
            "seed": self.values.get("seed"),
            "dtype": self.values.get("dtype"),
            **provenance().as_dict(),
        }

    def write_model(self, model: Any, about: Mapping[str, Any]) -> dict[str, Any]:
        """Write the JSON output about a model and its file, and return the former.

        Args:
            model: A transformer or another network that `jax_models` writes.
            about: What else the JSON output says.

        Raises:
            OSError: A file cannot be written.
        """
        content = jm.model_bytes(model)
        record = {**self.record(), "model_sha256": sha256(content), **about}
        write_json(self.path(f"{self.command}.json"), record)
        write_bytes(self.path("model.safetensors"), content)
        return record

    def open_store(self) -> ResultStore:
        """Returns the store in the folder, open for writing: a context manager.

        Raises:
            OSError: It cannot be used; see `ResultStore`.
        """
        return ResultStore(self.path(STORE_NAME), fresh=self.fresh)

    def draw(self, figure: "Figure", stem: str | None = None) -> list[str]:
        """Write a figure in every format of figures asked for, and return the files' names.

        Args:
            figure: The figure.
            stem: Of the names; the command's by default.
        """
        formats = [x for x in self.values["figure_format"] if x in FORMATS]
        paths = save_figure(figure, self.path(stem or self.command), formats)
        return [path.name for path in paths]
