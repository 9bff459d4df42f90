"""Every option of a command that applies is read by it, as a run shows."""

import pytest

from bounds.cli import model
from bounds.cli.model import ModelOptions
from bounds.cli.shared.options import Group, fields_of, option
from tests.bounds.cli.outputs import CURVE, EVERY, SHAPE_FLAGS

# What the entry point and the runner read, and a writer of files, among all values.
RUNNER = {"out", "overwrite", "fresh", "figure_format", "max_seconds", "retry_failed"}
RUNNER |= {"figure"}
# Of more inputs than are listed, and with options that have a default of their own.
RUNS = {x: flags for x, flags in EVERY.items() if x != "import"} | {
    "curve": [*SHAPE_FLAGS, *CURVE.split(), "--weighting=average_hard"],
    "lipschitz": [*EVERY["lipschitz"], "--restarts=1", "--steps=1"],
    "sensitivity": [*EVERY["sensitivity"], "--target=logit_difference:0:1"],
    "simulate": [*SHAPE_FLAGS, "--lengths=12", "--num_inputs=1"],
}


@pytest.fixture
def unread(monkeypatch):
    """Options of a command that a run of it does not read, though they apply."""
    read, parsed, quiet = set(), [], []
    plain, parse = Group.__getattribute__, Group.parse.__func__

    def noting(self, name):
        if not quiet and name in fields_of(type(self)):
            read.add(name)
        return plain(self, name)

    def unnoted(method):
        def call(*given):
            quiet.append(method)
            try:
                return method(*given)
            finally:
                quiet.pop()

        return call

    def kept(cls, values):
        parsed.append(parse(cls, values))
        return parsed[-1]

    monkeypatch.setattr(Group, "__getattribute__", noting)
    monkeypatch.setattr(Group, "parse", classmethod(kept))
    for name in ("__post_init__", "values", "refuse_unused"):
        monkeypatch.setattr(Group, name, unnoted(getattr(Group, name)))

    def found():
        options = parsed[0]
        every = fields_of(type(options)).values()
        used = (x.name for x in every if not x.used_if or x.used_if(options))
        quiet.append(None)  # the predicates read, too
        return set(used) - read - RUNNER

    return found


@pytest.mark.parametrize("command", RUNS)
def test_every_option_that_applies_is_read(run, unread, command):
    run(command, *RUNS[command]).done()
    assert unread() == set()


def test_an_option_that_is_not_read_is_found(run, monkeypatch, unread):
    class Longer(ModelOptions):
        planted: int = option(1, "Read by nobody.", least=1)

    monkeypatch.setattr("bounds.cli.model.ModelOptions", Longer)
    assert "plan" in vars(model)
    assert run("model", "--d_model=4").code == 0
    assert unread() == {"planted"}
