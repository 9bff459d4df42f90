"""Scans: the changes of rows by every substitution, as tables, maps and reductions."""

from bounds.influence.scan.frobenius import Frobenius
from bounds.influence.scan.result import Scan
from bounds.influence.scan.scan import scan

__all__ = ["Frobenius", "Scan", "scan"]
