"""The audit of the printed proof of Lemma 5: `python -m bounds.lemma5.audit` prints it.

For every step that fails both sides of the printed inequality are computed in an explicit
model, the left one exactly (60 digits, equal keys lumped), the right one from the printed
constants of `bounds.lemma5.closed_form`.
"""

from bounds.lemma5.audit.steps import (
    Finding,
    all_findings,
    findings_table,
    harmonic_table,
)

__all__ = ["Finding", "all_findings", "findings_table", "harmonic_table"]
