"""Packing of documents from weighted sources into rows of equal length."""
