"""Failures: classifying them, what follows, and what keeps them few."""
