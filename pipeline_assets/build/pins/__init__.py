"""Pins: lists of the files of a hub at a commit, or of a folder, with their hashes."""
