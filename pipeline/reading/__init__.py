"""Reading: finding what answers a question, within one scope."""
