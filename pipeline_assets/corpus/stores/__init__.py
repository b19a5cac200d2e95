"""Stores outside the data root: object stores, mirror folders and repositories on a hub."""
