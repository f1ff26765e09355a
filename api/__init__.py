"""HTTP for agents."""
