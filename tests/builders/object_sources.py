"""Sources of three files in an object store, and builds of them."""

import json
from collections.abc import Sequence
from pathlib import Path

from object_server import ObjectServer
from stage_a_build import local_source, parse_recipe

from pipeline_assets.build.run import Run
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.stage_a import StageARecipe

URL = "s3://bucket/corpora/notes"
NAMES = ("a/rows-0.jsonl", "a/rows-1.jsonl", "b/deep/rows-2.jsonl")
INLINE = RunSettings(workers=0, fetch_threads=1)


def to_lines(name: str, count: int = 30) -> bytes:
    rows = ({"key": f"{name}-{number}", "text": f"Note {number} of {name} has words. " * 5} for number in range(count))
    return "".join(json.dumps(row | {"license": "cc0-1.0"}) + "\n" for row in rows).encode()


def source_recipe(path: str, root: Path, name: str = "mixed", files: Sequence[str] = ("**/*.jsonl",)) -> StageARecipe:
    return parse_recipe(local_source(root, "notes", [], path=path, files=[*files]), name=name)


def build(root: Path, path: str = URL, replace: bool = False, name: str = "mixed") -> dict[str, Artifact]:
    run = Run(root, INLINE, replace=replace)
    return {target.role: target.kind.build(target, run) for target in source_recipe(path, root, name).targets()}


def list_gets(server: ObjectServer) -> list[str]:
    return [key.removeprefix("corpora/notes/") for method, key in server.requests if method == "GET" and key]
