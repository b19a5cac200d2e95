"""The official vectors and real rows, which lie beside the checkout; tests that need them are skipped without."""

from pathlib import Path

import pytest

SHARED = Path(__file__).parents[4] / "shared" / "data"
VECTORS = SHARED / "harmony" / "test-data"
RENDERED = SHARED / "harmony" / "rendered"
RENDERED_TOOLS = SHARED / "harmony" / "rendered_tools"
ROWS = SHARED / "nemotron" / "rows"

needs_shared_data = pytest.mark.skipif(not VECTORS.is_dir(), reason=f"there is no {VECTORS}")
