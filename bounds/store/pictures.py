"""Files of figures, their formats, and the style that drawing and writing them shares."""

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bounds.store.output import write_bytes
from jax_models.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "pdf", "svg")
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "legend.fontsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",
}


def save_figure(
    figure: "Figure", stem: str | os.PathLike[str], formats: Sequence[str]
) -> list[Path]:
    """Writes a figure atomically to `stem` with each suffix; returns the files."""
    from matplotlib import rc_context

    paths = []
    for suffix in formats:
        image = io.BytesIO()
        with rc_context(STYLE):
            figure.savefig(image, format=suffix, dpi=300, bbox_inches="tight")
        paths.append(Path(f"{os.fspath(stem)}.{suffix}"))
        write_bytes(paths[-1], image.getvalue())
    return paths


def save_as_named(figure: "Figure", path: str | os.PathLike[str]) -> None:
    """Writes a figure in the format of the file's suffix, an `InputError` if none."""
    stem, suffix = os.path.splitext(os.fspath(path))
    if suffix[1:] not in FORMATS:
        raise InputError(f"{os.fspath(path)}: figures are {', '.join(FORMATS)} files")
    save_figure(figure, stem, [suffix[1:]])
