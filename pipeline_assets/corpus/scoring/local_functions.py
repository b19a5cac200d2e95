"""Modal functions of an app that this process runs."""

from typing import Any

LOCAL_FUNCTIONS: dict[str, Any] = {}
"""Functions by name. `modal run` adds the functions of its app; other names are called in the deployed app."""
