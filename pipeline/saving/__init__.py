"""What a caller states itself: memories and custom types, saved without a model."""
