"""Does the documentation still say what the code does?

Every fenced block, command line, generated table and figure of README.md and docs/ is run,
regenerated, or listed with the reason why it was not (`make docs-check`).
"""
