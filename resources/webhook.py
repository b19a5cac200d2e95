"""Address that receives a message for each failed run.

The address is a secret: no message or log contains it.
"""

import os
import urllib.parse

from pipeline_assets.spine.errors import UsageError

WEBHOOK = "CORPUSMILL_WEBHOOK"


def webhook_address() -> str | None:
    """Return the address in CORPUSMILL_WEBHOOK; None if unset, UsageError if invalid."""
    address = os.environ.get(WEBHOOK, "")
    if not address:
        return None
    try:
        parts = urllib.parse.urlsplit(address)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    # urllib sends neither credentials in an address nor characters outside ASCII.
    if not is_address or "@" in parts.netloc or " " in address or not (address.isascii() and address.isprintable()):
        what = f"{len(address)} characters that are not an http or https address"
        raise UsageError(what, WEBHOOK, "write it as https://HOST/PATH, without user and spaces, or unset it")
    return address
