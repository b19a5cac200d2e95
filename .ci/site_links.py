"""Links of the documentation site to files outside docs/."""

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./[^)]+\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace links to files by their text, because the site does not contain them."""
    return _OUTSIDE.sub(r"\1", markdown)
