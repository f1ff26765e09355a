"""Our stores, steps and consumers on real services."""
