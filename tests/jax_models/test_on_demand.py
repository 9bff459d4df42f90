"""Public names are imported one by one, when they are first used."""

import importlib
import subprocess
import sys

import pytest

import bounds
import jax_models

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
