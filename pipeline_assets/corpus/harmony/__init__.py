"""Harmony conversations: messages to text and back, with exact spans; the only parser and renderer of the format."""
