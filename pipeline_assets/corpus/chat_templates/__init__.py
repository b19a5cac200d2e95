"""Conversations rendered by a model's own chat template, with proved loss masks."""
