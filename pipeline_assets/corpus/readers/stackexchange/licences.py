"""Which Creative Commons licence a post is under, and a thread of posts.

Stack Exchange: contributions before 2011-04-08 (UTC) are under CC BY-SA 2.5, from then to before 2018-05-02 under 3.0,
from then on under 4.0 (stackoverflow.com/help/licensing). Newer dumps say it for each post in `ContentLicense`.

A thread is tagged with the newest licence of its posts: each version lets an adaptation, as a joined text is, be under
a later one (2.5 §4b, 3.0 §4b). Each post's own stays in `meta`. One post of an unknown licence makes it `unknown`.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

UNKNOWN = "unknown"
_SINCE = (("2018-05-02", "cc-by-sa-4.0"), ("2011-04-08", "cc-by-sa-3.0"), ("", "cc-by-sa-2.5"))
_NAME = re.compile(r"CC BY-SA (2\.5|3\.0|4\.0)")


@dataclass(frozen=True)
class Licence:
    """A tag, and what it was told from."""

    tag: str
    evidence: str


@lru_cache(maxsize=10_000)
def licence_of_post(content_license: str | None, created_on: str) -> Licence:
    """
    Args:
        content_license: the attribute; None where the dump has none.
        created_on: ISO 8601 date, UTC.
    """
    if content_license is not None:
        version = _NAME.fullmatch(content_license)
        tag = f"cc-by-sa-{version[1]}" if version else UNKNOWN
        return Licence(tag, "row: ContentLicense" if version else f"row: ContentLicense {content_license}")
    tag = next(tag for since, tag in _SINCE if created_on >= since)
    return Licence(tag, f"date: {created_on}")


def licence_of_thread(posts: Sequence[Licence]) -> Licence:
    """The newest licence of its posts, the question's first; the evidence counts them if they differ."""
    if len({licence.tag for licence in posts}) == 1:
        return posts[0]
    tags = Counter(licence.tag for licence in posts)
    newest = max(posts, key=lambda licence: (licence.tag == UNKNOWN, licence.tag))
    counted = ", ".join(f"{count} {tag}" for tag, count in sorted(tags.items()))
    return Licence(newest.tag, f"{newest.evidence}; newest of {counted}")
