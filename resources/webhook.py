"""Address that receives a message for each failed run.

The address is a secret: no message or log contains it.
"""

import os
import urllib.parse
from collections.abc import Mapping

from pipeline_assets.spine.errors import UsageError

WEBHOOK_VARIABLE = "CORPUSMILL_WEBHOOK"


def webhook_address(variables: Mapping[str, str] = os.environ) -> str | None:
    """Return the address in CORPUSMILL_WEBHOOK; None if unset, UsageError if invalid."""
    address = variables.get(WEBHOOK_VARIABLE, "")
    if not address:
        return None
    try:
        parts = urllib.parse.urlsplit(address)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    # urllib sends neither credentials in an address nor characters outside ASCII.
    if not is_address or "@" in parts.netloc or " " in address or not (address.isascii() and address.isprintable()):
        what = f"must be an http or https address, got {len(address)} other characters"
        raise UsageError(what, WEBHOOK_VARIABLE, "write it as https://HOST/PATH, without user and spaces, or unset it")
    return address
