"""Filters of documents by rules, language, length, repetition and C4."""
