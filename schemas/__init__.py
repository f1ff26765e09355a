"""What things are: frozen pydantic models with no behaviour beyond validation."""
