"""Locks, staging, seals and the engine, which keep artifacts intact.

The package knows nothing about text.
"""
