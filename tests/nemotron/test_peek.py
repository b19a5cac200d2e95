"""Previews of a conversation, in which the lines of the loss are marked."""

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_results import Corpusmill
from nemotron_build import row, run
from nemotron_hub import synthetic_rows
from terminal_output import terminal

from pipeline_assets.commands.peek import peek
from pipeline_assets.corpus.harmony.encode import loss_spans
from pipeline_assets.corpus.harmony.parse import parse_harmony
from pipeline_assets.corpus.nemotron.rows_recipe import RowsRecipe

MODES = [{"mode": "assistant_last"}, {"mode": "assistant_all", "analysis": True, "calls": False}]
NO_HARMONY = "built as no Harmony,\x1b[31m red"
ODD = {"role": "assistant", "reasoning_content": "\n", "content": "built 🧿\n\n▌ is said\x1b[2J\x9b1m\tby 日本\n"}
ROWS = [
    *synthetic_rows("tool_calling"),
    row("two turns", "built?", "One."),
    row("odd", "2 + 2?") | {"messages": [{"role": "user", "content": "2 + 2?"}, ODD]},
    row("nothing", "And?", ""),
    row("long", "?" * 2_001, "!" * 2_000 + "\n!"),
    {"uuid": "no harmony", "text": NO_HARMONY},
]
ROWS[3]["messages"] *= 2
STEPS = {
    "normalized_shards/chats/low": range(len(ROWS)),
    "deduplicated/chats/low": [0],
    "hf_layout/chats": [0],
    "candidate_pools/chats": [0],
}


@pytest.fixture(scope="module")
def built(corpusmill: Corpusmill, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Build the recipe of a mode on the first request and return its folder."""

    @functools.cache
    def build(mode: int) -> Path:
        keys: dict[str, Any] = {"deduplicate": {"min_completion_tokens": 0}, "hf_layout": {}}
        keys |= {"rows": {"loss": MODES[mode]}, "pools": {"rules": {"short": ["stats_tokens > 0"]}}}
        return run(corpusmill, tmp_path_factory.mktemp("peek"), {"chats": {"low": ROWS}}, **keys)

    return build


def marked_bodies(output: str) -> list[str]:
    """Return the bodies whose lines all have the mark, in order."""
    conversation = output.split("\n▌ counts in the loss\n\n")[1].removesuffix("\n").split("\n")
    bodies: list[list[str]] = []
    for line in conversation:
        if line.startswith("  <|start|>"):
            bodies.append([])
        elif line.startswith("▌ "):
            bodies[-1].append(line[2:])
        else:
            assert line.startswith("  ")
    return ["\n".join(lines) for lines in bodies if lines]


@pytest.mark.parametrize("mode", range(len(MODES)), ids=lambda mode: "-".join(map(str, MODES[mode].values())))
def test_loss_spans_are_marked_and_listed(
    built: Callable[[int], Path], mode: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for place, rows in STEPS.items():
        for number in rows:
            peek(built(mode) / place, number, as_json=True)
            content = json.loads(capsys.readouterr().out)
            peek(built(mode) / place, number)
            output = capsys.readouterr().out

            loss = RowsRecipe.from_content({"loss": MODES[mode]}).loss_mode
            expected = loss_spans(parse_harmony(content["text"]), loss) if content["doc_id"] != "no harmony" else []
            assert [tuple(span) for span in content["loss_spans"]] == expected
            if content["doc_id"] not in ("no harmony", "long"):
                texts = (content["text"][start:stop] for start, stop in expected)
                visible = (body.replace("\x1b", "␛").replace("\x9b", "\\u009b") for body in texts if body)
                assert marked_bodies(output) == [*visible]


def test_long_messages_are_cut_alone(corpusmill: Corpusmill, built: Callable[[int], Path]) -> None:
    folder = built(0) / "normalized_shards/chats/low"

    long, other = (corpusmill("peek", folder, "--row", number).stdout for number in (6, 7))

    lines = long.splitlines()
    assert lines[lines.index("  <|start|>user<|message|>") :] == [
        "  <|start|>user<|message|>",
        "  " + "?" * 2_000,
        "  … 1 more characters; --json gives all",
        "  <|end|>",
        "  <|start|>assistant<|channel|>final<|message|>",
        "▌ " + "!" * 2_000,
        "▌ … 2 more characters; --json gives all",
        "  <|return|>",
    ]
    assert other.endswith(f"\n\n{NO_HARMONY.replace(chr(27), '␛')}\n") and "▌" not in other


def test_terminal_output_is_coloured_and_marked(built: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, screen = built(0) / "normalized_shards/chats/low", terminal(monkeypatch)
    peek(folder, 4)
    coloured, plain = screen.getvalue(), terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    peek(folder, 4)

    assert "  \x1b[34m<|start|>user<|message|>\x1b[0m\n  2 + 2?\n  \x1b[34m<|end|>\x1b[0m\n" in coloured
    body = ["built 🧿", "", "▌ is said␛[2J\\u009b1m\tby 日本", ""]
    assert "".join(f"\x1b[32m▌ {line}\x1b[0m\n" for line in body) + "  \x1b[36m<|return|>\x1b[0m\n" in coloured
    assert re.sub(r"\x1b\[(3[2-6]|0)m", "", coloured) == plain.getvalue()
    assert "\x1b" not in plain.getvalue() and "\x9b" not in coloured


def test_prompts_have_no_loss(corpusmill: Corpusmill, built: Callable[[int], Path]) -> None:
    content = json.loads(corpusmill("peek", built(0) / "prompts/chats/low", "--json").stdout)

    assert "loss_spans" not in content
