"""Public names of packages, each imported when it is first used."""

import ast
import functools
import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from jax_models.errors import InputError


# JAX takes seconds to import. Since importing a module imports its package first, a package
# that imported JAX would delay the command line's answer to --help and to signals; and who
# asks for one name would wait for the modules of all.
def find_public(package: str, name: str) -> Any:
    """Returns the object that `package.public` imports by a name, or a module."""
    module = sys.modules[package]
    origin = _origins(package)
    if name == "__all__":
        return sorted(origin)
    if name in origin and origin[name] != package:
        found = getattr(importlib.import_module(origin[name]), name)
        setattr(module, name, found)
        return found
    # Tools ask any object for special names, such as __wrapped__.
    if not name.startswith("__") and importlib.util.find_spec(f"{package}.{name}"):
        return importlib.import_module(f"{package}.{name}")
    raise AttributeError(f"module {package!r} has no attribute {name!r}")


@functools.cache
def _origins(package: str) -> dict[str, str]:
    """Modules that `package.public` imports its public names from, by name."""
    # Read and not run: it imports all of them, for type checkers.
    source = Path(*sys.modules[package].__path__, "public.py").read_text("utf-8")
    imports = (x for x in ast.parse(source).body if isinstance(x, ast.ImportFrom))
    return {name.name: str(x.module) for x in imports for name in x.names}


def require_package(name: str, purpose: str) -> Any:
    """Imports an optional package; `InputError`, with `purpose`, if it is missing."""
    top = name.partition(".")[0]
    if importlib.util.find_spec(top) is None:
        raise InputError(
            f"{purpose} needs the package {top}, which is not installed; install it "
            f"with: pip install {top}"
        )
    return importlib.import_module(name)
