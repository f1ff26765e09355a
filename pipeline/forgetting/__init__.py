"""Forgetting: what is barred, and what is blanked."""
