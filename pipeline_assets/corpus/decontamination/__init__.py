"""Decontamination: finds items of evaluation sets in documents and removes them."""
