"""Harmony's control tokens, and where a text has one.

Seven give a conversation its form (openai/harmony, docs/format.md, "Special Tokens"). Content may hold none of them,
nor any other text that the vocabulary has a special id for: Harmony knows no escape, so whoever encodes such a text
with special tokens allowed would read it as structure.
"""

import re

START, MESSAGE, CHANNEL, CONSTRAIN = "<|start|>", "<|message|>", "<|channel|>", "<|constrain|>"
END, CALL, RETURN = "<|end|>", "<|call|>", "<|return|>"
STRUCTURE = (START, MESSAGE, CHANNEL, CONSTRAIN, END, CALL, RETURN)

# tiktoken's o200k_harmony has <|endofprompt|> where openai-harmony has a reserved name; <|reserved_201088|> is
# openai-harmony's alone. Reserved names of ids that have another name are no tokens; they are matched all the same.
SPECIAL = re.compile(
    r"<\|(?:start|message|channel|constrain|end|call|return|startoftext|endoftext|endofprompt"
    r"|reserved_20(?:0\d{3}|10[0-7]\d|108[0-8]))\|>"
)
STRUCTURE_OR_TEXT = re.compile(f"({'|'.join(map(re.escape, STRUCTURE))})")
_MOST_BARS = 16


def first_special(text: str, start: int, stop: int) -> re.Match[str] | None:
    """The first match of `SPECIAL` in a part of a text.

    Contents are long and hold none. A single character is found many times faster than two, and `|` is rare in most of
    them; in a table, where it isn't, two are looked for after some.
    """
    place = start
    for _ in range(_MOST_BARS):
        bar = text.find("|", place, stop)
        if bar < 0:
            return None
        place = bar + 1
        if bar > start and text[bar - 1] == "<" and (found := SPECIAL.match(text, bar - 1, stop)):
            return found
    return SPECIAL.search(text, place - 1, stop)
