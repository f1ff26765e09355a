"""The models that read conversations, behind the port `Model`."""
