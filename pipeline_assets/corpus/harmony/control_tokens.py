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
