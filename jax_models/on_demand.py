"""Packages that load what they promise when it is first used.

A command answers --help and signals before JAX is there, which takes seconds to load; and
whatever a package holds can be imported only behind the package itself.
"""

import importlib
import sys
from typing import Any


def find_public(package: str, name: str) -> Any:
    """Returns a name that a package promises in its module `public`, or a module in it."""
    special = name.startswith("__") and name != "__all__"
    if not special and name != "public":
        public = importlib.import_module(f"{package}.public")
        if name == "__all__" or name in public.__all__:
            return getattr(public, name)
        if f"{package}.{name}" in sys.modules:  # which it has loaded
            return sys.modules[f"{package}.{name}"]
    raise AttributeError(f"module {package!r} has no attribute {name!r}")
