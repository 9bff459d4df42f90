"""Every promised name is documented: what it is, what it takes, what it gives."""

import importlib
import inspect
import pkgutil
import re

import pytest

import bounds
import jax_models


def public_packages():
    """Returns both packages and their subpackages that promise names."""
    found = []
    for package in (bounds, jax_models):
        found.append(package)
        for info in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if info.ispkg:
                found.append(importlib.import_module(info.name))
    return [package for package in found if hasattr(package, "__all__")]


PROMISES = [
    (package, name) for package in public_packages() for name in package.__all__
]
IDS = [f"{package.__name__}.{name}" for package, name in PROMISES]


def parameters(function):
    """Returns the names that a caller passes."""
    return [
        name
        for name in inspect.signature(function).parameters
        if name not in ("self", "cls")
    ]


def flaws(function, in_closed_form=False):
    """Returns what the docstring of a function lacks."""
    text = inspect.getdoc(function) or ""
    if not text:
        return ["a docstring"]
    found = []
    documented = section(text, "Args")
    for name in parameters(function):
        if not re.search(rf"^\s*\*{{0,2}}{name}\b", documented, re.MULTILINE):
            found.append(f"the argument {name}")
    annotation = inspect.signature(function).return_annotation
    gives = annotation not in (None, "None", inspect.Signature.empty)
    # A summary that says what is returned needs no second sentence to say it again.
    says = section(text, "Returns") or text.startswith("Returns ")
    if gives and not says and parameters(function):
        found.append("Returns")
    if in_closed_form and not section(text, "Source"):
        found.append("Source")
    return found


def section(text, name):
    """Returns the lines under a heading of a Google docstring."""
    match = re.search(rf"^{name}:\n((?:[ \t]+.*\n?|\n)+)", text, re.MULTILINE)
    return match.group(1) if match else ""


def test_the_packages_promise_names():
    assert len(PROMISES) > 20


@pytest.mark.parametrize("package", public_packages(), ids=lambda p: p.__name__)
def test_promises_are_sorted_and_made_once(package):
    assert len(set(package.__all__)) == len(package.__all__)


@pytest.mark.parametrize(("package", "name"), PROMISES, ids=IDS)
def test_a_promised_function_or_class_is_documented(package, name):
    promised = getattr(package, name)
    if inspect.isfunction(promised):
        assert not flaws(promised, "closed_form" in package.__name__)
    elif inspect.isclass(promised):
        assert (promised.__doc__ or "").strip()
        # The text that dataclasses make up is no documentation.
        assert not (promised.__doc__ or "").startswith(promised.__name__ + "(")


CLASSES = {
    getattr(package, name)
    for package, name in PROMISES
    if inspect.isclass(getattr(package, name))
}


@pytest.mark.parametrize("promised", sorted(CLASSES, key=str), ids=lambda c: c.__name__)
def test_the_public_methods_of_a_promised_class_are_documented(promised):
    for name, method in vars(promised).items():
        if not name.startswith("_") and inspect.isfunction(method):
            assert inspect.getdoc(method), name


def _lacks_an_argument(length: int) -> int:
    """Returns the length.

    Returns:
        The length.
    """
    return length


def _lacks_returns(length: int) -> int:
    """Measure the length.

    Args:
        length: The length.
    """
    return length


def _is_complete(length: int) -> int:
    """Returns the length.

    Args:
        length: The length.

    Returns:
        The length.

    Source:
        Hahn 2020, Lemma 5.
    """
    return length


def test_the_check_notices_what_is_missing():
    assert flaws(_lacks_an_argument) == ["the argument length"]
    assert flaws(_lacks_returns) == ["Returns"]
    assert flaws(lambda: None) == ["a docstring"]
    assert flaws(_is_complete, in_closed_form=True) == []
    _is_complete.__doc__ = (inspect.getdoc(_is_complete) or "").split("\nSource:")[0]
    assert flaws(_is_complete, in_closed_form=True) == ["Source"]


def test_the_names_of_bounds_are_functions_types_and_the_recipes():
    assert dir(bounds) == sorted(bounds.__all__)
    named = {name: getattr(bounds, name) for name in dir(bounds)}
    assert [name for name, value in named.items() if not callable(value)] == ["recipes"]
