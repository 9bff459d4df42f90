"""Figures as files: their look, and formats by suffix."""

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bounds.store.output import FORMATS, write_bytes
from jax_models.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    """Writes a figure in the format of the path's suffix; an `InputError` if unknown."""
    stem, suffix = os.path.splitext(os.fspath(path))
    if suffix[1:] not in FORMATS:
        raise InputError(f"{os.fspath(path)}: figures are {', '.join(FORMATS)} files")
    save_figure(figure, stem, [suffix[1:]])
