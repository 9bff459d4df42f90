"""Tables of scans, changes of an output by edits of an input, and their reductions."""
