"""Packing: documents of weighted sources in rows of equal length."""
