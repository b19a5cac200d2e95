"""Rows with unique words, which tests forget."""

import contextlib
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import zstandard
from plain_search import o200k, sentencepiece_decoder
from stage_a_build import local_source, parse_recipe

from pipeline_assets.build.recipe import Recipe
from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.commands.forget import forget
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.engine import RunSettings

VOCABULARY_PATH = Path(__file__).parents[2] / "pipeline_assets/corpus/tokens/o200k_base.tiktoken"


def marker(number: int) -> str:
    """Return a word that only one row has."""
    return f"m{number * 7919 % 99991:05d}m"


def row_text(number: int) -> str:
    words = Random(number).choices(("river", "stone", "bread", "light", "harbour", "window", "garden"), k=25)
    return " ".join([*words, marker(number), *words[::-1]])


def rows(count: int) -> list[dict[str, Any]]:
    return [{"text": row_text(number), "key": f"note_{number}", "url": None} for number in range(count)]


def markers(recipe: Recipe, root: Path) -> dict[str, str]:
    """Return the marker of each row that was read from a source, by id."""
    found = {}
    for target in recipe.targets():
        for path in (root / target.folder).rglob("*") if target.kind.applies_removals else ():
            if path.suffix == ".parquet":
                lines = pq.read_table(path, columns=["id", "text"]).to_pylist()
            elif path.match("shards/*.zst"):
                with open(path, "rb") as file:
                    data = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read()
                lines = [json.loads(line) for line in data.splitlines()]
            elif path.name == "manifest.jsonl":
                lines = [{"id": pair["uid"], "text": pair["src_text"]} for pair in map(json.loads, path.open())]
            else:
                continue
            for line in lines:
                word = re.search(r"m[0-9]{5}m|[0-9a-f]{2000}", line["text"])
                assert word is not None
                found[line.get("doc_id") or line["id"]] = word[0]
    return found


def build(recipe: Recipe, run: Run) -> dict[str, str]:
    """Build all artifacts, and return their digests by role."""
    for outcome in run_targets(recipe.targets(), run):
        assert outcome.failure is None
    return {target.role: open_artifact(run.root / target.folder).manifest.digest for target in recipe.targets()}


def run_forget(root: Path, **options: Any) -> dict[str, Any]:
    """Return the answer of `corpusmill forget --json`."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        forget(data=root, as_json=True, **options)
    answer: dict[str, Any] = json.loads(printed.getvalue())
    return answer


def forget_ids(root: Path, ids: list[str]) -> dict[str, Any]:
    path = root.parent / "ids.txt"
    path.write_text("\n".join(ids))
    return run_forget(root, ids=path, reason="request 7", apply=True)


def decoder(root: Path) -> Callable[[list[int]], str]:
    models = [*root.rglob("*.model")]
    return sentencepiece_decoder(models[0]) if models else o200k(VOCABULARY_PATH)


def sources(folder: Path, *names: str, **changes: Any) -> Recipe:
    """Return a recipe that normalizes sources of 60 notes, each in several shards."""
    sections = [
        local_source(folder, name, [{**row, "text": f"{name} {row['text']}"} for row in rows(60)]) for name in names
    ]
    return parse_recipe(*sections, shard_text_bytes=3000, outputs={"up_to": "normalized"}, **changes)


def built_sources(folder: Path, *names: str, **settings: Any) -> tuple[Path, Recipe]:
    """Build normalized sources; return the data root and their recipe."""
    root, recipe = folder / "data", sources(folder / "in", *names)
    build(recipe, run_in(root, **settings))
    return root, recipe


def run_in(root: Path, **settings: Any) -> Run:
    return Run(root, settings.pop("engine", RunSettings()), **settings)
