"""Two example command lines for each command, for the end of its help."""

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
