"""Paths of the official Harmony vectors in the folder of real samples."""

VECTORS = "harmony/test-data"
RENDERED = "harmony/rendered"
RENDERED_TOOLS = "harmony/rendered_tools"
