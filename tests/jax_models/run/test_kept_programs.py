"""Compiled programs are kept where the flag says, whole or not at all."""

import filelock
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

import bounds
from bounds.cli.main import main
from jax_models.run import kept_programs
from jax_models.run.kept_programs import keep_programs, mend, user_folder
from tests.architecture import small_model

SETTINGS = (
    "jax_enable_compilation_cache",
    "jax_compilation_cache_dir",
    "jax_compilation_cache_max_size",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_enable_xla_caches",
    "jax_logging_level",
)


@pytest.fixture(autouse=True)
def settings(tmp_path, monkeypatch):
    """JAX as a new process of a new user has it, and as it was after the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = {name: getattr(jax.config, name) for name in SETTINGS}
    jax.config.update("jax_enable_compilation_cache", True)
    jax.config.update("jax_compilation_cache_dir", None)
    monkeypatch.setattr(kept_programs, "LEAST_SECONDS", 0.0)
    compilation_cache.reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def compute(size):
    """Compiles a program of its own, and returns what it computes."""
    return np.asarray(
        jax.jit(lambda x: jnp.cumsum(x) ** 2)(jnp.arange(size, dtype=float))
    )


def compiled_anew(size, compute=compute):
    """Returns what programs compute, and how many were compiled for it."""
    jax.clear_caches()
    missed = []
    listen = lambda event, **_: missed.append(event.endswith("cache_misses"))
    jax.monitoring.register_event_listener(listen)
    try:
        found = compute(size)
    finally:
        jax.monitoring.unregister_event_listener(listen)
    return found, sum(missed)


def programs(folder):
    return sorted(folder.glob("*-cache"))


def kept_once(folder, one, other, compute=compute):
    """Results for two sizes, the second of which compiles nothing."""
    keep_programs(str(folder))
    first, some = compiled_anew(one, compute)
    again, none = compiled_anew(other, compute)
    assert (some > 0, none) == (True, 0)
    return first, again


def test_a_program_is_compiled_once_and_computes_the_same(tmp_path):
    plain = compute(5)
    for found in kept_once(tmp_path, 5, 5):
        np.testing.assert_array_equal(found, plain)


def test_inputs_of_similar_lengths_share_programs(tmp_path):
    model = small_model()

    def ask(length):
        tokens = np.arange(length) % 2
        options = {"method": "exhaustive", "rounding": "none"}
        return bounds.compute_influence(model, tokens, **options).max

    first, again = kept_once(tmp_path, 43, 47, ask)
    assert first != again
    assert compiled_anew(49, ask)[1] > 0  # of the next bucket


def test_the_folder_is_the_users_by_default(tmp_path):
    keep_programs(None)
    assert user_folder() == tmp_path / "attention-bounds"
    assert jax.config.values["jax_compilation_cache_dir"] == str(user_folder())
    assert user_folder().stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("setting", "value"),
    [("jax_compilation_cache_dir", "/mine"), ("jax_enable_compilation_cache", False)],
)
def test_what_jax_was_told_holds(tmp_path, setting, value):
    jax.config.update(setting, value)
    before = {name: getattr(jax.config, name) for name in SETTINGS}
    keep_programs(None)
    assert {name: getattr(jax.config, name) for name in SETTINGS} == before
    assert list(tmp_path.iterdir()) == []


def test_off_keeps_nothing(tmp_path):
    keep_programs("off")
    compute(6)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_no_obstacle_unless_it_was_named(
    tmp_path, monkeypatch
):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    keep_programs(None)
    assert jax.config.values["jax_compilation_cache_dir"] is None
    with pytest.raises(OSError, match="exists"):
        keep_programs(str(tmp_path / "file"))


def test_a_folder_that_vanishes_or_fills_up_is_no_obstacle(tmp_path):
    keep_programs(str(tmp_path / "kept"))
    plain, _ = compiled_anew(7)
    for file in (tmp_path / "kept").iterdir():
        file.unlink()
    (tmp_path / "kept").rmdir()
    (tmp_path / "kept").write_text("in the way")
    found, _ = compiled_anew(7)  # a warning would be an error
    np.testing.assert_array_equal(found, plain)


def test_what_is_kept_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_programs, "MOST_BYTES", 20_000)
    keep_programs(str(tmp_path))
    sizes = []
    for size in range(8, 20):
        compiled_anew(size)
        sizes.append(sum(file.stat().st_size for file in programs(tmp_path)))
    assert max(sizes) <= 20_000
    assert sizes[-1] > 0


@pytest.mark.parametrize("share", [0, 0.5, 1])
def test_what_a_killed_process_left_is_compiled_anew(tmp_path, share):
    keep_programs(str(tmp_path))
    plain, _ = compiled_anew(30)
    for program in programs(tmp_path):
        content = program.read_bytes()
        program.write_bytes(content[: int(share * len(content))])
        program.with_name(program.name.removesuffix("cache") + "atime").unlink()
    mend(tmp_path)
    assert programs(tmp_path) == []
    found, some = compiled_anew(30)
    assert some > 0
    np.testing.assert_array_equal(found, plain)
    assert compiled_anew(30)[1] == 0


def test_a_program_that_another_process_is_writing_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_programs, "PATIENCE", 0.0)
    (tmp_path / "half-cache").write_text("")
    with filelock.FileLock(tmp_path / ".lockfile"):
        mend(tmp_path)
    assert programs(tmp_path) == [tmp_path / "half-cache"]
    mend(tmp_path)
    assert programs(tmp_path) == []


def test_a_command_keeps_programs_or_names_the_flag(tmp_path, capsys):
    kept = tmp_path / "kept"
    assert main(["sample", f"--compilation_cache={kept}", f"--out={tmp_path}"]) == 0
    assert programs(kept)
    capsys.readouterr()
    file = next(kept.iterdir())
    assert main(["sample", f"--compilation_cache={file}", f"--out={tmp_path}"]) == 1
    said = f"--compilation_cache={file}: cannot be written (File exists); name another"
    assert said in capsys.readouterr().err
