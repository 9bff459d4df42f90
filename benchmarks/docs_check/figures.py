"""Figures: every one is shown by a page, and is what its command draws."""

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

# Fonts and rasterisation differ a little between machines; a point that moves changes more.
SHADE = 0.25  # of the range of a colour
SHARE = 0.01  # of what is drawn: a picture is white almost everywhere


def image_difference(stated: Path, drawn: Path) -> str | None:
    """Returns how two pictures differ, or None.

    Args:
        stated: The PNG file that a page shows.
        drawn: The one that was just drawn.
    """
    from matplotlib.image import imread

    if not drawn.is_file():
        return f"{drawn.name} was not drawn"
    one, other = (np.asarray(imread(path)[..., :3]) for path in (stated, drawn))
    if one.shape != other.shape:
        return f"{stated.name} is {one.shape[:2]} pixels, drawn are {other.shape[:2]}"
    changed = int((np.abs(one - other).max(-1) > SHADE).sum())
    ink = int((np.minimum(one, other).min(-1) < 1 - SHADE).sum())
    if changed <= SHARE * ink:
        return None
    share = 100 * changed / ink
    return f"{share:.1f} percent of what {stated.name} shows is not as drawn now"


def missing_figures(folder: Path, pages: Iterable[Path]) -> list[str]:
    """Figures of a folder that none of some pages shows."""
    text = "".join(page.read_text() for page in pages)
    shown = set(re.findall(r"\]\((?:\.\./|docs/)?figures/([\w.-]+)\)", text))
    return sorted({path.name for path in folder.iterdir()} - shown)


def broken_links(page: Path) -> list[str]:
    """Returns the targets of a page's links that are no files.

    Args:
        page: A Markdown file; links elsewhere and to headings are left out.
    """
    targets = re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", page.read_text())
    return [
        target
        for target in targets
        if not re.match(r"[a-z]+:", target) and not (page.parent / target).exists()
    ]
