"""Deduplication: bands propose, the text decides, and every decision is written down."""
