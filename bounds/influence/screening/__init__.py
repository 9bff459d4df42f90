"""Screens: estimates of all influences with error bounds, and their refinement."""
