"""Files of the repository's top level that every installation needs.

`pipeline_assets/shipped` has links to them. A wheel has copies in place of the links, so that one path works in a
checkout, in an editable installation and in an installed wheel.
"""

import importlib.resources
from pathlib import Path


def shipped_path(name: str) -> Path:
    """Return the path of a shipped file or folder, with the links resolved."""
    return Path(str(importlib.resources.files("pipeline_assets") / "shipped" / name)).resolve()
