"""Jobs of operators: who runs one, what operators do with it, whatever kind it is."""
