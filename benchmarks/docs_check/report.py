"""Findings of a check of the documentation, one for each thing that was checked."""

import dataclasses
from collections.abc import Iterator

OUTCOMES = ("ok", "accepted", "skipped", "stale")


@dataclasses.dataclass(frozen=True)
class Finding:
    """Result of checking one block, command, table, figure or paragraph.

    Attributes:
        place: File and line.
        outcome: "ok" (run, and as stated), "accepted" (its flags and names exist; not
            run), "skipped" (not run, for the reason in `detail`) or "stale".
        detail: Description of the thing that was checked, or of its fault.
        seconds: How long it ran.
    """

    place: str
    outcome: str
    detail: str
    seconds: float = 0.0

    def __str__(self) -> str:
        """The finding as one line."""
        took = f" ({self.seconds:.1f} s)" if self.seconds >= 0.05 else ""
        return f"{self.outcome:8s} {self.place}: {self.detail}{took}"


class Report:
    """The findings of a run; stale and skipped ones are printed, with `verbose` all."""

    def __init__(self, verbose: bool = False) -> None:
        """Starts without findings."""
        self.findings: list[Finding] = []
        self._verbose = verbose

    def add(self, place: str, outcome: str, detail: str, seconds: float = 0.0) -> None:
        """Adds a finding, and prints it if it is skipped or stale, or if `verbose`."""
        finding = Finding(place, outcome, detail, seconds)
        self.findings.append(finding)
        if self._verbose or outcome in ("skipped", "stale"):
            print(finding, flush=True)

    def judge(
        self, place: str, wrong: str | None, right: str, seconds: float = 0.0
    ) -> None:
        """Adds a finding: "stale" with `wrong`, or "ok" with `right` if `wrong` is None."""
        outcome, detail = ("ok", right) if wrong is None else ("stale", wrong)
        self.add(place, outcome, detail, seconds)

    def of(self, outcome: str) -> Iterator[Finding]:
        """Yields the findings of one outcome."""
        return (finding for finding in self.findings if finding.outcome == outcome)

    def summary(self) -> str:
        """Returns the number of findings by outcome and the total seconds, in one line."""
        counts = (f"{len(list(self.of(name)))} {name}" for name in OUTCOMES)
        seconds = sum(finding.seconds for finding in self.findings)
        return f"{', '.join(counts)}; programs ran for {seconds:.0f} s"
