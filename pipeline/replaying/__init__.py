"""Extracting again: what is begun, when it takes the place of what counted, what that changes."""
