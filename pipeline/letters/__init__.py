"""What operators do with dead letters: look at them in groups, send them back, or discard them."""
