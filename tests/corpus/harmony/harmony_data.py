"""Places of the official vectors, and of what openai-harmony rendered, in the folder of real samples."""

VECTORS = "harmony/test-data"
RENDERED = "harmony/rendered"
RENDERED_TOOLS = "harmony/rendered_tools"
