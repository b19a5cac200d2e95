"""File formats: reader and writer of each together."""
