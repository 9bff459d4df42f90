"""Hahn 2020, Lemma 5: its constants, bounds for all inputs and for one, and its audit."""
