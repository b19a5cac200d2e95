"""Deduplication: exact copies and near duplicates, with a decision per document."""
