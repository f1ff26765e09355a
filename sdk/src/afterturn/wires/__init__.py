"""How vendors' conversations look on the wire: one module for each of their formats."""
