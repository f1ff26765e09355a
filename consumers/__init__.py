"""Thin consumers: decode nothing, call one step, settle, commit."""
