"""Readings of row programs: functions with one rule for each class of operation."""
