"""Laws over whatever input: hypothesis, and every order of what can happen at once."""
