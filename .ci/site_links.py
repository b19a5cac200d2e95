"""Links of the documentation site to files outside docs/, which the site does not contain."""

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./[^)]+\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace links to files of the repository by their text: a site has no such pages."""
    return _OUTSIDE.sub(r"\1", markdown)
