"""Readers that convert the files of a source to rows."""
