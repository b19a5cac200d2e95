"""Seeded Nemotron conversations with tools, calls, reasoning and odd texts."""

import json
import random
from typing import Any

Row = dict[str, Any]
_WORDS = [
    "moon",
    "Paris",
    "naïve",
    "数学",
    "🙂",
    "x²",
    "e\u0301",
    "don't",
    "}}",
    '"quoted"',
    "<b>",
    "{{ x }}",
    "\\n",
    "1,000",
]
_EDGES = ["", "", "", " ", "\n", "\n\n", "\t", ".", ".\n", ":\n\n", "  "]
_TOOL = {"type": "object", "properties": {"word": {"type": "string"}, "limit": {"type": "integer"}}}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": f"To {name} it.", "parameters": _TOOL}}
    for name in ("lookup", "fetch", "count_items")
]


def _text(dice: random.Random, empty: float = 0.0) -> str:
    if dice.random() < empty:
        return dice.choice(["", "", " ", "\n"])
    body = " ".join(dice.choice(_WORDS) for _ in range(dice.randint(1, 12)))
    body = body.replace(" ", dice.choice([" ", " ", "\n", " \n "]), 1)
    return dice.choice(_EDGES) + body + dice.choice(_EDGES)


def _arguments(dice: random.Random) -> Any:
    values: list[Any] = [
        _text(dice),
        dice.randint(-5, 10**6),
        1.5,
        True,
        None,
        [1, _text(dice)],
        {"a": {"b": "c d"}},
        "",
    ]
    drawn = {name: dice.choice(values) for name in dice.sample(["word", "limit", "where", "näme"], dice.randint(0, 3))}
    return dice.choice([drawn, json.dumps(drawn), json.dumps(drawn, ensure_ascii=False, indent=1)])


def _calls(dice: random.Random, turn: int) -> list[Row]:
    messages: list[Row] = []
    for step in range(dice.choice([1, 1, 2])):
        names = [dice.choice(TOOLS)["function"]["name"] for _ in range(dice.choice([1, 1, 1, 2, 3]))]
        ids = [f"call_{turn}_{step}_{number}" for number in range(len(names))]
        calls = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": _arguments(dice)}}
            for call_id, name in zip(ids, names, strict=True)
        ]
        content = _text(dice) if dice.random() < 0.3 else None
        message: Row = {"role": "assistant", "content": content, "tool_calls": calls}
        if dice.random() < 0.4:
            message["reasoning_content"] = _text(dice)
        messages.append(message)
        messages += [{"role": "tool", "tool_call_id": call_id, "content": _text(dice, empty=0.2)} for call_id in ids]
    return messages


def seeded_row(seed: int) -> Row:
    """Return a seeded conversation of one to four turns; the assistant ends it."""
    dice = random.Random(seed)
    messages: list[Row] = []
    if dice.random() < 0.5:
        messages.append({"role": "system", "content": _text(dice, empty=0.2)})
    has_tools = dice.random() < 0.5
    for turn in range(dice.choice([1, 1, 2, 3, 4])):
        messages.append({"role": "user", "content": _text(dice, empty=0.05)})
        if has_tools and dice.random() < 0.7:
            messages += _calls(dice, turn)
        answer: Row = {"role": "assistant", "content": _text(dice, empty=0.1)}
        if dice.random() < 0.5:
            answer["reasoning_content"] = _text(dice)
        messages.append(answer)
    row: Row = {"uuid": f"made-{seed}", "messages": messages}
    return row | ({"tools": TOOLS} if has_tools else {})
