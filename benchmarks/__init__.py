"""Figures, each beside its yardstick in the same run on the same servers. Never a test."""
