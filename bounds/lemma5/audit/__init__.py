"""The audit of the printed proof of Lemma 5: `python -m bounds.lemma5.audit` prints it.

One module per step that fails. Each computes both sides of the printed inequality in an
explicit model, the left one exactly (60 digits, equal keys lumped), the right one from
the printed constants of `bounds.lemma5.closed_form`.
"""

from bounds.lemma5.audit.finding import Finding
from bounds.lemma5.audit.table import all_findings, findings_table, harmonic_table

__all__ = ["Finding", "all_findings", "findings_table", "harmonic_table"]
