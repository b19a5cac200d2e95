"""Fuzzed texts: Harmony, conditions of pools, dataset cards and recipes."""

import contextlib
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import yaml
from fuzz_edits import Reader

from pipeline_assets.build.recipe_paths import PROJECT_RECIPES_FOLDER
from pipeline_assets.corpus.harmony.encode import render_harmony
from pipeline_assets.corpus.harmony.message import SPECIAL_PATTERN, AnalysisMode, Ending, Message, Refusal, Role
from pipeline_assets.corpus.harmony.parse import basic_quality_flags_from_text, parse_harmony
from pipeline_assets.corpus.nemotron.pools_recipe import PoolsRecipe, parse_condition
from pipeline_assets.corpus.readers.hub_configs import find_split_files, parse_configs
from pipeline_assets.spine.errors import InputError
from pipeline_assets.systems.registry import SYSTEMS

GOLDEN = Path(__file__).parents[1] / "golden"
_TOKENS = ("<|start|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>", "<|", "|>")
_HEADERS = ("assistant", " to=functions.f", "analysis", "commentary", "final", "user", "tool", "functions.f", " to=")
_SQL = (
    *(" AND ", " OR ", " NOT ", " IN (", " BETWEEN 1 AND 2", " LIKE '%a_'", " IS NULL", " CASE WHEN ", " THEN 1 END"),
    *(" = ", "<>", "||", "::int", "--", "/*", "*/", "''", "(", ")", "LENGTH(", "REGEXP_LIKE(id, '(a*)*b')", " * 9e9"),
    *(
        "SELECT 1",
        ";",
        "CAST(",
        "DATE '2020-01-01'",
        " / 0",
        "stats_tokens",
        "quality_is_duplicate",
        "{",
        "$1",
        "?",
        "`",
    ),
)
_YAML = ("&a ", "*a", "<<: ", "!!python/object:os.system ", "!!binary ", "? ", "- ", "|\n", ">\n", "---\n", "# ", "%")


def _harmony_texts() -> list[bytes]:
    conversation = [
        Message(Role.SYSTEM, "Be kind.\nReasoning: high"),
        Message(Role.DEVELOPER, "# Tools\n\n## functions\n\nnamespace functions {\n\ntype f = () => any;\n\n}"),
        Message(Role.USER, "Bonjour, 漢字 🙂?"),
        Message(Role.ASSISTANT, "thinking", channel="analysis"),
        Message(Role.ASSISTANT, '{"a": 1}', None, "functions.f", "commentary", "<|constrain|>json"),
        Message(Role.TOOL, '{"b": []}', "functions.f", "assistant", "commentary"),
        Message(Role.ASSISTANT, "done", channel="final"),
    ]
    cuts = (conversation, conversation[2:3], conversation[:4], [])
    texts = [
        render_harmony(part, analysis=AnalysisMode.KEEP, ending=ending).text
        for part in cuts
        for ending in (Ending.CONVERSATION, Ending.COMPLETION)
    ]
    return [text.encode() for text in texts]


def _read_harmony(data: bytes, folder: Path) -> None:
    """Parse with each ending and opening; refuse what none of them accepts."""
    text = data.decode("utf-8", "surrogateescape")
    basic_quality_flags_from_text(data.decode("utf-8", "replace"))
    refusals: list[Refusal] = []
    endings: Sequence[Literal["closed", "next_role", "open"]] = ("closed", "next_role", "open")
    for ending, opening in itertools.product(endings, (None, Role.ASSISTANT)):
        try:
            parsed = parse_harmony(text, opening=opening, ending=ending)
        except Refusal as refusal:
            refusals.append(refusal)
        else:
            assert all(SPECIAL_PATTERN.search(message.content) is None for message in parsed.conversation)
    if len(refusals) == 2 * len(endings):
        raise refusals[0]


def _conditions() -> list[bytes]:
    pages = (yaml.safe_load(path.read_text()) for path in sorted(PROJECT_RECIPES_FOLDER.glob("nemotron*.yaml")))
    rules = [page["pools"]["rules"] for page in pages if (page.get("pools") or {}).get("rules")]
    found = [condition for rule in rules for pool in rule.values() for condition in pool]
    more = [
        "stats_tokens BETWEEN 10 AND 4000 AND quality_valid_harmony",
        "(dataset LIKE 'math%' OR meta_domain IN ('code', 'science')) AND NOT quality_is_duplicate",
        "(stats_tokens / 2.5 > 100) = (id IS NOT NULL) OR id = 'it''s'",
        "LENGTH(id) + 2 * stats_turns >= 7 AND COALESCE(meta_domain, 'none') <> 'none'",
    ]
    return [condition.encode() for condition in [*found, *more]]


def _read_condition(data: bytes, folder: Path) -> None:
    parse_condition("stats_tokens > 0")  # imports polars and sqlglot
    PoolsRecipe.from_mapping({"rules": {"mine": [data.decode("utf-8", "replace")]}}, "mine.yaml")


_CARD = """---
license: cc-by-4.0
configs:
- config_name: eng_Latn
  data_files:
  - split: train
    path: data/eng_Latn/train/*
  - {split: test, path: ["data/a.parquet", "data/**/b.parquet"]}
- config_name: all
  data_dir: data
- {config_name: one, data_files: data/*.jsonl}
---
# Data
"""
_PATHS = ["data/eng_Latn/train/0.parquet", "data/a.parquet", "data/x/b.parquet", "data/c.jsonl", "README.md"]


def _cards() -> list[bytes]:
    return [_CARD.encode(), (GOLDEN / "dataset_card.md").read_bytes()]


def _read_card(data: bytes, folder: Path) -> None:
    for config in [None, *parse_configs(data.decode("utf-8", "replace"), "the card")]:
        for split in ("train", "test"):
            find_split_files(config, split, _PATHS, "the card")


def _recipes() -> list[bytes]:
    return [path.read_bytes() for path in sorted(PROJECT_RECIPES_FOLDER.glob("*.yaml"))]


def _read_recipe(data: bytes, folder: Path) -> None:
    path = folder / "recipe.yaml"
    path.write_bytes(data)
    with contextlib.suppress(InputError):  # the folders of a valid recipe are missing here
        SYSTEMS.read_recipe(path, folder)
    SYSTEMS.read_recipe(path)


def _pieces(*texts: Sequence[str]) -> list[bytes]:
    return [text.encode() for group in texts for text in group]


READERS: Sequence[Reader] = (
    Reader("Harmony texts", _harmony_texts, _read_harmony, (Refusal,), _pieces(_TOKENS, _HEADERS)),
    Reader("pool conditions", _conditions, _read_condition, pieces=_pieces(_SQL)),
    Reader("dataset cards", _cards, _read_card, pieces=_pieces(_YAML, ("configs:\n", "path: ", "**", "a**"))),
    # The command line reports an OSError, as of a file name that is too long, in one line.
    Reader("recipes", _recipes, _read_recipe, (InputError, OSError), _pieces(_YAML), form="yaml"),
)
