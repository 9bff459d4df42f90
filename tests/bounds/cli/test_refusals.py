"""Mistakes in the flags of every command: one line that names them, and no results."""

import json
import shlex
from pathlib import Path

import jax
import numpy as np
import pytest

from bounds.cli.main import COMMANDS
from tests.bounds.cli.outputs import QUICK, SHAPE_FLAGS

SHAPE = " ".join(SHAPE_FLAGS)
ASK = "influence --model={folder} " + " ".join(QUICK)
TRAIN = (
    "train --p=0.5 --length=4 --steps=6 --batch_size=4 --num_heads=1 --d_model=4 "
    "--d_ff=4 --lengths=3,5 --num_inputs=8"
)
# Values that do not fit into a line.
LONG = {"long": "1" * 5000, "letters": "A" * 5000, "brackets": "[" * 5000, "null": "\0"}
UNKNOWN = "Unknown command line flag 'seeed'. Did you mean: seed"


@pytest.fixture
def files():
    """Files that the flags name."""
    assert jax.local_device_count() == 8  # from here on no flag can divide the CPU
    Path("tokens.txt").write_text("0 2 1 1 0 2 1")
    Path("records.fasta").write_text(">one\nACDE\n>two\nAC\n>three\nGHIK\n")
    Path("same.fasta").write_text(">same a\nACZ\n>same b\nAC\n")
    Path("long.fasta").write_text(">first\nACDE\n>long\n" + 99 * "A")
    Path("binary").write_bytes(b">a\n\xff\n")
    Path("short").write_text("A\nC\n")
    Path("strange").write_text("A\nC\nZ\n\n\n\n")
    Path("empty").write_text("")
    held = {"command": "entropy", "fixed": {"p": 0.3, "seed": 1}}
    Path("held.json").write_text(json.dumps(held))
    wrong = {"command": "curve", "fixed": {"d_ff": "x"}, "sweep": {"seed": [1, 2]}}
    Path("wrong.json").write_text(json.dumps(wrong))
    np.save("floats.npy", np.zeros((6, 1)))
    np.save("row.npy", np.full(6, 5))
    np.save("below.npy", np.full((6, 2), -2))
    np.save("short.npy", np.full((5, 2), 5))
    np.save("two.npy", np.zeros((2, 10), int))


def refused(table):
    """Tests of a command, the first line, by a mistake a line: flags, then the complaint.

    Where the first line is the program alone, each other one begins with its command.
    Of a command that reads `file` the content of that stands in place of the flags.
    """
    command, *lines = map(str.strip, table.strip().splitlines())
    return refuse(command.removeprefix("attention-bounds"), lines)


def refused_late(table):
    """Tests of mistakes that the work meets: command and flags, then the complaint."""
    return refuse("", map(str.strip, table.strip().splitlines()), late=True)


def refuse(command, lines, late=False):
    """Tests of a command by lines of flags and complaint; only `late` a store is left."""
    cases = [line.split(" | ", 1) for line in lines]

    @pytest.mark.parametrize(("flags", "complaint"), cases)
    def test(run, files, request, flags, complaint):
        folder = request.getfixturevalue("folder") if "{folder}" in command else ""
        if command.endswith("=file"):
            Path("file").write_text(flags.encode().decode("unicode_escape"))
            flags = ""
        words = shlex.split(f"{command} {flags}".format(folder=folder, **LONG))
        before = set(Path().rglob("*"))
        ended = run(*words)
        ended.assert_refused(complaint)
        left = set(Path().rglob("*")) - before
        if late:
            stores = {x for x in left if x.is_file() and x.suffix != ".lock"}
            assert {x.name for x in stores} <= {"results.sqlite"}
        else:
            assert (ended.out, left) == ("", set())

    return test


test_misspelt_flags = refused(
    "\n".join(["attention-bounds", *(f"{x} --seeed=1 | {UNKNOWN}" for x in COMMANDS)])
)
test_values = refused(rf"""
    attention-bounds
    curve --seed=one | --seed=one
    curve --seed=-1 | --seed=-1
    curve --seed | seed
    curve extra | unexpected argument 'extra'
    sample --count=3 | Unknown command line flag 'count'
    curve --d_ff=1,2 | --d_ff=1,2: expected an integer in the range [1,
    curve --d_ff=-1 | -1 is not an integer in the range [1, 2147483647]
    curve --d_ff={10**400} | 0 is not an integer in the range [1,
    curve --d_ff={{long}} | expected an integer in the range [1,
    curve --c=x | --c=x: expected a number
    curve --c=nan | --c=nan: nan is not a finite number
    curve --fresh=maybe | attention-bounds: --fresh=maybe: expected true or false
    curve --nofresh=3 | --nofresh=3 does not take an argument
    curve --lengths=4:x:2 | 'x' in '4:x:2' is not a whole number; expected a
    curve --lengths=4:8 | '4:8' is no range of three numbers; expected a
    curve --scale=inf | --scale=inf: inf is not a finite number
    train --p=inf | --p=inf: inf is not a finite number
    scan --positions=1,x | --positions=1,x: 'x' is not an integer in the
    scan --positions=1, | ; expected integers, separated by commas
    curve --mask={{brackets}} | is not one of none, future, past,
    curve '--out=a{{null}}b' | '--out=a\x00b' holds a null byte
    curve --out= | --out=: it is empty; expected the name of a folder
    curve --model= | it is empty; expected the name of a file or a folder
    curve --compilation_cache= | it is empty; expected a folder, or off
    curve --flagfile=/dev/null | give them in place of --flagfile
""")
test_processes_and_devices = refused(f"""
    influence {SHAPE} --length=12
    --coordinator=127.0.0.1:1234 | also need --num_processes and --process_id
    --process_id=0 --num_processes=2 | also need --coordinator
    --coordinator=here:1 --num_processes=2 --process_id=2 | counts from 0 to 1
    --coordinator=here --num_processes=2 --process_id=1 | here: expected host:port
    --num_devices=100000 | num_devices
    --num_devices=9 | 9 devices asked for, but this process has 8
    --num_devices=0 | num_devices=0: 0 is not an integer in the range [1, 256]
""")
test_batch = refused("""
    batch
    --dry_run | no --command given
    --command | Missing value for flag --command
    --spec | Missing value for flag --spec
    --command=depth | --command
    --command=entropy --spec=a.toml | give --spec or --command, not both
    --command=entropy --sweep=widths=1,2 | --widths is no flag of entropy
    --command=entropy --width=1 | Unknown command line flag 'width'
    --command=entropy --sweep=p=0.1,high | p=high: --p=high:
    --command=entropy --sweep=p=0.1,-inf | p=-inf: --p=-inf: -inf is not
    --command=entropy --lengths=4,2 | lengths must increase
    --command=entropy --p=nan | --p=nan: nan is not a finite number
    --command=entropy --sweep=p=0.1,nan | p=nan: --p=nan: nan
    --command=curve --sweep=weighting=softmax,soft | weighting=soft:
    --command=curve --sweep=temperature=1,warm | temperature=warm:
    --command=curve --sweep=out=there | --out belongs to the sweep
    --command=curve --sweep=seed=1,2 --d_ff=x | attention-bounds: --d_ff=x: expected an
    --command=restrict --sweep=verify=c.json | --verify belongs
    --command=influence --model=none.safetensors | --model 'none.safetensors'
    --command=influence --sweep=model=a.safetensors,b | --model 'a.safet
    --command=influence --preset=first --mask=none | --mask describes
    --command=influence --tokens=a --text=b | give --tokens or --text
    --command=scan --recipe=dependency_map --sweep=rows=0,1 | dependency_map sets --rows
    --spec=none.toml | does not exist
    --spec=wrong.json | attention-bounds: fixed d_ff=x: --d_ff=x: expected an integer
    --spec=held.json --p=1 | --p is given twice
    --spec=held.json --seed=1 | --seed is given twice
""")
test_ties_of_some_cells = refused("""
    batch --command=sensitivity --lengths=4 --ties=warn
    --sweep=weighting=softmax,average_hard | weighting=softmax: --ties is of hard
    --sweep=preset=hard_parity,parity | preset=parity: --ties is of hard attention
""")
test_sweeps = refused("""
    batch --command=entropy --sweep=lengths=2,4,8 --sweep=p=0.2,0.7
    --seed=1 --sweep=seed=2 | --seed is both fixed and swept
    --p=0.5 | --p is both fixed and swept
    --local_workers=2 --scheduler=a:1 | not both
""")
test_compile = refused("""
    compile
    --alphabet=ab | --formula is missing
    --formula=Q_a | --alphabet is missing
    '--formula=Q_a nad Q_b' --alphabet=ab | column 5: found the unknown word
    '--formula=Q_a or Q_c' --alphabet=ab | column 8: found the symbol 'c'
    --formula=prime(#<[Q_a]) --alphabet=ab | column 1: found the predicate
    --formula=Q_a --alphabet=ab --mode=X | --mode=X
    --formula=Q_a --alphabet=ab --self_test=-1 | --self_test=-1
""")
test_compile_over_an_alphabet = refused("""
    compile --alphabet=ab
    '--formula=T and #<[Q_a] > 9007199254740994' | column 15: an integer beyond 2^53
    '--formula=N Q_b or #>[Q_a] > 1' --mode=FT | column 1: N (next) looks at a later
    '--formula=N Q_b or #>[Q_a] > 1' --mode=FT | position; column 10: #>
""")
test_constants = refused(f"""
    constants {SHAPE}
    --lengths=1,4 | below n = 2
    --target=logits | read-out
    --target=loss | --target=loss
""")
test_curve = refused(f"""
    curve {SHAPE} --lengths=4
    --lengths=0,4 | --lengths=0,4
    --lengths=8,4 | 4 follows 8
    --query=4 | query
    --weighting=softmax,hard | 'hard' is not one of softmax
    --temperature=1,warm | 'warm' is not a temperature
    --temperature= | --temperature=: '' is not a temperature
    --temperature=1,2,3,4,5,6,7,8 | at most 7
    --bounds=none,certified | none stands alone
    --figure_format=gif | 'gif' is not one of png, pdf, svg
    --language=dyck2 --vocab_size=2 | vocab_size >= 4
    --target=logits | read-out
    --model=missing.safetensors | missing.safetensors
    --tokens=missing.txt | missing.txt
""")
test_curve_of_tokens = refused(rf"""
    curve {SHAPE} --lengths=4 --vocab_size=2 --tokens=file
    0 1 2 1 | token 2 at position 2
    0 -1 1 | token -1 at position 1
    0 1 one | 'one' at position 2 is not a token
    \n | no tokens
    0 1 1 | n = 4 is more than the 3 tokens
    0 99999999999999999999 | is not a token
    0 4294967296 1 0 | token 4294967296 at position 1
""")
test_curve_of_texts = refused("""
    curve --model={folder}
    --fasta=records.fasta --lengths=4 | --lengths is of beginnings of a text
    --fasta=records.fasta --sequence=AC | give --fasta or --sequence, not
    --fasta=records.fasta --num_inputs=2 | --num_inputs samples inputs
    --sequence=ACDE --language=ones | --language samples inputs
    --sequence=ACDE --lengths=4,7 | n = 7 is more than the 6 tokens
    --sequence=ACDE --lengths=2 | length n = 2 leaves no token of --sequence
    --sequence=ACXE | --sequence: 'X' at place 3 is not in the vocabulary
    --fasta=records.fasta --query=4 | query = 4 is out of range for n = 4
""")
test_depth = refused("""
    depth
    --num_layers=0 | --num_layers=0
    --num_heads=x | --num_heads=x
    --free=1 | 1 is not between 0 and 1
    --free=half | 'half' is not a number
    --free=1/0 | '1/0' is not a number
    --free=1e-5000 | 1e-5000 is within 1e-30 of 0 or of 1
    --free=0.9999999999999999999999999999999999999999999 | is within 1e-30 of 0 or of 1
    --free=nan | 'nan' is not a number
""")
test_entropy = refused("""
    entropy
    --p=1 | end probability p = 1.0; expected one inside (0, 1)
    --language=dyck2 --p=0 | bracket probability p = 0.0
    --language=dyck1 | --language
    --reading=query | --reading says how a model is measured
    --eps=exact | --eps says how a --model is measured
    --model=none.safetensors | none.safetensors
    --lengths=0,4 | lengths
    --lengths=4,2 | lengths must increase
    --num_inputs=1 | num_inputs
""")
test_influence = refused(f"""
    influence {SHAPE} --length=8
    --query=8 | query = 8
    --length=0 | --length=0
    --input=-1 | --input=-1
    --target=logits | read-out
    --num_inputs=2 | num_inputs
    --weighting=leftmost_hard,softmax | --weighting
    --method=guess | --method=guess
    --dry_run --method=lumped | cannot do this model
    --sequence=AC | --sequence needs a tokenizer
    --fasta=a | --fasta needs a tokenizer
    --smiles=a | --smiles needs a tokenizer
    --dry_run --query=8 | query = 8
""")
test_memory_limit = refused(f"""
    influence {SHAPE} --method=incremental
    --memory_limit=1KiB | limit is 1 KiB, but a block of one substitution takes about
    --memory_limit=1KiB --dry_run | limit is 1 KiB, but a block of one substitution takes
    --memory_limit=5MB | '5MB' is no amount of memory; expected bytes, or a number and
""")
test_texts = refused(f"""
    {ASK}
    --sequence=AXC | --sequence: 'X' at place 2 is not in the vocabulary: A C
    --fasta=binary | not a text in UTF-8
    --smiles=binary | not a text in UTF-8
    --text=binary | not a text in UTF-8
    --fasta=none | does not exist
    --smiles=none | does not exist
    --text=none | does not exist
    --sequence= | has no tokens
    --sequence=AC --fasta=a | give --fasta or --sequence, not both
    --sequence=AC --language=dyck1 | --language samples inputs
    --sequence=AC --input=1 | holds 1 inputs
    --sequence=AC --tokenizer=none | tokenizer 'none' does not exist
    --sequence=AC --head=causal_lm | head = 'causal_lm'; expected one of
    --sequence=AC --vocab_size=9 | describes a random model
    --language=random --length=4 --target=loss:C | 'C' of --target is no number
    --language=random --length=4 --symbols=C | 'C' of --symbols is no number
""")
test_records = refused(rf"""
    {ASK} --fasta=file
    >heavy\nac\nfG\n\n>light\nMNXL\n | record 1 (light): 'X' at place 3 is not in
    \n | file: the file is empty; expected records
    \nACD\n>a\n | line 2 is 'ACD'; expected records
    >a\n>b\nAC\n | record 0 (a): the text '' has no tokens
    >\nAAAAAAAAAAAAAAAAAAAAAAA | n = 25
""")
test_molecules = refused(rf"""
    {ASK} --smiles=file
    CC a\nCXC b | molecule 1 (b): 'X' at place 2 is not in
    \n | file: the file is empty; expected one molecule a line
""")
test_texts_of_files = refused(rf"""
    {ASK} --text=file
    \n | the text '' has no tokens
""")
test_targets = refused(f"""
    {ASK} --sequence=ACD
    --target=probability | 'probability' is no target; expected activation, logits
    --target=log_probability | is no target; expected log_probability:S
    --target=log_probability: | is no target; expected log_probability:S
    --target=loss: | is no target
    --target=log_odds:, | 'log_odds:,' is no target; expected log_odds:S,T,...
    --target=log_odds:A,,C | is no target; expected log_odds:S,T,...
    --target=logit_difference:A:5 | expected two different symbols
    --target=log_probability_sum | expected log_probability_sum:S,T,...[:ROW]
    --target=log_probability_sum:A,:1 | expected log_probability_sum:S,T,...[:ROW]
    --target=log_probability_sum:A:x | row 'x' of log_probability_sum is no position
    --target=log_probability_sum:A:-1 | row '-1' of log_probability_sum is no position
    --target=log_probability_sum:A,C:4 | lists row 5; the input has rows 0 to 4
    --target=log_probability_sum:A,20 | names the symbol 20; the model has 20 logits
    --target=log_probability_sum:next:4 | from row 4 on has no row: the input has n = 5
    --target=log_probability_sum:own:4 | of which special ones are not asked for
    --target=log_probability_sum:own:999999999999 | from row 999999999999 on has no row
    --target=loss:A:C | is no target
    --target=logit_difference:A | is no target
    --target=logits:A | is no target
    --target=log_odds:A | two or more different symbols
    --target=log_odds:A,C:x | epsilon 'x' of log_odds is no number
    --target=log_odds:A,C:-1 | epsilon = -1
    --target=loss:Z | 'Z' is not in the vocabulary: A C D
    --target=loss:20 | names the symbol 20; the model has 20 logits
""")
test_substitutes = refused(f"""
    {ASK} --sequence=ACDE
    --symbols= | --symbols=: it is empty; expected symbols
    --symbols=A,,C | expected symbols, separated by commas
    --symbols=A,Z | 'Z' is not in the vocabulary: A C D
    --symbols=A,20 | --symbols lists the symbol 20, which is no substitute: the model
    --symbols=[PAD] | --symbols lists the symbol 1, the model's padding
    --symbols={{long}} | 111' of --symbols is no number of a symbol
    --candidates=none | --candidates 'none' does not exist
    --candidates=short | short: 2 rows; expected one for each of the n = 6 positions
    --candidates=strange | strange: line 3: 'Z' is not in the vocabulary: A C D
    --candidates=empty | empty: 0 rows; expected one for each of the n = 6
    --candidates=floats.npy | floats.npy: expected integers, one row or several
    --candidates=row.npy | row.npy: integers of shape [6]; expected (n, K)
    --candidates=below.npy | below.npy lists the symbol -2, which is no substitute
    --candidates=short.npy | short.npy: 5 rows; expected one for each of the n = 6
    --candidates=short --symbols=A | give --symbols or --candidates, not both
""")
test_lipschitz = refused(f"""
    lipschitz {SHAPE} --lengths=4,8 --num_inputs=1
    --restarts=0 --lengths=1,4 | n = 1
    --restarts=0 --query=7 | query = 7
    --steps=0 | --steps=0
    --restarts=0 --steps=2 | --steps is of the ascent, which --restarts=0 leaves out
    --method=exhaustive | method
""")
test_model = refused(f"""
    model {SHAPE}
    --weighting=hard | --weighting=hard
    --d_model=0 | --d_model=0
    --d_model=5 | even width
    --scale=-1 | --scale=-1
    --scale=inf | --scale=inf: inf is not a finite number
""")
test_model_of_another_kind = refused("""
    model
    --model=m --preset=ones | give --model or --preset, not both
    --preset=two | --preset=two: 'two' is not one of random, parity,
    --c=2 | --c is the sharpness of a construction; name its --preset
    --head=lm | --head is of a checkpoint, and --model names no folder
    --preset=ones --d_ff=3 | --d_ff describes a random model
    --preset=hard_parity --d_ff=3 | --d_ff describes a random model
    --preset=hard_parity --scale=0.5 | --scale describes a random model
""")
test_restrict = refused(f"""
    restrict {SHAPE} --num_layers=2 --mask=none
    --verify=nothing.json | nothing.json
    --verify=. | is a folder
    --length=10 --attempts=1 --weighting=softmax | softmax
    --length=10 --attempts=1 --pre_restriction=two.npy | rows
""")
test_sample = refused("""
    sample
    --language=dyck1 --length=7 | odd
    --language=dyck3 | --language=dyck3
    --length=0 | --length=0
    --num_inputs=0 | --num_inputs=0
    --language=parity --vocab_size=3 | --vocab_size
""")
test_scan = refused(f"""
    scan {SHAPE} --vocab_size=3 --tokens=tokens.txt
    --rows=7 | rows = 7; expected an integer from -7 to 6
    --rows=9 --dry_run | rows = 9
    --rows=1,x | '1,x' names no rows
    --rows= | names no rows
    --reduce=frobenius:map:tensor | is no reduction
    --reduce=sum | 'sum' is no reduction; expected none, max, mean
    --positions=2,7 | --positions lists 7; the input has positions 0 to 6
    --method=screened | --method=screened
    --figure=map | figure = 'map' needs an axis of rows
    --figure=map --dry_run | figure = 'map' needs an axis of rows
    --figure=heat --reduce=max | figure = 'heat' needs an axis of symbols
    --rows=2 --reduce=frobenius:map | needs the rows to be the positions
""")
test_scan_of_texts = refused("""
    scan --model={folder}
    --sequence=ACZ | 'Z'
    --fasta=empty | the file is empty
    --fasta=same.fasta | same.fasta: records 0 and 1 are both named 'same'
    --fasta=long.fasta --dry_run | long.fasta: record long: length n = 101
    --sequence=AC --target_symbols= | --target_symbols=: it is empty; expected symbols,
    --sequence={letters} | n = 5002 is beyond the model's position table
""")
test_recipes_and_edits = refused("""
    scan --model={folder} --sequence=ACDE
    --recipe=dependency_map --rows=2 | sets --rows; leave it out
    --recipe=mutagenesis --edit=delete | sets --edit; leave it out
    --recipe=wild_type_marginals --method=partial | --method has no effect
    --recipe=wild_type_marginals --precision=bfloat16 | --precision has no
    --recipe=wild_type_marginals --rounding=none | --rounding has no effect
    --recipe=wild_type_marginals --ties=warn | --ties has no effect
    --edit=delete --symbols=A | --symbols lists some; leave it out
    --edit=delete --candidates=file | --candidates lists some; leave it out
    --recipe=tea | recipe
    --recipe=wild_type_marginals --figure=map --dry_run | an axis of rows
    --recipe=mutagenesis --unit=bits | --unit is of the recipes
    --recipe=masked_marginals --epsilon=0 | --epsilon is of --recipe=dep
    --recipe=categorical_jacobian --reduce=max | not by max
    --recipe=dependency_map --reduce=max | sets --reduce; leave it out
    --edit=delete --method=incremental | a deletion moves the rows
""")
test_sensitivity = refused(f"""
    sensitivity {SHAPE} --scale=3 --lengths=3
    --num_inputs=1 | num_inputs
    --form=complex | form
    --target=nothing | is no target
    --language=parity | language
""")
test_simulate = refused("""
    simulate --lengths=4
    --preset=ones --weighting=softmax | 'softmax' is not one of leftmost_hard, rightmost
    --preset=first | layers.0 has softmax attention
    --preset=ones --epsilon=0 | epsilon
    --preset=ones --epsilon=2 | epsilon
    --preset=ones --temperature=1 | Unknown command line flag 'temperature'
    --preset=ones --at=power:1:1:position | where all rows have one temperature
    --preset=ones --at=cold | 'cold' is not a temperature
    --preset=ones --seed=7 | --seed is of sampled inputs, and none is sampled
    --preset=ones --num_inputs=3 | --num_inputs is of sampled inputs
    --preset=ones --language=dyck1 | --language is of sampled inputs
""")
test_supremum = refused(f"""
    supremum {SHAPE}
    --length=0 | length
    --length=4 --query=9 | query = 9 is out of range
    --target=logits | no read-out
    --length=many | length
""")
test_train = refused(f"""
    {TRAIN}
    --language=english | --language=english
    --p=1 | expected one inside (0, 1)
    --num_lengths=5 | num_lengths = 5; expected an integer from 1 to 4
    --reading=query --all_positions | follows the whole sequence alone
""")
test_late = refused_late(f"""
    constants {SHAPE} --weighting=average_hard | average_hard is hard
    constants {SHAPE} --lengths=4 --query=4 | query = 4 is out of range
    influence --coordinator=:1 --num_processes=1 --process_id=0 | :1: expected host:port
    influence --coordinator=a:65536 --num_processes=1 --process_id=0 | expected host:port
    lipschitz {SHAPE} --lengths=4 --restarts=0 --weighting=average_hard | no Lipschitz
    restrict {SHAPE} --num_layers=2 --length=9 --attempts=1 --language=dyck1 | odd
    restrict {SHAPE} --num_layers=2 --length=10 --attempts=1 --dtype=float32 | float64
    restrict {SHAPE} --num_layers=2 --length=10 --attempts=1 --query=99 | query
    sensitivity {SHAPE} --scale=3 --lengths=3 --query=7 | query = 7
    sensitivity {SHAPE} --scale=100 --lengths=3 --form=real | [-1, 1]
    simulate --lengths=4 --preset=ones --at=power:1:-999 | = 0.0; expected a positive
    {TRAIN} --weighting=average_hard | no gradient
""")
