"""Modal functions of the app that `modal run` started in this process."""

from typing import Any

LOCAL_FUNCTIONS: dict[str, Any] = {}
"""Functions by name, which `modal run` adds. A function that is missing here is called in the deployed app."""
