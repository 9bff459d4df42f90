"""Mutants are one line each, parse, and stand in a copy of the tree."""

import ast
from types import SimpleNamespace

import pytest

from benchmarks import mutants
from benchmarks.script import FOLDER, read_lines, rows_of

SOURCE = """
LIMIT = 3.0

def carry(radius: "a + b", gain):
    if not radius > 0.5:
        raise ValueError(1 + 2)
    gain += 7
    carried = jnp.minimum(gain * radius, rows[1])
    return carried.max(axis=1) - gain
"""


def test_a_mutant_changes_one_node_of_arithmetic():
    found = {x["is"].strip() for x in mutants.mutants_of(SOURCE)}
    assert found == {
        "if (radius > 0.5):",
        "if not ((radius) >= (0.5)):",
        "if not radius > 0.25:",
        "pass",
        "gain += 6",
        "carried = jnp.maximum(gain * radius, rows[1])",
        "carried = jnp.minimum((gain), rows[1])",
        "carried = jnp.minimum((radius), rows[1])",
        "return (carried.max(axis=1))",
        "return carried.min(axis=1) - gain",
    }


@pytest.mark.parametrize("part", mutants.PARTS)
def test_every_mutant_is_a_program_and_another_one(part):
    place = mutants.ROOT / part
    for path in [place] if place.is_file() else sorted(place.rglob("*.py"))[::5]:
        source = path.read_text()
        found = mutants.mutants_of(source)
        for at, mutant in enumerate(found):
            lines = source.splitlines()
            assert mutant["is"] != lines[mutant["line"] - 1]
            if at % 20 == 0:
                lines[mutant["line"] - 1] = mutant["is"]
                ast.parse("\n".join(lines))


def test_the_tests_that_name_a_module_come_first():
    found = mutants.nearest_tests(
        "bounds/lemma5/certificate/order.py", "least", "tests/bounds/lemma5/certificate"
    )
    assert found[0] == "tests/bounds/lemma5/certificate/test_order.py"
    assert len(found) == len(set(found)) > 5


def test_a_mutant_is_killed_by_a_test_alone(monkeypatch, tmp_path):
    """Pytest may break for reasons of its own, a setting of the tests among them."""
    tests, module = "tests/benchmarks/test_mutants.py", tmp_path / "rule.py"
    module.write_text("LIMIT = 3\n")
    monkeypatch.setattr(mutants, "_copied_tree", lambda: SimpleNamespace(name=tmp_path))
    asked = {"module": module.name, "function": "rule", "tests": tests}
    asked |= {"line": 1, "limit": 60}
    with pytest.raises(RuntimeError, match="not found"):
        mutants.measure({**asked, "is": "LIMIT = 2"})
    (tmp_path / tests).parent.mkdir(parents=True)
    law = "def test_it(pytestconfig):\n    assert pytestconfig.cache\n"
    (tmp_path / tests).write_text(f"import rule\n{law}    assert rule.LIMIT > 2\n")
    for text, outcome in (("LIMIT = 4", "survived"), ("LIMIT = 2", "killed")):
        assert mutants.measure({**asked, "is": text})["outcome"] == outcome
    assert module.read_text() == "LIMIT = 3\n"


def test_every_stored_mutant_that_was_not_killed_has_its_reason():
    lines = read_lines(FOLDER / "long/amd-epyc-2-cores.jsonl")
    measured = rows_of(lines, "mutants")
    assert len(measured) >= 200
    for _, row in measured:
        assert row["test"] if row["outcome"] == "killed" else row["reason"]


@pytest.mark.slow
def test_a_mutant_is_killed_in_a_copy():
    path = mutants.ROOT / "bounds/numbers/rounding.py"
    before = path.read_text()
    (mutant,) = (x for x in mutants.mutants_of(before) if "lower(gamma" in x["is"])
    config = {
        "module": "bounds/numbers/rounding.py",
        "tests": "tests/bounds/numbers/test_rounding.py",
        "limit": 60,
        **mutant,
    }
    row = mutants.measure(config)
    assert row["outcome"] == "killed"
    assert "gamma_is_rounded_up" in row["test"]
    assert path.read_text() == before
