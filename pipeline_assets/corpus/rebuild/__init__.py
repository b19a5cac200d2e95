"""A rebuild: an artifact made again from its manifest, beside the sealed one, and held against it."""
