"""Writes docs/api.md: the public names, by package.

`python -m benchmarks.docs_check.api_page` writes the page; the names are those of `__all__`,
the lines of the two packages the first of their docstrings.
"""

import importlib
import inspect
import pkgutil
import textwrap
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import get_args

from absl import app

import bounds
import jax_models
from benchmarks.docs_check.commands import ROOT
from bounds.store.output import write_bytes

PAGE = ROOT / "docs" / "api.md"
WIDTH = 116
HEAD = """# The public names, by module

Every name that the packages promise, by package. For people who call them from Python.

Made from `__all__` and the first lines of docstrings by
`python -m benchmarks.docs_check.api_page`; do not edit. `help(name)` in Python has formulas,
arguments with their shapes, errors and sources.
"""
BELOW = """## Packages below these
"""


def public_packages() -> Iterator[ModuleType]:
    """Yields the two packages, and their subpackages that have `__all__`."""
    for package in (jax_models, bounds):
        yield package
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if info.ispkg:
                found = importlib.import_module(info.name)
                if hasattr(found, "__all__"):
                    yield found


def first_sentence(text: str) -> str:
    """Returns the first paragraph of a docstring as one line, without a final stop."""
    paragraph = inspect.cleandoc(text).split("\n\n")[0]
    return " ".join(paragraph.split()).removesuffix(".")


def describe(value: object) -> str:
    """Returns a line on the value of a public name: its docstring, or its content."""
    if inspect.isclass(value) or inspect.isroutine(value):
        return first_sentence(value.__doc__ or "")
    if inspect.ismodule(value):
        return f"module: {first_sentence(value.__doc__ or '')}"
    if isinstance(value, dict):
        return f"table of {', '.join(f'`{key}`' for key in value)}"
    if isinstance(value, tuple | list | frozenset) and value:
        return f"the values {', '.join(f'`{entry}`' for entry in value)}"
    if isinstance(value, int | float | str):
        return f"the constant `{value}`"
    return f"one of {', '.join(f'`{part.__name__}`' for part in get_args(value))}"


def page_text() -> str:
    """Returns the text of docs/api.md; only names of the two packages have a line each."""
    parts, below = [HEAD], [BELOW]
    for package in public_packages():
        title = f"`{package.__name__}`: {first_sentence(package.__doc__ or '')}"
        values = {
            name: getattr(package, name)
            for name in sorted(package.__all__, key=str.casefold)
        }
        if package in (jax_models, bounds):
            lines = [
                f"* {_call(*item)}: {describe(item[1])}" for item in values.items()
            ]
            parts.append("\n".join([f"## {title}", "", *lines]) + "\n")
        else:
            text = f"* {title}. {', '.join(_call(*item) for item in values.items())}"
            below.append(textwrap.fill(text, WIDTH, subsequent_indent="  "))
    return "\n".join([*parts, *below]) + "\n"


def _call(name: str, value: object) -> str:
    return f"`{name}{'()' if inspect.isroutine(value) else ''}`"


def main(arguments: Sequence[str]) -> None:
    """Writes docs/api.md."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected arguments {arguments[1:]}")
    write_bytes(PAGE, page_text().encode())


if __name__ == "__main__":
    app.run(main)
