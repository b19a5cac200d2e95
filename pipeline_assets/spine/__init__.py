"""Locks, staging, seals and the engine, which keep artifacts intact."""
