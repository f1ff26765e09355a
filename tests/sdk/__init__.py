"""The agents' side: what `sdk/` promises."""
