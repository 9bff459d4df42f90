"""Checks README.md and docs/: commands, outputs, values, tables, figures, links.

Without --all, what is marked as taking minutes or as wanting devices is listed with its
reason and not run. Pages run in a folder of their own, where nothing is but the pages: what
earlier commands left in the checkout's `results/` is seen only with --results. Exit code 1
if anything is stale, numbers without a source among it.
"""

from pathlib import Path
from typing import Any

from absl import flags

from benchmarks import pages as rows_pages
from benchmarks.docs_check import agreement, api_page
from benchmarks.docs_check.commands import ROOT
from benchmarks.docs_check.page_check import Choice, PageCheck
from benchmarks.docs_check.report import Report
from benchmarks.script import run_program
from jax_models import InputError


def define_flags() -> Any:
    """Returns the program's flags."""
    values = flags.FlagValues()

    def define(kind: Any, name: str, default: Any, text: str, *more: Any) -> None:
        kind(name, default, text, *more, flag_values=values)

    define(flags.DEFINE_list, "pages", [], "as README.md,docs/lumped.md; empty: all")
    define(flags.DEFINE_bool, "all", False, "run what takes minutes or devices too")
    define(flags.DEFINE_float, "limit", 300.0, "seconds that a block may take", 0.0)
    text = "folder with stores of benchmarks, for what takes minutes"
    define(flags.DEFINE_string, "results", None, text)
    define(flags.DEFINE_bool, "static", False, "run nothing: look at flags and names")
    define(flags.DEFINE_bool, "verbose", False, "print what is as it should be too")
    return values


FLAGS = define_flags()


def choice(values: Any) -> Choice:
    """Returns the choice of what to run, from the flags."""
    results = None if values.results is None else Path(values.results).resolve()
    if results is not None and not results.is_dir():
        raise InputError(f"--results: there is no folder {results}")
    return Choice(values.all, values.limit, results, values.static)


def all_pages() -> list[Path]:
    """Returns README.md and the pages of docs/ and docs/theory/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def check_whole(report: Report) -> None:
    """Checks that pages and tables made from code or rows are current, and figures shown."""
    current = api_page.PAGE.read_text() == api_page.page_text()
    remedy = f"is out of date; run python -m {api_page.__name__}"
    name = f"docs/{api_page.PAGE.name}"
    report.judge(name, None if current else remedy, "names and first lines")
    found = rows_pages.stale()
    remedy = f"{found[0]}; run python -m benchmarks.pages" if found else None
    report.judge("benchmarks/results", remedy, "tables and numbers made of rows")
    missing = agreement.missing_figures(ROOT / "docs" / "figures", all_pages())
    wrong = f"{missing[0]} is not shown" if missing else None
    report.judge("docs/figures", wrong, "all figures are shown")


def main() -> None:
    """Checks the pages and prints findings; exits with 1 if anything is stale."""
    pages = [ROOT / name for name in FLAGS.pages] or all_pages()
    for page in pages:
        if not page.is_file() or not page.is_relative_to(ROOT):
            raise InputError(f"--pages: there is no page {page} of {ROOT}")
    chosen, report = choice(FLAGS), Report(FLAGS.verbose)
    check_whole(report)
    for page in pages:
        try:
            PageCheck(page, chosen, report).check()
        except InputError as error:  # a fence that stays open, a mark that is none
            report.add(str(page.relative_to(ROOT)), "stale", str(error))
    print(report.summary())
    if any(report.of("stale")):
        raise SystemExit(1)


if __name__ == "__main__":
    run_program(FLAGS, main)
