"""Every option of a command that applies is read by it, as a run shows."""

import pytest

from bounds.cli import model
from bounds.cli.model import ModelOptions
from bounds.cli.shared.options import Group, fields_of, option

# What the entry point and the runner read, and a writer of files, among all values.
RUNNER = {"out", "overwrite", "fresh", "figure_format", "max_seconds", "retry_failed"}
RUNNER |= {"figure"}
RUNS = {
    "curve": "--lengths=4 --num_inputs=1 --weighting=average_hard",
    "influence": "--length=4 --num_heads=1 --d_model=4",
    "scan": "--length=4 --num_heads=1 --d_model=4",
    "supremum": "--length=4 --num_heads=1 --d_model=4",
    "constants": "--lengths=4 --num_heads=1",
    "lipschitz": "--lengths=4 --num_inputs=1 --restarts=1 --steps=1 --d_model=4",
    "sensitivity": "--lengths=4 --d_model=4 --form=sign --target=logit_difference:0:1",
    "restrict": "--length=6 --d_model=4",
    "depth": "--num_layers=1 --num_heads=1",
    "entropy": "--lengths=2",
    "train": "--length=3 --steps=1 --lengths=3 --num_inputs=2 --d_model=4 --d_ff=4",
    "simulate": "--lengths=12 --num_inputs=1 --d_model=4",
    "compile": "--formula=Q_a --alphabet=ab --self_test=1",
    "model": "--d_model=4",
    "sample": "--length=4",
    "batch": "--command=entropy --lengths=2 --sweep=p=0.2,0.3",
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
    ended = run(command, *RUNS[command].split())
    assert ended.code == 0, ended.err
    assert unread() == set()


def test_an_option_that_is_not_read_is_found(run, monkeypatch, unread):
    class Longer(ModelOptions):
        planted: int = option(1, "Read by nobody.", least=1)

    monkeypatch.setattr("bounds.cli.model.ModelOptions", Longer)
    assert "plan" in vars(model)
    assert run("model", "--d_model=4").code == 0
    assert unread() == {"planted"}
