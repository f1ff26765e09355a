"""Assertions folded into records."""
