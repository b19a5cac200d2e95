"""Addresses without the secrets in them."""

import re


def redact_address(address: str) -> str:
    """Cut user, password, query and fragment from an address, for a message."""
    return re.sub(r"(?s)^(.*?://)?.*@|[?#].*", r"\1", address)
