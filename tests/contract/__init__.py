"""What crosses a wire, as files: golden JSON of every event, old versions included."""
