"""Options are values: those made in Python equal those read from flags."""

import pytest

from bounds.cli.main import COMMANDS
from bounds.cli.shared.groups import Figure, Lengths, Model, Stored
from bounds.cli.shared.options import (
    Declared,
    Group,
    again,
    fields_of,
    list_words,
    option,
    read_flags,
)
from bounds.numbers.notation import parse_lengths
from jax_models.errors import InputError
from jax_models.model.mask import MASKS


class TryOptions(Lengths, Model, Stored, Figure):
    """Options of a command that is none."""

    lengths: tuple[int, ...] = again(Lengths, "lengths", "4:16:3", " Few.")
    names: tuple[str, ...] | None = option(None, "Some of {words}.", ("a", "b"))
    share: float | None = option(None, "A share.", least=0.0, most=1.0)
    count: int = option(1, "How many.", least=1)
    of_names: bool = option(
        False,
        "Whether.",
        used_if=lambda one: one.names is not None,
        otherwise="is of --names",
    )


def read(*arguments):
    return TryOptions.parse(
        read_flags(fields_of(TryOptions).values(), arguments, "try")
    )


def test_defaults_and_texts_are_read_alike_in_python_and_from_flags():
    assert read() == TryOptions()
    assert TryOptions().lengths == (4, 8, 16)
    assert TryOptions().out == "results/try"
    assert TryOptions().figure_format == ("png",)
    typed = read("--lengths=2,3", "--names=b,a", "--share=0.5", "--mask=none")
    assert typed == TryOptions(lengths=(2, 3), names=("b", "a"), share=0.5, mask="none")
    assert typed == TryOptions(lengths="2,3", names="b,a", share="0.5", mask="none")  # pyright: ignore
    assert typed.given == {"lengths", "names", "share", "mask"}


def test_an_option_that_is_given_with_its_default_is_given():
    assert read("--count=1").given == {"count"}
    assert read("--count=1") == TryOptions()
    assert TryOptions(count=2).given == {"count"}


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"lengths": "3,2"}, "--lengths=3,2: lengths must increase"),
        ({"names": "c"}, "'c' is not one of a, b"),
        ({"share": 2.0}, "--share=2.0"),
        ({"count": 0}, "--count=0"),
        ({"mask": "hole"}, "--mask=hole"),
        ({"out": ""}, "--out=: it is empty"),
    ],
)
def test_what_flags_refuse_python_refuses(wrong, complaint):
    with pytest.raises(InputError, match=complaint):
        TryOptions(**wrong)


def test_an_option_that_does_not_apply_is_refused_by_name():
    with pytest.raises(InputError, match=r"^--of_names is of --names$"):
        read("--of_names").refuse_unused()
    read("--of_names", "--names=a").refuse_unused()
    read("--names=a").refuse_unused()


def test_own_options_stand_before_those_of_groups_each_once():
    names = list(fields_of(TryOptions))
    assert names[:3] == ["lengths", "names", "share"]
    assert names.index("of_names") < names.index("model") < names.index("num_layers")
    assert len(names) == len(set(names))
    assert fields_of(TryOptions)["lengths"].help.endswith(" Few.")
    assert list_words(("x", MASKS)) == ("x", *MASKS)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=lambda one: one.name)
def test_every_command_has_a_class_of_options_whose_defaults_are_read(command):
    options = command.options
    assert issubclass(options, Group)
    assert command.read([]) == options()
    assert options.COMMAND == command.name


SWEPT = ("curve", "influence", "lipschitz", "entropy", "simulate")
# Commands with flags, of which the last does not apply beside the others.
UNUSED = """
model --max_length=9
curve --bounds=none --extend_to=9
lipschitz --restarts=0 --steps=9
train --growth=0.5
entropy --dtype=float32
depth --seed=1
import --folder=x --seed=1
compile --formula=Q_a --alphabet=ab --self_test=0 --seed=1
entropy --seed=1
constants --preset=ones --seed=1
model --model=x --seed=1
curve --model=x --tokens=y --seed=1
curve --weighting=softmax --lengths=4 --ties=warn
supremum --length=4 --ties=warn
influence --length=4 --ties=warn
influence --rtol=0.1
influence --rtol=0
influence --method=partial --budget=5
influence --method=screened --propose=float32 --budget=32
influence --method=exhaustive --precision=float16
influence --propose=float32 --precision=float16
influence --target=log_probability_sum:0,0:1 --query=2
influence --target=log_probability_sum:0,0:1 --include_query
influence --weighting=leftmost_hard --temperature=2
curve --weighting=leftmost_hard,average_hard --temperature=2
scan --recipe=wild_type_marginals --num_devices=2
supremum --preset=first --length=4 --seed=7
sensitivity --preset=first --lengths=3,4 --seed=7
sensitivity --preset=first --lengths=3,4 --num_inputs=5
scan --length=4 --first_residue=5
entropy --model=m.safetensors --lengths=2,14 --num_inputs=4
entropy --model=m.safetensors --lengths=2,14 --seed=4
restrict --verify=c.json --attempts=2
restrict --verify=c.json --method=greedy
restrict --verify=c.json --pre_restriction=x.npy
restrict --verify=c.json --fresh
restrict --verify=c.json --figure_format=svg
"""


@pytest.mark.parametrize("typed", UNUSED.strip().splitlines())
def test_what_a_command_does_not_read_is_an_error_that_names_it(run, tmp_path, typed):
    command, *others, last = typed.split()
    name = last.partition("=")[0]
    run(command, *others, last).assert_refused(f"{name} ")
    COMMANDS[command].read(others)
    if command in SWEPT and name != "--seed":
        swept = [f"--command={command}", "--sweep=seed=1,2", *others, last]
        run("batch", *swept).assert_refused(f"seed=1: {name} ")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["1_6", "١٦"])
@pytest.mark.parametrize(
    "declared", [{"kind": int}, {"kind": float}, {"is_list": True}]
)
def test_digits_of_other_scripts_and_underscores_are_no_numbers(declared, text):
    one = Declared(**{"name": "n", "parser": parse_lengths, "least": 1, **declared})
    with pytest.raises(InputError, match=r"number|an integer"):
        one.read(text)
    assert one.read("16") in (16, (16,))


def test_a_count_has_a_range_with_both_ends():
    one = Declared(name="n", kind=int, least=1)
    assert one.read(str(2**31 - 1)) == 2**31 - 1
    for wrong in ("0", str(2**31)):
        with pytest.raises(InputError, match=f"^--n={wrong}: .*1, 2147483647]$"):
            one.read(wrong)
    assert [(x, y) for x in COMMANDS.values() for y in counts_without_least(x)] == []


def counts_without_least(command):
    every = fields_of(command.options).items()
    return [
        x
        for x, one in every
        if one.kind is int and (one.least, one.parser) == (None, None)
    ]
