"""What happens: steps as functions of values and ports. No broker, no web framework."""
