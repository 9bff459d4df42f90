"""Prints the tables of the audit of the printed proof of Lemma 5."""

from bounds.lemma5.audit import all_findings, findings_table, harmonic_table

if __name__ == "__main__":
    print(findings_table(all_findings()), harmonic_table(), sep="\n\n")
