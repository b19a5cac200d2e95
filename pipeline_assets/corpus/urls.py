"""Normalized URLs, which are compared with blocklists and removal lists."""

import contextlib
import re

_URL = re.compile(
    r"(?:(?:[a-z][a-z0-9+.-]*:)?//)?(?:[^/?#]*@)?(\[[^\]]*\]|(?!\[)[^/?#:]*|)(:[0-9]*)?([^?#]*)(\?[^#]*)?", re.I
)
_MAX_NAME_CHARACTERS = 253  # RFC 1035, 2.3.4: 255 octets, with the lengths of the labels


def split_url(url: str) -> tuple[str, str]:
    """Split a URL into host and remainder (port, path and query), both normalized.

    Scheme, user, fragment, a default port (80 or 443) and slashes at the end of the path are omitted. The host is in
    lower case and IDNA-encoded, or "" if the URL has none.
    """
    match = _URL.match(url.strip())
    host, port, path, query = (part or "" for part in match.groups()) if match else ("", "", "", "")
    host = host.lower().strip(".")
    with contextlib.suppress(UnicodeError):  # a host that IDNA refuses stays as it is
        host = host if host.isascii() else host.encode("idna").decode()
    return host, f"{'' if port in (':', ':80', ':443') else port}{path.rstrip('/')}{query}"


def list_domains(url: str) -> list[str]:
    """Return the host of a URL, then its parent domains up to the top-level domain.

    For a URL without a host, the only entry is "". Longer parents than a name in DNS are left out: a text of thousands
    of dots in place of a URL would have gigabytes of them.
    """
    host = split_url(url)[0]
    labels = host[-_MAX_NAME_CHARACTERS:].split(".")
    return [host, *(".".join(labels[first:]) for first in range(1, len(labels)))]
