"""Help texts, from the registry, the modules' docstrings and the flags."""

import inspect
import textwrap
from collections.abc import Iterable, Mapping

from absl import flags

EXAMPLES: dict[str, tuple[str, str]] = {
    "curve": (
        "--lengths=16,64,256 --num_inputs=4 --weighting=softmax --out=results/short",
        "--model=model.safetensors --bounds=certified,closed_forms --out=results/mine",
    ),
    "influence": (
        "--length=512 --num_layers=2 --out=results/random",
        "--model=checkpoint --sequence=MKTAYIAK --query=3 --target=logits --out=results/mine",
    ),
    "scan": (
        "--length=30 --num_layers=2 --mask=none --rows=all --reduce=max --out=results/rows",
        "--model=checkpoint --sequence=MKTAYIAK --rows=3 --out=results/mine",
    ),
    "supremum": (
        "--length=100000 --num_layers=2 --out=results/lumped",
        "--model=model.safetensors --length=1000 --out=results/mine",
    ),
    "constants": (
        "--lengths=16:4096:9 --scale=0.5 --out=results/small_weights",
        "--model=model.safetensors --lengths=64,1024 --out=results/mine",
    ),
    "lipschitz": (
        "--lengths=16,64 --num_inputs=2 --out=results/short",
        "--model=model.safetensors --lengths=16:256:3 --out=results/mine",
    ),
    "sensitivity": (
        "--preset=parity --lengths=4,8,16,64 --num_inputs=4 --out=results/parity",
        "--model=model.safetensors --lengths=8:1024:8 --out=results/mine",
    ),
    "restrict": (
        "--length=64 --num_layers=2 --language=dyck1 --out=results/brackets",
        "--verify=results/brackets/certificate.json --num_layers=2 --language=dyck1 "
        "--out=results/brackets",
    ),
    "depth": (
        "--num_layers=3 --num_heads=2 --out=results/three",
        "--num_layers=2 --num_heads=1 --free=1/4 --out=results/free",
    ),
    "entropy": (
        "--language=dyck2 --p=0.25 --lengths=8,9,64,65 --out=results/brackets",
        "--model=results/trained/model.safetensors --p=0.5 --out=results/mine",
    ),
    "train": (
        "--language=parity --p=0.5 --length=10 --steps=300 --out=results/trained",
        "--language=dyck2 --length=40 --lengths=10,40,160 --out=results/brackets",
    ),
    "simulate": (
        "--preset=ones --lengths=4,8,64 --out=results/ones",
        "--model=model.safetensors --lengths=4:64:3 --out=results/mine",
    ),
    "compile": (
        "--formula='P Q_a and #<[Q_b] >= 2' --alphabet=ab --mode=FU --out=results/formula",
        "--formula='P Q_a' --alphabet=ab --mode=FU --self_test=8 --out=results/tested",
    ),
    "import": (
        "--folder=checkpoint --out=results/mine",
        "--folder=checkpoint --dtype=float64 --check=rows.safetensors --out=results/checked",
    ),
    "batch": (
        "--command=entropy --sweep language=parity,dyck2 --lengths=8,64 --out=results/sweep",
        "--command=curve --sweep seed=0..9 --sweep weighting=softmax,average_hard "
        "--out=results/seeds --dry_run",
    ),
    "model": (
        "--num_layers=2 --weighting=softmax --out=results/two",
        "--preset=parity --c=1 --out=results/parity",
    ),
    "sample": (
        "--language=parity --length=64 --num_inputs=4 --out=results/bits",
        "--language=dyck1 --length=32 --num_inputs=1 --seed=3 --out=results/brackets",
    ),
}


WIDTH = 79


def overview(program: str, commands: Mapping[str, str]) -> str:
    """Help of the program: its commands, one line each."""
    lines = [f"Usage: {program} COMMAND [--flag=value ...]", "", "Commands:"]
    lines += [f"  {name:<12}{summary}" for name, summary in commands.items()]
    lines += [
        "",
        f"{program} COMMAND --help lists the flags of a command, {program} --version "
        "the version.",
    ]
    return "\n".join(lines)


def command_usage(
    program: str,
    name: str,
    summary: str,
    module: object,
    groups: Mapping[str, Iterable[flags.Flag]],
) -> str:
    """Help of a command: summary, module docstring, flags with defaults, examples."""
    _, _, description = (inspect.getdoc(module) or "").partition("\n\n")
    parts = [f"Usage: {program} {name} [--flag=value ...]", summary]
    if description:
        parts.append(description)
    for heading, group in groups.items():
        parts.append("\n".join([f"{heading}:", *map(_entry, group)]))
    shown = [f"  {program} {name} {arguments}" for arguments in EXAMPLES[name]]
    parts.append("\n".join(["Examples:", *shown]))
    return "\n\n".join(parts)


def _entry(flag: flags.Flag) -> str:
    """Lines on one flag."""
    name = f"  --[no]{flag.name}" if flag.boolean else f"  --{flag.name}"
    default = (
        f" (default: {flag.default_as_str})" if flag.default not in (None, []) else ""
    )
    # absl appends a note to flags that may be repeated.
    help_text = (flag.help or "").partition(";\n    repeat this option")[0]
    if isinstance(flag.parser, flags.EnumParser):
        # absl puts the choices before the text, as one word.
        choices, _, rest = help_text.partition(">: ")
        help_text = f"{rest} One of {', '.join(flag.parser.enum_values)}."
        assert choices.startswith("<"), flag.name
    text = textwrap.fill(
        f"{help_text}{default}",
        WIDTH,
        initial_indent=" " * 6,
        subsequent_indent=" " * 6,
        break_on_hyphens=False,
    )
    return f"{name}\n{text}"
