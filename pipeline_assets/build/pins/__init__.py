"""Pins: lists of input files with their hashes."""
