"""Runs of `influence` and `scan`: the work on each input in parts, on many devices.

A request asks for the output's changes by substitutions at the positions of an input. A
part is a block of positions whose changes are computed and stored together. A subject
is a model, its inputs and the options of a measurement. A scan is the table of the
changes, a recipe a scan with the settings of a published map or score. A record is one
of several inputs in a FASTA file, the query the position whose output is read.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Int

import jax_models as jm
from bounds.cli.shared.groups import OneInput
from bounds.cli.shared.input_source import open_tokenizer
from bounds.cli.shared.platforms import prepare_jax, request_platform
from bounds.cli.shared.runner import Exports, Rows, Work, quiet_ties
from bounds.cli.shared.subject import read_one
from bounds.curves.measurement import Subject
from bounds.influence.build import TableOptions
from bounds.influence.method import Rounding
from bounds.influence.parts import Parts, error_columns, follow_parts, run_parts
from bounds.influence.report import InputWords, describe_parts
from bounds.influence.table.lines import Named
from bounds.influence.targets.base import Target
from bounds.influence.targets.table import as_value, number_symbol, target_key
from bounds.recipes.question import Recipe
from bounds.recipes.table import plan_recipe
from bounds.store.results import ResultStore
from bounds.version import __version__
from jax_models.arguments import show
from jax_models.errors import InputError, errors_of
from jax_models.format.input_files import fasta_names, read_candidates
from jax_models.run.mesh import count_devices, device_mesh
from jax_models.run.platform import require_platform
from jax_models.run.processes import PATIENCE, connect_processes, explained_loss
from jax_models.run.progress import Progress

# Flags of several processes, which are given together.
CLUSTER = ("coordinator", "num_processes", "process_id")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """Request: model, input and options of `influence` or, with a table, of `scan`."""

    subject: Subject
    folder: Path  # of unfinished work, where the method keeps some
    tokenizer: jm.Tokenizer | None
    # Padded with -1; None is all.
    symbols: Int[np.ndarray, "*tokens symbols"] | None
    positions: Sequence[int] | None  # those changed; None is all
    rounding: Rounding  # results with radii
    include_query: bool = False  # the query's own token is changed too
    table: TableOptions | None = None  # as in `bounds.scan`
    recipe: Recipe | None = None
    record: str | None = None  # name of the input among several

    @property
    def tokens(self) -> Int[np.ndarray, "tokens"]:
        """Tokens of the one input."""
        return self.subject.tokens

    @property
    def words(self) -> InputWords:
        """Names of positions and symbols of the input, for reports."""
        name = self.tokenizer and self.tokenizer.name
        return InputWords(self.tokens, name, self.subject.model.special or ())

    @property
    def target(self) -> Target:
        """Quantity of the output whose changes are computed."""
        return as_value(self.subject.question.target)

    def plan(self, mesh: Mesh | None = None) -> Parts:
        """Division of the request into parts, for all positions; computes nothing."""
        symbols, positions = self.symbols, self.positions
        if symbols is not None and symbols.ndim == 2 and positions is not None:
            symbols = symbols[np.asarray(positions, np.int64)]
        question = self.subject.question
        whole = question.request(
            self.subject.model,
            self.tokens,
            mesh,
            symbols=symbols,
            positions=positions,
            include_query=self.include_query,
            table=self.table,
        )
        named = {
            "command": "influence" if self.table is None else "scan",
            "seed": self.subject.seed,
            "target": target_key(question.target),
            **self.subject.hashes,
        }
        if self.table is not None:
            named |= {"target_symbols": self.table.target_symbols}
            named |= {"reduce": self.table.reduce}
        asked = question.method, self.rounding, question.ties
        return Parts.plan(whole, *asked, named, self.folder)

    def by_recipe(self, name: str, **given: Any) -> Self:
        """Request with the settings of the recipe `name`; `given` are its options."""
        if self.symbols is not None:
            given["symbols"] = self.symbols.ravel().tolist()
        if self.positions is not None:
            given["positions"] = self.positions
        subject, tokenizer = self.subject, self.tokenizer
        recipe = plan_recipe(name, subject.model, self.tokens, tokenizer, **given)
        question = dataclasses.replace(subject.question, target=recipe.target)
        return dataclasses.replace(
            self,
            subject=dataclasses.replace(subject, question=question),
            table=recipe.table,
            positions=recipe.positions,
            symbols=None if recipe.symbols is None else np.asarray(recipe.symbols),
            recipe=recipe,
        )

    def describe(self, found: Parts) -> list[str]:
        """Lines of a dry run: versions, devices, model, input, parts of the request."""
        model, whole, recipe = self.subject.model, found.whole, self.recipe
        query = f"query {whole.query}, " if whole.layout is None else ""
        watched = self.target.name if recipe is None else recipe.label
        return [
            *([] if self.record is None else [f"record {self.record}:"]),
            f"version {__version__}, jax {jax.__version__}, {count_devices(whole.mesh)} of "
            f"{jax.device_count()} devices: {jax.devices()[0].device_kind}",
            f"model: {len(model.layers)} layers, d = {model.width}, "
            f"V = {model.vocab_size}, {np.dtype(model.dtype).name}; "
            f"n = {len(self.tokens)}, {query}{watched}",
            # Of several records, which share scan.csv, there is no scan.npz.
            *describe_parts(found, recipe, has_arrays=self.record is None),
        ]


def read_asked(options: OneInput, first: Subject | None = None) -> Asked:
    """Request of the flags; reuses `first`, the subject of a file's first record."""
    prepare_jax(options)
    subject = read_one(options, first)
    tokenizer = open_tokenizer(options)
    tokens, special = subject.tokens, subject.model.special
    plain = np.flatnonzero(~np.isin(tokens, special or ())).tolist()
    return Asked(
        subject=subject,
        folder=Path(options.out),
        tokenizer=tokenizer,
        symbols=_read_substitutes(options, subject.model, tokenizer, tokens.size),
        positions=plain if special else None,
        rounding=options.rounding,
    )


def _read_substitutes(
    options: OneInput,
    model: jm.Transformer,
    tokenizer: jm.Tokenizer | None,
    length: int,
) -> Int[np.ndarray, "*tokens symbols"] | None:
    """Ids of the substitutes that the flags list, padded with -1; None for all."""
    where, listed = options.candidates, options.symbols
    if listed is not None:
        where = "--symbols"
        symbols = [number_symbol(name, tokenizer, where) for name in listed]
        found = np.array(symbols, object)
    elif where is None:
        return None
    else:
        numbered = lambda name: number_symbol(name, tokenizer, where)
        found = read_candidates(where, length, numbered)
    every = range(model.vocab_size)
    free = every if model.substitutable is None else model.substitutable
    if wrong := sorted(set(found.flat) - {*free, *(model.special or ()), -1}):
        why = "which is no substitute: the model has symbols 0 to "
        why += f"{model.vocab_size - 1}; it, or its tokenizer, names substitutes"
        if model.padding is not None and wrong[0] == model.padding.symbol:
            why = "the model's padding, which no row sees; leave it out"
        raise InputError(f"{where} lists the symbol {show(int(wrong[0]))}, {why}")
    return found.astype(np.int64)


def open_devices(options: OneInput) -> Mesh | None:
    """Mesh of the devices that the flags ask for; None for the default device."""
    named = {name: getattr(options, name) for name in CLUSTER}
    missing = [f"--{name}" for name in CLUSTER if named[name] is None]
    is_alone = len(missing) == len(CLUSTER)
    if missing and not is_alone:
        given = next(name for name in CLUSTER if named[name] is not None)
        raise InputError(
            f"--{given} is for several processes, which also need "
            f"{' and '.join(missing)}"
        )
    request_platform(options)
    if options.num_devices is not None:
        # Only a CPU heeds the option, and only once: JAX that has its devices refuses,
        # and `device_mesh` then reports their number.
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", options.num_devices)
    if not is_alone:
        if options.process_id == 0:
            others = f"{options.num_processes} processes at {options.coordinator}"
            print(f"waiting up to {PATIENCE} s for {others}", flush=True)
        connect_processes(**named)
    require_platform(options.platform)
    if is_alone and options.num_devices is None:
        return None
    return device_mesh(options.num_devices)


@dataclasses.dataclass(frozen=True)
class Joined:
    """Result of a whole request: of all parts, or of a recipe's one forward pass."""

    asked: Asked
    result: Any  # an `Influence`, or a `Scan`
    ambiguous: int  # parts in which rounding may decide a tie of hard attention
    seconds: float  # of all parts, in this run and before

    @property
    def columns(self) -> dict[str, Any]:
        """Columns of a sweep's row of results: length, method, kind of result, model."""
        result = self.result
        return {
            "n": len(self.asked.tokens),
            "method": result.method,
            "reason": result.reason,
            "kind": result.kind,
            "rounding": result.rounding,
            "ambiguous": self.ambiguous > 0,
            **self.asked.subject.hashes,
            **error_columns(result.measured_error),
        }

    def named(self, first_residue: int) -> Named:
        """Scan and names of symbols, numbered as residues if the input is of letters."""
        asked, model = self.asked, self.asked.subject.model
        name = asked.words.residues(first_residue) or asked.words.name
        of_vocabulary = (
            model.classes == model.vocab_size
        )  # a classifier's are no symbols
        return Named(self.result, name, asked.record, of_vocabulary)


# A request with its parts.
Planned = tuple[Asked, Parts]


def plan_records(
    options: Any,
    # Of the options of one input, and the subject of the first.
    plan: Callable[[Any, Subject | None], Planned],
) -> Iterator[Planned]:
    """Yields request and parts of each record of a FASTA file, or of the one input."""
    whole = options.fasta is not None and "input" not in options.given
    names = fasta_names(str(options.fasta)) if whole else []
    if len(names) < 2:
        yield plan(options, None)
        return
    first: Subject | None = None
    for at, name in enumerate(names):
        with errors_of(f"{options.fasta}: record {name}"):
            asked, found = plan(dataclasses.replace(options, input=at), first)
        first = first or asked.subject
        yield dataclasses.replace(asked, record=name), found


def work_in_parts(
    options: OneInput,
    *,
    ask: Callable[[Mesh | None], Iterable[Planned]],  # of each input
    export: Callable[[Sequence[Joined]], Exports],
    row: Callable[[Joined], dict[str, Any]],  # of a sweep
    is_kept: bool = True,  # False where one pass of each input is all the work
) -> Work:
    """Work that computes the parts of each input; process 0 alone writes the results."""
    planned: list[Planned] = []

    @explained_loss()
    @quiet_ties()
    def lead() -> bool:
        planned.extend(ask(open_devices(options)))
        leads = jax.process_index() == 0
        if options.dry_run and leads:
            lines = [line for asked, found in planned for line in asked.describe(found)]
            if not is_kept:
                some = f"each of {len(planned)} inputs"
                lines = [f"one pass of {some if len(planned) > 1 else 'the input'}"]
            print("\n".join(lines))
        elif leads:
            print(f"{options.COMMAND}: results go to {options.out}", flush=True)
        elif is_kept and not options.dry_run:
            for _, found in planned:
                follow_parts(found)
        return leads and not options.dry_run

    @explained_loss()
    def finish(store: ResultStore) -> Exports:
        joined = []
        for asked, found in planned:
            with Progress(len(found.positions), "positions", alike=True) as progress:
                counted = dataclasses.replace(found, progress=progress)
                joined.append(compute_parts(store, asked, counted, options.fresh))
        return export(joined)

    def rows(store: ResultStore) -> Rows:
        return [row(compute_parts(store, *one)) for one in ask(None)]

    return Work(finish, lead=lead, rows=rows, is_kept=is_kept)


@quiet_ties()
def compute_parts(
    store: ResultStore, asked: Asked, planned: Parts, fresh: bool = False
) -> Joined:
    """Result of a request; computes the parts that the store lacks and saves them there."""
    recipe, began = asked.recipe, time.perf_counter()
    if recipe is not None and recipe.one_pass:
        result = recipe.scan(asked.subject.model, asked.tokens)
        return Joined(asked, result, 0, time.perf_counter() - began)
    result, ambiguous, seconds = run_parts(store, planned, fresh=fresh)
    if recipe is not None:
        result = recipe.finish(result)
    return Joined(asked, result, ambiguous, seconds)
