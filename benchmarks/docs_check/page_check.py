"""One page: runs what it shows, in order, and compares what it states.

All blocks of a page run in one folder, its Python blocks in one process, as a reader would
who types them in.
"""

import contextlib
import dataclasses
import importlib.util
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.docs_check import agreement, commands
from benchmarks.docs_check.agreement import (
    TIME,
    difference,
    prose_alone,
    stated_numbers,
    unaccounted,
)
from benchmarks.docs_check.commands import ROOT
from benchmarks.docs_check.pages import (
    Block,
    inline_commands,
    read_page,
    split_commands,
)
from benchmarks.docs_check.report import Report
from benchmarks.docs_check.session import Session

RESULT = re.compile(r"\.\d|e|\d{4}")


def untied(block: Block) -> bool:
    """Returns whether a block states results or times without a mark of their source."""
    if not block.is_typed or block.mark.sources:
        return False
    results = any(RESULT.search(text) for text in stated_numbers(block.text))
    return results or bool(TIME.search(prose_alone(block.text)))


def stated_beside(blocks: Iterable[Block], line: int, kind: str) -> str:
    """Returns the text of checked blocks above or below a line of the page."""
    return "".join(
        f"{block.text}\n"
        for block in blocks
        if (block.line < line if kind == "numbers above" else block.line > line)
        and not block.is_paragraph
        and not untied(block)
    )


@contextlib.contextmanager
def open_workshop(results: Path | None) -> Iterator[Path]:
    """Yields a new folder with copies of README.md, docs/ and of the stores."""
    with tempfile.TemporaryDirectory(prefix="docs-check-") as name:
        folder = Path(name)
        shutil.copy(ROOT / "README.md", folder)
        shutil.copytree(ROOT / "docs", folder / "docs")
        if results is not None:
            for store in results.glob("*/results.sqlite"):
                target = folder / "results" / store.parent.name
                target.mkdir(parents=True)
                shutil.copy(store, target)
        yield folder


def store_of(command: str, folder: Path) -> bool:
    """Returns whether the store of a benchmark's command is below `folder`."""
    name = command.partition("benchmarks.")[2].split()[:1]
    return bool(name) and (folder / "results" / name[0] / "results.sqlite").is_file()


FIGURES = ROOT / "docs" / "figures"
WRITES = ("--docs", "--page", "--figure")  # flags of benchmarks that write into a page


@dataclasses.dataclass(frozen=True)
class Choice:
    """Options of a check: which parts of a page are run.

    Attributes:
        everything: Whether also what takes minutes, or wants devices.
        seconds: How long a block may take.
        results: A folder with the stores of benchmarks, or None.
        static: Whether nothing is run, only looked at.
    """

    everything: bool = False
    seconds: float = 300.0
    results: Path | None = None
    static: bool = False


class PageCheck:
    """The check of one page, block by block."""

    def __init__(self, page: Path, choice: Choice, report: Report) -> None:
        """Prepares the check of a page; nothing runs."""
        self.page, self.choice, self.report = page, choice, report
        self.folder = Path()
        self.session: Session | None = None
        # What the blocks so far printed; the last alone; None where it did not run.
        self.history, self.last = "", None
        self.regenerated, self.unrun = False, False
        self.blocks: list[Block] = []

    def check(self) -> None:
        """Checks links and every block, then tables that commands wrote into the copy."""
        name = str(self.page.relative_to(ROOT))
        broken = agreement.broken_links(self.page)
        wrong = f"there is no file {broken[0]}" if broken else None
        self.report.judge(name, wrong, "links")
        with open_workshop(self.choice.results) as self.folder:
            self.session = Session(self.folder)
            try:
                self.blocks = read_page(self.page)
                for block in self.blocks:
                    here = dataclasses.replace(block, page=Path(name))
                    self._check_block(here)
            finally:
                self.session.close()
            if not self.choice.static:
                self._check_tables(name)

    def _check_block(self, block: Block) -> None:
        """Checks a block by the method for its kind."""
        what = block.mark.what
        if block.is_typed:
            for command in inline_commands(block):
                self._command(block, command, writes_only=True)
            if block.mark.sources:
                self._numbers(block)
            elif untied(block):
                self.report.add(block.place, "stale", "no program makes its numbers")
        elif block.language == "generated":
            pass  # compared with what makes it, below
        elif what in ("output of", "error of"):
            self._output_of(block)
        elif what == "text":
            if self.session is not None and not self.choice.static:
                request = {"name": block.mark.argument, "text": block.text}
                self.session.ask(request, self.choice.seconds)
            self.report.add(block.place, "accepted", f"the text {block.mark.argument}")
        elif block.language == "python":
            self._python(block)
        elif block.is_shell:
            self._shell(block)
        elif block.follows and block.language in ("", "text"):
            self._compare(block.place, block.text)
        elif block.mark.when == "never":
            self.report.add(block.place, "skipped", block.mark.reason)
        else:
            self.report.add(
                block.place, "stale", "nothing says what this block is; mark it"
            )

    def _waits(self, block: Block, command: str = "") -> str | None:
        """Returns the reason why a block is not run, or None."""
        mark = block.mark
        if self.choice.static:
            return "nothing is run"
        if mark.when == "never":
            return mark.reason
        if mark.when == "peers":
            missing = [m for m in mark.reason.split() if not _is_there(m)]
            return f"{missing[0]} is not installed" if missing else None
        if mark.when and not self.choice.everything:
            at_hand = mark.when == "minutes" and store_of(command, self.folder)
            return None if at_hand else f"{mark.when}: {mark.reason}".rstrip(": ")
        return None

    def _shell(self, block: Block) -> None:
        """Checks the lines of a shell block, the output below them, and its figure."""
        lines, output = split_commands(block.text)
        self.last = None
        printed = [self._command(block, line) for line in lines]
        if all(text is not None for text in printed):
            self.last = "".join(text or "" for text in printed)
        if output:
            self._compare(block.place, output)
        if block.mark.what == "draws" and self.last is not None:
            file, _, shown = block.mark.argument.partition(" as ")
            drawn = self.folder / file
            shown = shown or drawn.name
            wrong = agreement.image_difference(FIGURES / shown, drawn)
            self.report.judge(block.place, wrong, f"figure {shown}")

    def _command(
        self, block: Block, command: str, writes_only: bool = False
    ) -> str | None:
        """Returns the output of a command, or None if it is not run or fails."""
        wrong = commands.refusal(command)
        if wrong is not None:
            self.report.add(block.place, "stale", f"{command}: {wrong}")
            return None
        writes = any(flag in command for flag in WRITES) and "benchmarks" in command
        if (writes_only and not writes) or command.startswith(("make", "pip")):
            self.report.add(block.place, "accepted", command)
            return None
        reason = self._waits(block, command)
        if reason is not None:
            static = self.choice.static
            detail = command if static else f"{command} ({reason})"
            self.report.add(block.place, "accepted" if static else "skipped", detail)
            self.unrun = True
            return None
        return self._run(block.place, command, failing=False, writes=writes)

    def _run(
        self, place: str, command: str, *, failing: bool, writes: bool = False
    ) -> str | None:
        """Runs a command; returns its output, or None if it fails (or not, if `failing`)."""
        start = time.perf_counter()
        try:
            done = commands.run(command, self.folder, self.choice.seconds)
        except subprocess.TimeoutExpired:
            limit = f"more than {self.choice.seconds:g} s"
            wrong = f"{command}: {limit}; raise --limit, or mark it minutes"
            self.report.add(place, "stale", wrong, self.choice.seconds)
            return None
        seconds = time.perf_counter() - start
        if (done.returncode != 0) != failing:
            wrong = f"{command}: {commands.complaint(done)}"
            self.report.add(place, "stale", wrong, seconds)
            return None
        self.report.add(place, "ok", command, seconds)
        self.regenerated |= writes
        text = commands.printed(done)
        self.history += text
        return text

    def _python(self, block: Block) -> None:
        """Runs a Python block and compares the values in its comments."""
        self.last = None
        try:
            compile(block.text, block.place, "exec")
        except SyntaxError as error:
            self.report.add(block.place, "stale", str(error))
            return
        reason = self._waits(block)
        if reason is not None or self.session is None:
            outcome = "accepted" if self.choice.static else "skipped"
            self.report.add(block.place, outcome, f"Python ({reason})")
            self.unrun = True
            return
        start = time.perf_counter()
        request = {"code": block.text, "line": block.line}
        answer = self.session.ask(request, self.choice.seconds)
        seconds = time.perf_counter() - start
        wrong = answer["error"]
        for comment, value in answer["values"]:
            wrong = wrong or difference(comment, value)
            self.history += f"{value}\n"
        self.report.judge(block.place, wrong, "Python", seconds)
        if wrong is None:
            self.last = answer["printed"]
            self.history += answer["printed"]

    def _output_of(self, block: Block) -> None:
        """Runs the command that a mark names and compares its output."""
        command, failing = block.mark.argument, block.mark.what == "error of"
        if failing and not self.choice.static:
            self.last = self._run(block.place, command, failing=True)
        else:
            self.last = self._command(block, command)
        self._compare(block.place, block.text)

    def _compare(self, place: str, stated: str) -> None:
        """Compares a stated output with that of the last command or block."""
        if self.last is None:
            outcome = "accepted" if self.choice.static else "skipped"
            self.report.add(place, outcome, "the output of what was not run")
        else:
            self.report.judge(place, difference(stated, self.last), "output")

    def _numbers(self, block: Block) -> None:
        """Compares the numbers of a paragraph or table with those of its mark's sources."""
        known, written, complete = "", "", True
        for kind, argument in block.mark.sources:
            if kind == "numbers of":
                self.last = self._command(block, argument)
                known += f"{self.last or ''}\n"
                complete &= self.last is not None
            elif kind == "numbers in":
                missing = [n for n in argument.split() if not (ROOT / n).is_file()]
                if missing:
                    wrong = f"there is no file {missing[0]}"
                    self.report.add(block.place, "stale", wrong)
                    return
                written += "".join((ROOT / n).read_text() for n in argument.split())
            else:
                known += stated_beside(self.blocks, block.line, kind)
                if kind == "numbers above":
                    known, complete = known + self.history, complete and not self.unrun
        left = unaccounted(block.text, known, written)
        if left and not complete:
            outcome = "accepted" if self.choice.static else "skipped"
            self.report.add(block.place, outcome, "the numbers of what was not run")
            return
        wrong = f"nothing prints {', '.join(left)}" if left else None
        self.report.judge(block.place, wrong, "numbers")

    def _check_tables(self, name: str) -> None:
        """Compares generated tables, and figures that commands drew."""
        stated = agreement.find_tables(self.page.read_text())
        written = agreement.find_tables((self.folder / name).read_text())
        functions = agreement.function_tables() if stated else {}
        for block, text in stated.items():
            place = f"{name} ({block})"
            if block in functions:
                found = functions[block]()
            elif self.regenerated:
                found = written.get(block, "")
            else:
                self.report.add(place, "skipped", "no store at hand for this table")
                continue
            self.report.judge(place, agreement.table_difference(text, found), "table")
        if not self.regenerated:
            return
        for drawn in sorted((self.folder / "docs" / "figures").iterdir()):
            original = FIGURES / drawn.name
            if not original.is_file() or _same_bytes(original, drawn):
                continue
            wrong = agreement.image_difference(original, drawn)
            self.report.judge(f"{name} ({drawn.name})", wrong, "figure")


def _same_bytes(one: Path, other: Path) -> bool:
    return one.read_bytes() == other.read_bytes()


def _is_there(module: str) -> bool:
    return importlib.util.find_spec(module) is not None
