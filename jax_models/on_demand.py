"""Public names of packages, imported when the first of them is used."""

import importlib
import sys
from typing import Any


# JAX takes seconds to import. Since importing a module imports its package first, a package
# that imported JAX would delay the command line's answer to --help and to signals.
def find_public(package: str, name: str) -> Any:
    """Returns the object of a name in `package.public`, or a loaded module of the package."""
    # Tools ask any object for special names, such as __wrapped__: none of them loads JAX.
    special = name.startswith("__") and name != "__all__"
    if not special and name != "public":
        public = importlib.import_module(f"{package}.public")
        if name == "__all__" or name in public.__all__:
            return getattr(public, name)
        if f"{package}.{name}" in sys.modules:  # which it has loaded
            return sys.modules[f"{package}.{name}"]
    raise AttributeError(f"module {package!r} has no attribute {name!r}")
