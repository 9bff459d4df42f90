"""The shape of the code: who may import whom, how long a module is, its name."""

import ast
import functools
import graphlib
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("jax_models", "bounds")
# Top-level packages that a module must not import, by the beginning of its name.
FORBIDDEN = {
    "jax_models": {"bounds", "benchmarks", "tests"},
    "bounds": {"benchmarks", "tests"},
    "benchmarks": {"tests"},
}
# Closed forms, in folders of this name, take numbers: neither they nor what they import
# may reach the others.
NUMBERS_ONLY = "closed_form"
BEYOND_NUMBERS = {"jax", "jax_models"}
# The checker of restrictions is independent of the search: what it reaches of that
# package is its own.
SEARCH = "bounds.restriction"
CHECKER = ("bounds.restriction.checker", "bounds.restriction.checking")
# Who knows absl's flags: what makes them of options, and reads them where a run begins.
FLAGS = {"bounds.cli.shared.options"}
NAMELESS = {"util", "utils", "helper", "helpers", "common", "misc"}
MAX_LINES, MEDIAN_LINES, MAX_MODULES = 600, 200, 20


def modules(*packages):
    """Returns the dotted names of all modules of packages, with their files."""
    found = {}
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(p for p in parts if p != "__init__")] = path
    return found


def imports(name, source, is_package=False):
    """Returns the dotted names that a module's source imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = name.split(".")
            if node.level:
                base = base[: len(base) - node.level + is_package]
                prefix = ".".join([*base, *([node.module] if node.module else [])])
            else:
                prefix = node.module or ""
            found.add(prefix)
            found.update(f"{prefix}.{alias.name}" for alias in node.names)
    return found


def is_within(name, package):
    return name == package or name.startswith(package + ".")


def forbidden(name, imported):
    """Returns the imports of a module that the rule forbids."""
    wrong = {
        one
        for owner, others in FORBIDDEN.items()
        if is_within(name, owner)
        for one in imported
        if one.split(".")[0] in others
    }
    if is_within(name, "bounds") and NUMBERS_ONLY in name.split("."):
        wrong |= {
            one for one in reached(imported) if one.split(".")[0] in BEYOND_NUMBERS
        }
    if any(is_within(name, part) for part in CHECKER):
        wrong |= {
            one
            for one in reached(imported)
            if is_within(one, SEARCH)
            and not any(is_within(one, part) for part in CHECKER)
        }
    return wrong


def reached(imported):
    """Returns imports together with what the modules of `bounds` among them import."""
    found, waiting = set(), set(imported)
    while waiting:
        one = waiting.pop()
        found.add(one)
        # The package itself is passed by: whoever imports a part of it loads it, and
        # it gathers everything.
        if one in ALL and is_within(one, "bounds") and one != "bounds":
            waiting |= own_imports(one) - found
    return found


@functools.cache
def own_imports(name):
    """Returns what a module of this tree imports."""
    return imports(name, ALL[name].read_text(), ALL[name].name == "__init__.py")


ALL = modules(*PACKAGES, "benchmarks", "tests")


def test_imports_point_downwards():
    found = {name: x for name in ALL if (x := forbidden(name, own_imports(name)))}
    assert found == {}


FORM, MASK = "bounds.lemma5.closed_form.stack", "jax_models.model.mask"
LAYER = "bounds.restriction.checking.layer"


PLANTED = [
    (MASK, "import bounds"),
    (MASK, "def f():\n    from bounds.store.results import read_store"),
    ("bounds.curves.curve", "from benchmarks import flags"),
    (FORM, "import jax.numpy as jnp"),
    ("bounds.entropy.closed_form.stack", "import jax.numpy as jnp"),
    (FORM, "from jax_models import Transformer"),
    (FORM, "from bounds.curves.inputs import GivenInputs"),
    (FORM, "from bounds.curves import inputs"),
    (FORM, "from ...curves import inputs"),
    ("bounds.restriction.checker", "from bounds.restriction import search"),
    ("bounds.restriction.checker", "import bounds.restriction.search"),
    (LAYER, "from .. import search"),
    (LAYER, "from bounds.restriction.tables import T"),
]
ALLOWED = [
    (FORM, "import mpmath\nfrom bounds.numbers.bound import Bound"),
    (FORM, "from bounds.numbers import bound"),
    (FORM, "from . import dispatch"),
    ("bounds.curves.curve", "import jax\nimport jax_models as jm"),
    (MASK, "from . import position\nimport numpy"),
    ("bounds.restriction.checker", "from bounds.restriction.checking import claim"),
    (LAYER, "from . import tables"),
]


@pytest.mark.parametrize(("name", "source"), PLANTED + ALLOWED)
def test_the_rule_catches_planted_imports_and_lets_others_pass(name, source):
    caught = forbidden(name, imports(name, source))
    assert bool(caught) == ((name, source) in PLANTED)


def test_the_two_packages_have_modules():
    assert len(modules("bounds")) > 10
    assert len(modules("jax_models")) > 10


def test_no_module_is_long():
    lines = {name: len(path.read_text().splitlines()) for name, path in ALL.items()}
    assert not {name: count for name, count in lines.items() if count > MAX_LINES}
    assert statistics.median(lines[name] for name in modules(*PACKAGES)) < MEDIAN_LINES


def test_no_folder_has_many_modules():
    folders = Counter(path.parent for path in modules(*PACKAGES).values())
    assert {path: n for path, n in folders.items() if n > MAX_MODULES} == {}


def circle(imported):
    """Returns modules that import one another in a circle, or none."""
    try:
        graphlib.TopologicalSorter(imported).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def modules_imported():
    """Returns the modules of the packages that each of them imports, anywhere in it."""
    found = {}
    for name, path in modules(*PACKAGES).items():
        names = own_imports(name) & set(ALL)
        # A package that only gathers names is no part of a circle.
        found[name] = {one for one in names if not is_within(name, one)}
        if path.name == "__init__.py":
            found[name] -= {one for one in names if is_within(one, name)}
    return found


def test_no_imports_go_in_a_circle():
    found = modules_imported()
    assert circle(found) == []
    found["jax_models.errors"].add("jax_models.public")
    assert "jax_models.errors" in circle(found)


def test_every_module_has_a_name_of_its_own():
    assert not [name for name in ALL if NAMELESS & set(name.split("."))]


def test_flags_are_read_where_a_command_begins_and_options_are_handed_on():
    found = {name for name in modules("bounds") if "absl.flags" in own_imports(name)}
    assert found == FLAGS


def commands(source):
    """Returns the names of functions whose docstring tells the reader to return."""
    defined = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, defined)
        and (ast.get_docstring(node) or "").startswith("Return ")
    ]


def test_docstrings_say_what_a_function_returns_in_one_mood():
    planted = 'class C:\n    def f(self):\n        """Return 1."""\n        return 1\n'
    assert commands(planted) == ["f"]
    assert [name for name, path in ALL.items() if commands(path.read_text())] == []


def test_importing_changes_no_global_state_and_loads_no_figures():
    """Neither flags, nor precision, nor a device, nor Matplotlib."""
    code = """
import sys
import jax
from absl import flags
before = set(flags.FLAGS)
import optax, chex, safetensors
libraries = set(flags.FLAGS)
import bounds, jax_models
assert set(flags.FLAGS) == libraries, set(flags.FLAGS) - libraries
assert not jax.config.jax_enable_x64
assert "matplotlib" not in sys.modules
from jax._src import xla_bridge
assert not xla_bridge._backends, "a device was asked for"
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_a_program_started_in_another_folder_runs_this_checkout(tmp_path):
    code = "import importlib.util as u; print(u.find_spec('bounds').origin)"
    line = [sys.executable, "-c", code]
    found = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
    assert found.stdout.strip() == str(ROOT / "bounds" / "__init__.py"), found.stderr
