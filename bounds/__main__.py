"""`python -m bounds COMMAND` is the same as `attention-bounds COMMAND`."""

from bounds.cli.start import console

if __name__ == "__main__":
    console()
