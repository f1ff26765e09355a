"""What is kept when something breaks."""
