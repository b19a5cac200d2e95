"""Stores outside the data root: object stores, folders and hub repositories."""
