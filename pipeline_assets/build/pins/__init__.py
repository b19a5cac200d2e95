"""Pins: artifacts that list input files with their hashes."""
