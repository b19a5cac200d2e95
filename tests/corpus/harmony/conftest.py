"""Fixtures for tests of Harmony."""
