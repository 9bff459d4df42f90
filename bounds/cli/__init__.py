"""The command line: one module per command, each with its own flags."""
