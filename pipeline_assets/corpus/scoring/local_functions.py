"""Modal functions of the app, if `modal run` runs the app in this process."""

from typing import Any

LOCAL_FUNCTIONS: dict[str, Any] = {}
"""Functions by name. `modal run` adds the functions of its app; other names are called in the deployed app."""
