"""Checks README.md and docs/: commands, outputs, values, tables, figures, links.

Without --all, what is marked as taking minutes or as wanting devices is listed with its
reason and not run. Exit code 1 if anything is stale, numbers without a source among it.
"""

from collections.abc import Sequence
from pathlib import Path

from absl import app, flags

from benchmarks import pages as rows_pages
from benchmarks.docs_check import api_page, figures
from benchmarks.docs_check.commands import ROOT
from benchmarks.docs_check.page_check import Choice, PageCheck
from benchmarks.docs_check.report import Report
from jax_models import InputError

PAGES = flags.DEFINE_list("pages", [], "pages, as README.md,docs/lumped.md; empty: all")
ALL = flags.DEFINE_bool("all", False, "run what takes minutes or wants devices too")
LIMIT = flags.DEFINE_float("limit", 300.0, "seconds that a block may take", 0.0)
RESULTS = flags.DEFINE_string(
    "results", "results", "folder with the stores of the benchmarks"
)
STATIC = flags.DEFINE_bool("static", False, "run nothing: look at flags and names")
VERBOSE = flags.DEFINE_bool("verbose", False, "print what is as it should be too")


def all_pages() -> list[Path]:
    """Returns README.md and the pages of docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def check_whole(report: Report) -> None:
    """Checks what belongs to no page: that the API page and the gallery are complete.

    Args:
        report: Takes the findings.
    """
    current = api_page.PAGE.read_text() == api_page.page_text()
    remedy = "is out of date; run python -m benchmarks.docs_check.api_page"
    report.judge("docs/api.md", None if current else remedy, "names and first lines")
    found = rows_pages.stale()
    remedy = f"{found[0]}; run python -m benchmarks.pages" if found else None
    report.judge("benchmarks/results", remedy, "tables and numbers made of rows")
    missing = figures.missing_figures(ROOT / "docs" / "gallery.md")
    wrong = f"{missing[0]} is not shown" if missing else None
    report.judge("docs/gallery.md", wrong, "all figures are shown")


def main(arguments: Sequence[str]) -> None:
    """Checks the pages and says what is stale."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected arguments {arguments[1:]}")
    pages = [ROOT / name for name in PAGES.value] or all_pages()
    for page in pages:
        if not page.is_file() or not page.is_relative_to(ROOT):
            raise SystemExit(f"docs_check: --pages: there is no page {page} of {ROOT}")
    report = Report(VERBOSE.value)
    results = (ROOT / RESULTS.value).resolve()
    choice = Choice(
        ALL.value, LIMIT.value, results if results.is_dir() else None, STATIC.value
    )
    check_whole(report)
    for page in pages:
        try:
            PageCheck(page, choice, report).check()
        except InputError as error:  # a fence that stays open, a mark that is none
            report.add(str(page.relative_to(ROOT)), "stale", str(error))
    print(report.summary())
    if any(report.of("stale")):
        raise SystemExit(1)


if __name__ == "__main__":
    app.run(main)
