"""Public names: each is documented, and imported when it is first used."""

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import bounds
import jax_models


def public_packages():
    """Returns both packages and their subpackages that promise names."""
    found = [bounds, jax_models]
    for package in (bounds, jax_models):
        parts = pkgutil.walk_packages(package.__path__, package.__name__ + ".")
        found += [importlib.import_module(info.name) for info in parts if info.ispkg]
    return [package for package in found if hasattr(package, "__all__")]


PROMISES = [
    (package, name) for package in public_packages() for name in package.__all__
]
IDS = [f"{package.__name__}.{name}" for package, name in PROMISES]


def flaws(function, in_closed_form=False):
    """Returns what the docstring of a function lacks."""
    text = inspect.getdoc(function) or ""
    if not text:
        return ["a docstring"]
    found = []
    documented, signature = section(text, "Args"), inspect.signature(function)
    passed = signature.parameters.keys() - {"self", "cls"}
    for name in passed:
        if not re.search(rf"^\s*\*{{0,2}}{name}\b", documented, re.MULTILINE):
            found.append(f"the argument {name}")
    annotation = signature.return_annotation
    gives = annotation not in (None, "None", inspect.Signature.empty)
    # A summary that says what is returned needs no second sentence to say it again.
    says = section(text, "Returns") or text.startswith("Returns ")
    if gives and not says and passed:
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


@pytest.mark.parametrize("package", [bounds, jax_models], ids=lambda p: p.__name__)
def test_packages_alone_promise_names(package):
    """A module's names would be missing from docs/api.md."""
    modules = Path(package.__file__).parent.rglob("*.py")
    promising = {path.name for path in modules if "__all__ = " in path.read_text()}
    assert promising == {"__init__.py", "public.py"}


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


def planted(*sections):
    """A function of a length with this docstring."""

    def measure(length: int) -> int:
        return length

    measure.__doc__ = "\n\n".join(sections)
    return measure


ARGS, RETURNS = "Args:\n    length: The length.", "Returns:\n    The length."
SOURCE = "Source:\n    Hahn 2020, Lemma 5."


def test_the_check_notices_what_is_missing():
    says, commands = "Returns the length.", "Measure the length."
    assert flaws(planted(says, RETURNS)) == ["the argument length"]
    assert flaws(planted(commands, ARGS)) == ["Returns"]
    assert flaws(lambda: None) == ["a docstring"]
    assert flaws(planted(says, ARGS, RETURNS, SOURCE), in_closed_form=True) == []
    assert flaws(planted(says, ARGS, RETURNS), in_closed_form=True) == ["Source"]


def test_the_names_of_bounds_are_functions_types_and_the_recipes():
    assert dir(bounds) == sorted(bounds.__all__)
    named = {name: getattr(bounds, name) for name in dir(bounds)}
    assert [name for name, value in named.items() if not callable(value)] == ["recipes"]


PACKAGES = pytest.mark.parametrize("package", [bounds, jax_models])


@PACKAGES
def test_names_are_those_that_the_public_module_imports(package):
    public = importlib.import_module(f"{package.__name__}.public")
    assert set(package.__all__) == set(public.__all__) == set(dir(package))
    for name in public.__all__:
        assert getattr(package, name) is getattr(public, name)


@PACKAGES
def test_other_names_are_modules_or_missing(package):
    for name in ("missing", "__wrapped__"):
        with pytest.raises(AttributeError, match=f"{package.__name__}.*{name}"):
            getattr(package, name)
    assert package.public is sys.modules[f"{package.__name__}.public"]


def test_one_name_does_not_load_what_others_need():
    asked = "import sys, bounds; bounds.compute_influence; print(*sys.modules)"
    run = [sys.executable, "-c", asked]
    loaded = subprocess.run(run, check=True, capture_output=True, text=True).stdout
    assert "bounds.influence.compute" in loaded.split()
    others = "scipy.special optax jax_models.programs bounds.curves bounds.restriction"
    assert not set(others.split()) & set(loaded.split())
