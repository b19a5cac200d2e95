"""Stage 2 over three small datasets of a hub, built without Dagster."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from stage_a_build import local_source

from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.demo.corpora import gzip_member
from pipeline_assets.demo.texts import paragraphs
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.stage2_mixture import Stage2Recipe

INLINE = RunSettings(workers=0)
WEB, PAGES, CODE = "maker/web", "maker/pages", "maker/code"
DATASETS = {"web": WEB, "pages": PAGES, "code": CODE}
Change = Callable[[dict[str, Any]], None]
_CARD = "---\nlicense: {licence}\n---\n# {name}\n\nMade up.\n"
GERMAN = "Dieser Text ist nicht auf Englisch geschrieben, und er ist auch lang genug, damit ihn jeder erkennt. " * 4


def texts(seed: int, count: int) -> list[str]:
    """Return different English texts of some hundred characters."""
    draw = Random(seed)
    return ["\n\n".join(paragraphs(draw, 2, 3)) for _ in range(count)]


def write_datasets(folder: Path, documents: int = 40) -> None:
    """Write three datasets; one text is German, one short, one in two of them."""
    web, pages = texts(1, documents), texts(2, documents)
    rows = [{"text": text, "id": f"web-{number}"} for number, text in enumerate([*web, GERMAN, "Short."])]
    web_lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    _dataset(folder, WEB, "odc-by", {"en/part-0.jsonl": web_lines})
    columns = {
        "id": [str(number) for number in range(documents + 1)],
        "title": [f"Page {number}" for number in range(documents + 1)],
        "text": [*pages, web[0]],
    }
    table, sink = pa.table(columns), pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=documents // 2)
    _dataset(folder, PAGES, "cc-by-sa-4.0", {"20231101.en/train-0.parquet": sink.getvalue().to_pybytes()})
    files = [f"def add_{number}(a, b):\n    return a + b + {number}\n" * 6 for number in range(documents)]
    code_lines = "".join(
        json.dumps({"content": text, "license": ("mit", "apache-2.0")[number % 2]}) + "\n"
        for number, text in enumerate(files)
    )
    _dataset(folder, CODE, "other", {"file-0.json.gz": gzip_member(code_lines.encode())})


def append_rows(folder: Path, new_texts: Sequence[str], first: int = 0) -> None:
    """Append texts to the only file of the web dataset, with ids `new-0`, `new-1`, …"""
    with open(folder / "datasets" / WEB / "en" / "part-0.jsonl", "a") as file:
        for number, text in enumerate(new_texts, first):
            file.write(json.dumps({"text": text, "id": f"new-{number}"}) + "\n")


def _dataset(folder: Path, name: str, licence: str, files: Mapping[str, bytes]) -> None:
    for path, data in {**files, "README.md": _CARD.format(licence=licence, name=name).encode()}.items():
        place = folder / "datasets" / name / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)


def recipe_content(commits: Mapping[str, str], name: str = "small") -> dict[str, Any]:
    prose = {"length": {"min_characters": 100, "max_characters": 8000}, "language": {}, "windows": {}}
    filters = {"web": prose, "pages": prose, "code": {"length": {"min_characters": 50}}}
    columns = {"text": "text", "id": "id", "created_at": None, "license": None}
    code_columns = {"text": "content", "id": None, "created_at": None, "license": "license"}
    files = {"web": "en/*.jsonl", "pages": "20231101.en/*.parquet", "code": "file-*.json.gz"}
    licences = {"web": "odc-by", "pages": "cc-by-sa-4.0", "code": "unknown"}
    weights = {"web": "0.5", "pages": "0.25", "code": "0.25"}
    return {
        "system": "stage2",
        "name": name,
        "shard_text_bytes": 8192,
        "sources": [
            {
                "kind": "hub",
                "source": source,
                "dataset": dataset,
                "config": "default",
                "revision": commits[dataset],
                "split": "train",
                "files": [files[source]],
                "license_tag": licences[source],
                "columns": code_columns if source == "code" else columns,
                "amount": {"documents": 1000},
                "seed": "1",
                "filters": filters[source],
            }
            for source, dataset in DATASETS.items()
        ],
        "tokenizer": {
            "kind": "trained",
            "sources": weights,
            "sample_bytes": 20_000,
            "vocab_size": 160,
            "character_coverage": "1",
        },
        "dedup": {"mode": "exact", "scope": "global", "selection": "first"},
        "shards": {"sources": weights, "seq_len": 64, "rows_per_shard": 50},
        "segments": {"segments": [{"name": name, "tokens": 1280, "weights": weights} for name in ("first", "second")]},
    }


def recipe_with(
    root: Path, commits: Mapping[str, str], change: Change = lambda content: None, name: str = "small"
) -> Stage2Recipe:
    content = recipe_content(commits, name)
    change(content)
    path = root / "recipes" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return Stage2Recipe.from_file_values(content, path, root)


def without_languages(content: dict[str, Any]) -> None:
    for source in content["sources"]:
        source["filters"].pop("language", None)


def build(
    recipe: Stage2Recipe, root: Path, hub: HubFiles | None = None, engine: RunSettings = INLINE, **settings: Any
) -> dict[str, Artifact]:
    run = Run(root, engine, hub, **settings)
    targets = [outcome.target for outcome in run_targets(recipe.targets(), run)]
    return {target.role: open_artifact(root / target.folder) for target in targets}


def write_local_mixture(folder: Path) -> Stage2Recipe:
    """Write a recipe of two local sources with a duplicate, a short and a bad text."""
    first, second = ([" ".join(text.split()) for text in texts(seed, count)] for seed, count in ((3, 12), (4, 8)))
    rows = {"first": [*first, "Short."], "second": [*second, first[0], None]}
    columns = {"text": "text", "id": None, "created_at": None, "license": None}
    filters = {"length": {"min_characters": 20}, "windows": {}}
    changes = {"columns": columns, "max_reject_fraction": "0.5", "filters": filters}
    sources = [
        local_source(folder / "mixture", name, [{"text": text} for text in own], **changes)
        for name, own in rows.items()
    ]
    halves = {"first": "0.5", "second": "0.5"}
    content = {
        "system": "stage2",
        "name": "local",
        "shard_text_bytes": 2048,
        "sources": sources,
        "tokenizer": {"kind": "trained", "sources": halves, "sample_bytes": 4000, "vocab_size": 90}
        | {"character_coverage": "1"},
        "dedup": {"mode": "exact", "scope": "global", "selection": "first"},
        "shards": {"sources": halves, "seq_len": 64, "rows_per_shard": 16},
        "segments": {"segments": [{"name": "one", "tokens": 256, "weights": halves}]},
    }
    return Stage2Recipe.from_mapping(content, "made")
