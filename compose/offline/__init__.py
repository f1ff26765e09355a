"""The offline extractor: rules behind an OpenAI-compatible endpoint, for where no model is set.

It is no language model. It picks sentences by general rules, is deterministic, and says so.
"""
