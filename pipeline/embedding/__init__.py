"""Vectors of texts: who makes them, and when a record has those of its words."""
