"""A project's settings: reading, judging and keeping them."""
