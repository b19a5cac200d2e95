"""Modal functions of an app that this process runs."""

from typing import Any

LOCAL_FUNCTIONS: dict[str, Any] = {}
"""Functions by name. `modal run` adds those of its app; if a name is missing, that of the deployed app is called."""
