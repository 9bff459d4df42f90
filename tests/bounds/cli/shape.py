"""The shape of the models in the tests of the commands: small, to compile fast."""

SHAPE = {"num_layers": 1, "num_heads": 1, "d_model": 4, "d_ff": 4}
SHAPE_FLAGS = [f"--{name}={size}" for name, size in SHAPE.items()]
