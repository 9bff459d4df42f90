"""The audit as Markdown tables; docs/lemma5-audit.md holds exactly these."""

from collections.abc import Sequence

from bounds.lemma5.audit.finding import Finding
from bounds.lemma5.audit.steps import (
    DEPTHS,
    activation_norm_findings,
    causal_mask_findings,
    growth_constant_findings,
    harmonic_rows,
    many_heads_findings,
    own_position_findings,
    tight_norm_findings,
    weight_change_findings,
)

_STEPS = (
    activation_norm_findings,
    weight_change_findings,
    own_position_findings,
    many_heads_findings,
    tight_norm_findings,
    growth_constant_findings,
    causal_mask_findings,
)


def all_findings() -> tuple[Finding, ...]:
    """Compute every finding.

    Returns:
        The findings in the order of the printed proof.
    """
    return tuple(finding for step in _STEPS for finding in step())


def findings_table(findings: Sequence[Finding]) -> str:
    """Set findings as a table: the inequality, the model, both sides, the verdict.

    Args:
        findings: The lines, in order.

    Returns:
        A Markdown table without a final newline.
    """
    rows = [
        (
            finding.step,
            finding.printed,
            finding.model,
            f"{float(finding.left):.5g}",
            f"{float(finding.right):.5g}" if finding.right else "→ 0",
            f"{finding.ratio:.5g}" if finding.right else "",
            "holds" if finding.holds else "**false**",
        )
        for finding in findings
    ]
    header = ("step", "printed", "model", "left", "right", "left/right", "verdict")
    return _markdown(header, rows)


def harmonic_table() -> str:
    """Set n times the influence under uniform causal averaging as a table.

    Returns:
        A Markdown table without a final newline, one line per length.
    """
    header = ("n", *(f"L = {depth}" for depth in DEPTHS))
    rows = [
        (str(n), *(f"{value:.5g}" for value in values)) for n, values in harmonic_rows()
    ]
    return _markdown(header, rows)


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
