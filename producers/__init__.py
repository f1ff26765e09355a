"""What starts a message's journey."""
