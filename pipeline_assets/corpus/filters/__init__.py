"""Filters, which drop or change documents by the rules of a recipe."""
