r"""Text checks: unknown channels, control characters and damaged LaTeX words.

JSON reads the start of some LaTeX words, such as `\boxed`, as a control character. `restore_latex` restores such words,
except in tool calls.
"""

import re
from collections import Counter

import msgspec

from pipeline_assets.corpus.harmony.message import Message
from pipeline_assets.corpus.harmony.parse import ParsedText
from pipeline_assets.corpus.readers.nesting import limit_text_nesting

# LaTeX words after the `\b`, `\f` or `\t` that JSON reads as a control character; after a tab, only unmistakable ones.
_LATEX_WORDS = {
    "\b": "ackslash|ar|ecause|egin|eta|f|ig[lr]?|igcap|igcup|igg[lr]?|inom|m|mod|oldsymbol|ot|ox|oxed|ullet",
    "\f": "box|lat|orall|rac|rown",
    "\t": r"ext(?:bf|it|rm|tt)?(?=\{)|frac|heta|imes|riangle",
}
_BROKEN_LATEX = re.compile("|".join(f"{control}(?=(?:{words})(?![a-zA-Z]))" for control, words in _LATEX_WORDS.items()))
_LATEX_ESCAPES = str.maketrans({"\b": r"\b", "\f": r"\f", "\t": r"\t"})
_KNOWN_CHANNELS = frozenset({None, "analysis", "commentary", "final"})
_CONTROL_CHARACTERS = bytes(code for code in (*range(32), 127) if code not in b"\t\n\r")
_JSON_START = re.compile(r"\s*[{\[]")
_CONTROL_ESCAPE = re.compile(r"\\(?:([bf]|u00(?:0[0-8bcefBCEF]|1[0-9a-fA-F]|7[fF]))|.)", re.DOTALL)


def restore_latex(message: Message, counts: Counter[str]) -> Message:
    r"""Restore and count LaTeX words such as `\boxed`; leave tool calls unchanged."""
    content, count = _BROKEN_LATEX.subn(lambda match: match.group().translate(_LATEX_ESCAPES), message.content)
    if message.is_call or not count:
        return message
    counts["latex_restored"] += count
    return message._replace(content=content)


def has_known_channels(parsed: ParsedText) -> bool | None:
    """Check that no message has an unknown channel; return None for invalid Harmony."""
    return all(message.channel in _KNOWN_CHANNELS for message in parsed.conversation) if parsed.messages else None


def count_control_characters(parsed: ParsedText) -> int:
    r"""Count control characters in a text, and escapes of them in its JSON messages.

    Control characters are U+0000 to U+001F except tab, line feed and carriage return, and U+007F. U+0008 in particular
    results from LaTeX's `\boxed` and `\begin` in JSON with a single backslash.
    """
    raw = len(parsed.utf8) - len(parsed.utf8.translate(None, _CONTROL_CHARACTERS))
    contents = (message.content for message in parsed.conversation)
    return raw + sum(_count_escapes(content) for content in contents if _JSON_START.match(content))


def _count_escapes(content: str) -> int:
    """Count escapes of control characters in JSON; 0 for other content, such as LaTeX."""
    count = sum(match.group(1) is not None for match in _CONTROL_ESCAPE.finditer(content)) if "\\" in content else 0
    if not count:
        return 0
    try:
        limit_text_nesting(content)
        msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError):
        return 0
    return count
