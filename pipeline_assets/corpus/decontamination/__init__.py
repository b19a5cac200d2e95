"""Decontamination: drops or cuts documents that contain evaluation items."""
