"""Results that are kept: SQLite rows, tables, files, sweeps, and where they came from."""
