"""From a snapshot to judged answers: the extraction step and its parts."""
