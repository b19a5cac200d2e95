"""Filters: which documents stay, why the others go, and what is changed in those that stay."""
