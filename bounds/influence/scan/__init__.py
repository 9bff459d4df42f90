"""What every substitution does to every row: tables, maps and what is made of them."""

from bounds.influence.scan.frobenius import Frobenius
from bounds.influence.scan.result import Scan
from bounds.influence.scan.scan import scan

__all__ = ["Frobenius", "Scan", "scan"]
