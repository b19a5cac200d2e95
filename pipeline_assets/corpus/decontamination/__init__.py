"""Decontamination: documents that hold items of an evaluation set go, or lose what they hold of them."""
