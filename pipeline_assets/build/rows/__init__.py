"""Rows of sealed artifacts: reading, tracing, comparison and export."""
