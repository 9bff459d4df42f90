"""Meaning of each column of a CSV, and each key of a JSON, that a command writes.

`WORDS` has the names that mean the same everywhere; `FILES` lists the columns of each
file, with their own words where these differ. docs/columns.md is made of both.
"""

import fnmatch
from collections.abc import Mapping

WORDS: Mapping[str, str] = {
    # Of every JSON.
    "command": "the command",
    "flags": "every flag's value, given or not",
    "seed": "`--seed`; null where nothing is drawn",
    "dtype": "float type of the computation",
    "versions": "of this program, Python, JAX, jaxlib and NumPy",
    "device": "platform and kind of the device",
    "matmul_precision": "precision of matrix products",
    "git_commit": "of the program's checkout; null where it is none",
    "failures": "what failed and was left out: `label` and `message` of each",
    # What was asked about.
    "n": "length of the input, in tokens",
    "query": "the row that is watched, from 0",
    "target": "what is watched of it",
    "weighting": "the attention weighting, with its temperature after @",
    "model_sha256": "SHA-256 of the model's file, or of the one that `jm.save` would write",
    "tokens_sha256": "SHA-256 of the tokens as little-endian int32",
    "input": "which of the inputs of the length, from 0",
    "rows": "the table's rows, with further keys",
    # What was found.
    "position": "position that is replaced, from 0",
    "symbol": "symbol that is put in",
    "wild_type": "name of the symbol that stands there, where a tokenizer has names",
    "symbol_name": "name of the symbol that is put in, likewise",
    "lower": "lower end of the value's enclosure",
    "upper": "upper end of the value's enclosure",
    "max": "the largest influence, in units of the target",
    "max_lower": "lower end of its enclosure",
    "max_upper": "upper end of its enclosure",
    "method": "what computed it",
    "reason": "why that method, in words",
    "exact": "whether `kind` is exact",
    "kind": "exact, certified, enclosure or estimated",
    "hypotheses": "what that rests on, in words",
    "rounding": "which results have radii of rounding: all, top (the largest), or none",
    "rtol_exact": "the largest radius of what is called exact, relative to it",
    "ambiguous": "whether rounding could have decided a hard-attention winner",
    "evaluated": "substitutions whose influence was computed",
    "uncertified": "substitutions not certified to be below the largest",
    "decided": "substitutions decided in float64 after float32; null without proposals",
    "block_substitutions": "substitutions computed at a time",
    "block_rows": "rows computed at a time",
    "measured_error": "of half precision: a sample's errors relative to float64",
    "seconds": "what computing took, those of earlier runs that were used included",
    "finding": "the fit in a sentence",
    "meaning": "what the numbers are means or estimates of",
    # Closed forms.
    "log10_corrected": "decimal logarithm of the corrected bound of Lemma 5, for all inputs",
    "log10_printed": "decimal logarithm of the constant of Lemma 5 as printed, over n",
    "log10_half_weight": "decimal logarithm of the n at which the bound on a weight is 1/2",
    "log10_causal": "decimal logarithm of the bound of causal masks",
    "log10_printed_tight": "decimal logarithm of the printed constant without slack, over n",
    "supremum": "the exact largest influence over all inputs; null where it cannot be had",
    # Of a power law, value = constant n^-exponent.
    "exponent": "of the fitted power law; null below four lengths",
    "standard_error": "its standard error",
    "constant": "the factor of the fitted power law",
    "used": "values that were fitted",
    "zeros": "values of zero, which are left out",
    "first": "smallest length fitted",
    "last": "largest length fitted",
    "lengths": "lengths fitted",
    # Cross-entropies.
    "optimal": "the source's entropy: the least possible cross-entropy, nats per symbol",
    "unigram": "cross-entropy of symbol frequencies, nats per symbol",
    "last_symbol": "cross-entropy of a predictor that sees the last symbol alone",
}

HEAD = (
    *("command", "flags", "seed", "dtype", "versions", "device"),
    *("matmul_precision", "git_commit"),
)
_FIT = ("exponent", "standard_error", "constant", "used", "zeros", "first", "last")
_FIT += ("lengths",)
_INFLUENCE = (
    *("n", "query", "max", "max_lower", "max_upper", "position", "symbol", "method"),
    *("reason", "evaluated", "uncertified", "decided", "exact", "kind", "ambiguous"),
    *("block_substitutions", "block_rows", "model_sha256", "weighting"),
    *("tokens_sha256", "measured_error"),
)


def _has(*names: str, **own: str) -> dict[str, str]:
    return {name: WORDS[name] for name in names} | own


FILES: Mapping[str, Mapping[str, str]] = {
    "curve.csv": _has(
        *("n", "weighting", "input"),
        influence_lower="lower end of the largest influence on this input",
        influence_upper="upper end of the largest influence on this input",
    )
    | _has("position", "symbol", "method", "exact", "kind", "ambiguous")
    | _has(
        *("log10_corrected", "log10_printed", "log10_half_weight", "supremum"),
        certified="certified upper bound on the influence on this input, of its own or "
        "that of all inputs (log10_corrected) where it is smaller",
        estimate="largest influence that a search over inputs met",
    ),
    "curve.json": _has(
        *HEAD, "failures", curves="one entry for each weighting, with the keys below"
    ),
    "curve.json, curves": _has(
        *("weighting", "model_sha256", "finding", "hypotheses", "rtol_exact"),
        fit="the power law of the influence against n, up to trained_to where that is "
        "known, with the keys below",
        trained_to="longest n that the model was trained on; null where it is not known",
        beyond_training="the power law of lengths beyond trained_to, where that is known",
        largest="for each length the row of curve.csv with the largest influence",
        beyond="closed forms at lengths that were not measured",
        without="why something that was asked for is missing, in words",
    ),
    "curve.json, curves, fit": _has(*_FIT),
    "influence.csv": _has(
        "position",
        "symbol",
        *("wild_type", "symbol_name"),
        lower="lower end of the influence",
        upper="upper end of the influence",
        kind="what that line is: exact to 1 %, enclosure or estimated",
    ),
    "influence.json": _has(
        *(*HEAD, *_INFLUENCE, "hypotheses", "rounding", "rtol_exact"),
        *("wild_type", "symbol_name", "seconds"),
        levels="of a screen: one entry for each level, with the keys below",
    ),
    "influence.json, levels": _has(
        groups="groups of rows, per head",
        rank="terms of the factors of the weights",
        screened="substitutions that were bounded",
        left="substitutions neither evaluated nor below the largest that was",
        seconds="what the level took",
        seconds_each="of one substitution after the first block; null without another",
    ),
    "scan.csv": _has(
        *("position", "symbol", "wild_type", "symbol_name", "lower", "upper"),
        row="the row that is watched; empty where it is of many",
        target="entry of what is watched, where it has several",
        target_name="that entry's symbol, by name",
        value="change of what is watched, or what `--reduce` makes of it",
        base="what is watched of the unchanged input, of which the value is a change; of "
        "masked marginals the log-odds of the unmasked input",
        kind="what that line is: exact to 1 %, enclosure or estimated",
        record="name of the record, where a FASTA file has several",
        mutation="the substitution of a residue by name, as A25G",
        residue="the residue, as A25, where a cell is of all substitutes or a deletion",
        row_residue="the residue of the row",
    ),
    "scan.json": _has(
        *HEAD,
        *("n", "position", "symbol", "lower", "upper", "target", "kind", "method"),
        *("reason", "model_sha256", "weighting", "tokens_sha256", "measured_error"),
        *("wild_type", "symbol_name", "hypotheses", "rounding", "rtol_exact"),
        *("ambiguous", "seconds"),
        rows="the rows that are watched; none where it is each position's own",
        record="the record that has it, where a FASTA file has several",
        shape="the length of each axis of the table, by name",
        substitutions="how many were computed",
        max="the largest absolute value",
        value="the value that has it, signed",
        row="its row",
        target_symbol="the entry of the target that has it",
        reduce="`--reduce`",
    ),
    "supremum.json": _has(
        *(*HEAD, "n", "max", "max_lower", "max_upper", "kind", "exact", "position"),
        *("symbol", "query", "target", "reason", "seconds", "hypotheses", "rtol_exact"),
        *("ambiguous", "model_sha256", "weighting", "tokens_sha256"),
        tokens="an input that has the largest influence",
        plan="how all inputs were gone through",
        configurations="configurations that were evaluated",
        recomputed="the influence of that input, computed again",
        recomputed_by="the method that did so",
        symbols="symbols that may stand at the positions",
        query_symbols="symbols that may stand at the query",
    ),
    "constants.json": _has(*HEAD, "model_sha256", "weighting", "rows", "failures"),
    "constants.json, rows": _has(
        *("n", "query", "hypotheses", "log10_corrected", "log10_printed"),
        *("log10_half_weight", "log10_causal", "log10_printed_tight"),
        layer="the layer, from 1; the last is the output",
        F="bound on the norm of what the attention reads",
        F_output="bound on the norm of a row that the layer writes",
        A="half the range of a row of attention logits, in nats",
        D="the largest distance of two embeddings",
        abar="bound on an attention weight of the query's row",
        printed_implied="whether the printed constant, a claim, is above the corrected bound",
        printed_tight_implied="whether it is with the true norm bound for F",
        log10_corrected_linear="decimal logarithm of the corrected bound, linear in D",
        log10_corrected_own="decimal logarithm of it where the query's own token changes",
        log10_c1="decimal logarithm of C1, of attention without a mask",
        log10_c2="decimal logarithm of C2, of attention without a mask",
    ),
    "lipschitz.csv": _has(
        "n",
        estimate="largest ratio of output to embedding change met: K_n from below",
        scaled="n times it",
        method="the search that met it",
        position="position whose embedding changes, from 0",
    )
    | _has(
        "seed",
        iterations="substitutions, power iterations or steps that the search made",
        influence="the largest influence that was met",
    )
    | _has(
        "supremum",
        radius="radius of the ball of embeddings",
        substitution="largest ratio over substitutions",
        local="largest local norm at the inputs",
        ball="largest local norm met in the ball",
        **{"log10_*": "decimal logarithm of the bound of that name on K_n"},
        **{"looseness_*": "decades between that bound and what was met"},
    ),
    "lipschitz.json": _has(
        *(*HEAD, "meaning", "weighting", "model_sha256", "finding", "failures"),
        kind="estimated",
        fits="the power laws of `estimate` and `substitution`, as in curve.json",
        confidence="of the intervals of their exponents",
        rows="the rows of lipschitz.csv; `notes` say why a bound is missing",
    ),
    "sensitivity.csv": _has(
        "n",
        positions="positions that are replaced",
        mean="middle of the two ends of the average sensitivity",
        lower="mean of the counts' lower ends",
        upper="mean of the counts' upper ends, with the undecided positions",
        interval_lower="lower end of the 95 % interval; null where all inputs are listed",
        interval_upper="upper end of the 95 % interval",
        inputs="inputs that were counted",
        undecided="positions, of all of them, at which rounding leaves the sign open",
    )
    | _has("kind"),
    "sensitivity.json": _has(
        *(*HEAD, "weighting", "model_sha256", "finding", "failures"),
        form="`--form`",
        fit="the power law of the mean in the positions, as in curve.json, and the 95 % "
        "interval of its exponent, which is negative where the mean grows",
        rows="the rows of sensitivity.csv",
    ),
    "certificate.json": _has(
        *(*HEAD, "n", "query", "seconds"),
        format="name and version of the format (docs/certificates-of-restrictions.md)",
        L="layers",
        H="heads of each",
        tie="which of equal scores wins: L, R",
        mask="of all layers",
        model_digest="SHA-256 of the bytes that `jax_models.save` writes of the model",
        symbols="symbols of free positions",
        rho="the restriction: a symbol at each position, -1 where it is free",
        mode="whether it was decided in rational or floating arithmetic",
        layers="of each layer, what a row depends on and what each head may attend to",
        output="the final activation at the query",
        pair="two inputs that agree with it and have that output",
        language="the language",
        members="whether each of the two is in it",
        free="free positions",
        log2_misclassified="binary logarithm of how many completions are wrong, or null",
        verified="whether the independent checker accepted it",
    ),
    "depth.json": _has(
        *HEAD,
        num_layers="`--num_layers`",
        num_heads="`--num_heads`",
        parity="for PARITY, with the keys below",
        dyck="for bounded Dyck words, with the keys below",
        routes="every route by name: its number, parameters and source",
    ),
    "depth.json, parity": _has(
        possible_up_to="largest length that such a model is known to do",
        impossible_from="length from which on none can",
        route="the route that proves it",
        parameters="its parameters",
    ),
    "entropy.csv": _has(
        *("n", "optimal", "unigram", "last_symbol"),
        floor_r1="floor of a model that is read at the last symbol, nats per symbol",
        floor_r2="floor of a model that is read at a query token, nats per symbol",
        eps="how much one symbol can change the prediction, of which the floor is",
        model="the model's cross-entropy, nats per symbol",
        model_stderr="its standard error; 0 where all prefixes were enumerated",
        p0="probability that a prefix may close above ground",
        eps_kind="how `eps` was found",
        floor_kind="what the floor is: certified or estimated",
        floor_stderr="its standard error",
        log10_eps="decimal logarithm of `eps`",
        prefixes="prefixes that were run",
        enumerated="whether these are all",
    ),
    "entropy.json": _has(
        *(*HEAD, "failures"),
        unit="of the cross-entropies",
        model_sha256="SHA-256 of the model's file; null without one",
        rows="the rows of entropy.csv",
    ),
    "train.csv": _has(
        "optimal",
        step="steps made before",
        loss="cross-entropy of the step's batch, nats per symbol",
        **{"loss_*": "mean cross-entropy at the length in the name, where measured"},
        **{"stderr_*": "its standard error"},
    ),
    "train.json": _has(
        *(*HEAD, "model_sha256", "kind", "meaning"),
        source="the source, with its parameters",
        training="the settings of training",
        training_lengths="lengths that were trained on",
        trained_to="tokens of the longest training sequences, with their end token",
        losses="at the end, one entry for each length, with the keys below",
    ),
    "train.json, losses": _has(
        *("n", "standard_error", "optimal", "last_symbol", "unigram"),
        loss="mean cross-entropy, nats per symbol",
    ),
    "simulate.csv": _has(
        "n",
        gap="smallest difference between a winner's score and the next, from below",
        tau_formula="temperature by the theorem",
        tau_certificate="temperature by the certificate; empty where none is certified",
        epsilon="the error allowed of an entry of the final activations",
        error_formula="error measured at the theorem's temperature",
        error_certificate="error measured at the certificate's temperature",
        ties="rows of hard heads that met ties, over all inputs",
        bound_certificate="certified error at the certificate's temperature",
        theorem="26, or 26-T with ties; empty where neither applies",
        log10_tau_formula="decimal logarithm of the theorem's temperature",
        gap_simulated="the gap of the model that is simulated, with tie-breaking terms",
        ties_simulated="its ties",
        tied_spread="largest difference of scores that are taken as equal",
        score_rounding="how far a computed score may be rounded, over the temperature",
        exact_scores="whether scores are exact in float64",
        inputs="inputs that were considered",
        all_inputs="whether these are all of the length",
        inputs_run="inputs that errors were measured on",
        measured_on="their number and kind: an error is the largest of them",
        heads="what each head of each layer does with ties",
        tau_at="temperature that `--at` names",
        bound_at="certified error there; empty where none is certified, or without `--at`",
    ),
    "simulate.json": _has(
        *(*HEAD, "weighting", "model_sha256", "failures"),
        certified="which columns are certified",
        measured="which columns are measured",
        rows="the rows of simulate.csv, with the sweep of `temperatures`, `errors`, "
        "`bounds`, and `notes`",
    ),
    "compile.json": _has(
        *(*HEAD, "model_sha256"),
        formula="the formula, as it was read",
        program="the program, where there is no formula",
        alphabet="its symbols",
        mode="the mode of attention",
        num_layers="layers of the model",
        num_heads="heads of each",
        d_model="width of the model",
        d_ff="neurons of each layer",
        masks="mask of each layer",
        position="position encoding, as in the model's file",
        temperature="temperature of each layer, as in the model's file",
        exact_length="length up to which floats are exact; null where there is none",
        self_test="strings tested, positions that differ, the least margin; or null",
    ),
    "model.json": _has(*HEAD, "model_sha256"),
    "import.json": _has(
        *(*HEAD, "model_sha256"),
        skipped="tensors of the folder that the model does not read",
        largest_difference="from the outputs of `--check`, by name",
    ),
    "sample.json": _has(
        *HEAD,
        distribution="what the inputs are drawn from",
        vocabulary="names of the symbols, by number",
        tokens_sha256="SHA-256 of each input as little-endian int32",
    ),
    "batch.csv": {
        "status": "done or failed",
        "message": "what went wrong",
        "sweep.*": "the value of a swept flag",
        "cell_seconds": "what the cell took",
        "cell_key": "its key in the store",
        "given_free": "of `restrict`: positions that were free beforehand",
        **_has("block_substitutions", "block_rows"),
        "*": "what the command's own rows have, as above",
    },
    "batch.json": _has(
        *(*HEAD, "failures"),
        fixed="flags that all cells have",
        sweep="values of the swept flags",
        cells="cells of the sweep",
        left="cells that are not done",
    ),
}
"""By name, "FILE, KEY" where the entries of a key have keys; `*` stands for any letters."""


def is_of_rows(command: str, name: str) -> bool:
    """True if rows of a sweep of `command` may have a column `name`."""
    record = "certificate.json" if command == "restrict" else f"{command}.json"
    known = [x for x in FILES["batch.csv"] if "*" not in x]
    known += [x for file in (f"{command}.csv", record) for x in FILES.get(file, ())]
    return any(fnmatch.fnmatchcase(name, x) for x in known)
