"""Screens: estimates of all output changes by replacing a token, with error bounds."""
