"""Tokenizer whose tokens are words, as a tokenizer.json."""

import json
from pathlib import Path

END, FIRST_WORD = 1, 2


def encode_words(text: str) -> list[int]:
    """Return the ids of words and of the end."""
    return [*(FIRST_WORD + int(word[1:]) for word in text.split()), END]


def write_tokenizer(folder: Path) -> Path:
    """Write a tokenizer.json whose tokens are the words w0 … w49."""
    path = folder / "tokenizer.json"
    vocabulary = {"<unk>": 0, "<end>": END, **{f"w{number}": FIRST_WORD + number for number in range(50)}}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": END, "content": "<end>", **flags}],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
    }
    path.write_text(json.dumps(content))
    return path
