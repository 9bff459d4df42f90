"""What the tests of the commands share: a run, and small models as files."""

import csv
import dataclasses
import json
from pathlib import Path

import jax
import pytest
from matplotlib.figure import Figure

import jax_models as jm
from bounds.cli.main import main
from jax_models.languages import get_source
from jax_models.run.device_memory import device_bytes
from tests.architecture import with_architecture
from tests.bounds.cli.outputs import FILES, NAMES, QUICK, SHAPE, TOKENS, find_words
from tests.bounds.entropy.floor_models import random_model
from tests.jax_models.format.pretrained.folders import copied

PNG = b"\x89PNG"


@dataclasses.dataclass
class Run:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    def done(self):
        """The command ended with exit code 0 and had nothing to warn of; returns itself."""
        assert (self.code, self.err) == (0, "")
        return self

    def assert_refused(self, complaint):
        """The command ended with exit code 1 and one line that has the complaint."""
        assert self.code == 1, self.err
        assert self.err.startswith("attention-bounds: ")
        assert self.err.count("\n") == 1, self.err
        assert self.err.endswith("\n")
        assert len(self.err) < 1100
        assert "int()" not in self.err  # in Python's words
        assert complaint in self.err


def undescribed(folder):
    """Returns columns and keys of results of which docs/columns.md says nothing."""
    found = []
    for path in folder.glob("*/*"):
        if path.name in FILES:
            with path.open(newline="") as file:
                names = (
                    next(csv.reader(file)) if path.suffix == ".csv" else json.load(file)
                )
            found += [(path.name, x) for x in names if find_words(path.name, x) is None]
    return found


@pytest.fixture(scope="module", autouse=True)
def coarse_figures():
    """Draw figures in few points: fine ones take most of a small command's time."""
    savefig = Figure.savefig
    coarse = {"dpi": 30, "bbox_inches": None}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda *a, **k: savefig(*a, **(k | coarse)))
        yield


@pytest.fixture
def no_figures(monkeypatch):
    """Write no picture into a PNG file, where another test draws the same."""
    savefig = Figure.savefig

    def save(figure, file, **how):
        return (
            file.write(PNG) if how["format"] == "png" else savefig(figure, file, **how)
        )

    monkeypatch.setattr(Figure, "savefig", save)


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Run a command in an empty folder, or over what another run left there."""
    monkeypatch.chdir(tmp_path)
    # Kept for the process, whatever memory a test says that there is.
    device_bytes(jax.devices()[0])

    def run_command(name, *arguments):
        code = main([name, "--overwrite", *map(str, arguments)])
        if code == 0:
            assert undescribed(Path("results")) == []
        captured = capsys.readouterr()
        return Run(code, captured.out, captured.err)

    return run_command


@pytest.fixture
def make_model():
    """Draw a small random model in float64."""

    def make(**options):
        options = {**SHAPE, "vocab_size": 2, "dtype": "float64", **options}
        return jm.random_transformer(
            jax.random.key(options.pop("key", 0)), **with_architecture(**options)
        )

    return make


@pytest.fixture
def model_file(tmp_path, make_model):
    """Write a small random model to a file."""

    def write(name="model.safetensors", **options):
        path = tmp_path / name
        jm.save(make_model(**options), path)
        return path

    return write


@pytest.fixture
def tokens_file(tmp_path):
    """Write an input over three symbols."""
    path = tmp_path / "tokens.txt"
    path.write_text("\n".join(map(str, TOKENS)))
    return path


@pytest.fixture
def folder(tmp_path):
    """A checkpoint with its vocabulary."""
    found = copied("bert", tmp_path)
    (found / "vocab.txt").write_text("\n".join(NAMES))
    return found


@pytest.fixture
def ask(run, folder):
    """Run `influence` on the folder."""
    return lambda *flags: run("influence", f"--model={folder}", *QUICK, *flags)


@pytest.fixture
def parity_file(tmp_path):
    """Write a random model that predicts the next symbol of PARITY."""
    path = tmp_path / "parity.safetensors"
    jm.save(random_model(get_source("parity", 0.25)), path)
    return path
