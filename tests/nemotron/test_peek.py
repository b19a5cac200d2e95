"""A look at a conversation: what counts in the loss is marked."""

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_results import Corpusmill
from nemotron_build import row, run
from nemotron_hub import made_rows
from terminal_output import terminal

from pipeline_assets.commands.peek import peek
from pipeline_assets.corpus.harmony.encode import loss_spans
from pipeline_assets.corpus.harmony.parse import parse_harmony
from pipeline_assets.corpus.nemotron.rows_recipe import RowsRecipe

MODES = [
    {"mode": "assistant_last"},
    *(
        {"mode": "assistant_all", "analysis": analysis, "calls": calls}
        for analysis in (False, True)
        for calls in (False, True)
    ),
]
NO_HARMONY = "built as no Harmony,\x1b[31m red"
ODD = {"role": "assistant", "reasoning_content": "\n", "content": "built 🧿\n\n▌ is said\x1b[2J\x9b1m\tby 日本\n"}
ROWS = [
    *made_rows("tool_calling"),
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
def made(corpusmill: Corpusmill, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """What the recipe of a mode made, by its number."""

    @functools.cache
    def build(mode: int) -> Path:
        keys: dict[str, Any] = {"deduplicate": {"min_completion_tokens": 0}, "hf_layout": {}}
        keys |= {"rows": {"loss": MODES[mode]}, "pools": {"rules": {"short": ["stats_tokens > 0"]}}}
        return run(corpusmill, tmp_path_factory.mktemp("peek"), {"chats": {"low": ROWS}}, **keys)

    return build


def marked(shown: str) -> list[str]:
    """Bodies of which every line has the mark, in order."""
    conversation = shown.split("\n▌ counts in the loss\n\n")[1].removesuffix("\n").split("\n")
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
def test_what_counts_is_marked_and_told(
    made: Callable[[int], Path], mode: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for place, rows in STEPS.items():
        for number in rows:
            peek(made(mode) / place, number, as_json=True)
            told = json.loads(capsys.readouterr().out)
            peek(made(mode) / place, number)
            shown = capsys.readouterr().out

            loss = RowsRecipe.from_content({"loss": MODES[mode]}).loss_mode
            expected = loss_spans(parse_harmony(told["text"]), loss) if told["doc_id"] != "no harmony" else []
            assert [tuple(span) for span in told["loss_spans"]] == expected
            if told["doc_id"] not in ("no harmony", "long"):
                said = (told["text"][start:stop] for start, stop in expected)
                visible = (body.replace("\x1b", "␛").replace("\x9b", "\\u009b") for body in said if body)
                assert marked(shown) == [*visible]


def test_long_messages_are_cut_alone_and_others_as_one(corpusmill: Corpusmill, made: Callable[[int], Path]) -> None:
    folder = made(0) / "normalized_shards/chats/low"

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


def test_on_a_terminal_the_conversation_is_coloured_and_the_mark_stays(
    made: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, screen = made(0) / "normalized_shards/chats/low", terminal(monkeypatch)
    peek(folder, 4)
    coloured, plain = screen.getvalue(), terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    peek(folder, 4)

    assert "  \x1b[34m<|start|>user<|message|>\x1b[0m\n  2 + 2?\n  \x1b[34m<|end|>\x1b[0m\n" in coloured
    body = ["built 🧿", "", "▌ is said␛[2J\\u009b1m\tby 日本", ""]
    assert "".join(f"\x1b[32m▌ {line}\x1b[0m\n" for line in body) + "  \x1b[36m<|return|>\x1b[0m\n" in coloured
    assert re.sub(r"\x1b\[(3[2-6]|0)m", "", coloured) == plain.getvalue()
    assert "\x1b" not in plain.getvalue() and "\x9b" not in coloured


def test_prompts_have_no_loss(corpusmill: Corpusmill, made: Callable[[int], Path]) -> None:
    told = json.loads(corpusmill("peek", made(0) / "prompts/chats/low", "--json").stdout)

    assert "loss_spans" not in told
