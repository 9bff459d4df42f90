"""What all benchmarks are told in tests, where one run is enough."""

from typing import Any

ONCE: dict[str, Any] = {"dtype": "float64", "seed": 0, "repeats": 1, "budget": 0.0}
