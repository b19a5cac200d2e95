"""Stage A recipe with one synthetic source of each type."""

import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256

DATASET = "maker/pages"
SITES = ("beer.stackexchange.com", "coffee.stackexchange.com")
_SENTENCE = "the quick brown fox jumps over a lazy dog and runs to the river where it drinks water"
_WORDS = _SENTENCE.split()


def sentence(number: int, words: int = 40) -> str:
    return " ".join(_WORDS[(number * 7 + place * 3) % len(_WORDS)] for place in range(words)) + f" {number}."


def write_hub(folder: Path) -> None:
    """Write 120 pages: every tenth has a low score, one no text, one a repeated id."""
    for file in range(2):
        rows = range(file * 60, file * 60 + 60)
        texts: list[str | None] = [sentence(number) for number in rows]
        if file == 0:
            texts[5] = None
        table = pa.table(
            {
                "text": texts,
                "id": [f"page-{0 if number == 7 else number}" for number in rows],
                "score": [1 if number % 10 == 9 else 4 for number in rows],
                "language": ["en"] * len(rows),
            }
        )
        path = folder / "datasets" / DATASET / "data" / f"{file}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path, row_group_size=20)


def write_wikipedia(folder: Path) -> None:
    """Write 30 pages in two files of <doc> elements; each fifth is only a title."""
    for file in range(2):
        pages = []
        for number in range(file * 15, file * 15 + 15):
            url = f"https://en.wikipedia.org/wiki?curid={number}"
            body = "" if number % 5 == 4 else sentence(number, 60)
            pages.append(f'<doc id="{number}" url="{url}" title="Page {number}">\nPage {number}\n\n{body}\n\n</doc>\n')
        path = folder / "AA" / f"wiki_0{file}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(pages), encoding="utf-8")


def write_site(folder: Path, site: str, questions: int = 25) -> None:
    """Write a Posts.xml of questions with two answers; the last one is deleted."""
    rows = []
    for number in range(questions):
        first = 3 * number + 1
        date = f"20{10 + number % 12:02d}-03-04T05:06:07.890"
        if number < questions - 1:
            rows.append(
                f'<row Id="{first}" PostTypeId="1" CreationDate="{date}" Score="{number % 4}" ViewCount="9"'
                f' Body="&lt;p&gt;{sentence(number, 25)}&lt;/p&gt;" Title="Question {number} of {site}"'
                f' Tags="&lt;a&gt;&lt;b&gt;" AcceptedAnswerId="{first + 2}" AnswerCount="2" />'
            )
        for answer in (1, 2):
            rows.append(
                f'<row Id="{first + answer}" PostTypeId="2" ParentId="{first}" CreationDate="{date}"'
                f' Score="{answer}" Body="&lt;p&gt;{sentence(number * 2 + answer, 25)}&lt;/p&gt;" />'
            )
    path = folder / site / "Posts.xml"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"  {row}\n" for row in rows)
    path.write_text(f'\ufeff<?xml version="1.0" encoding="utf-8"?>\n<posts>\n{lines}</posts>\n', encoding="utf-8")


def write_notes(folder: Path) -> None:
    """Write 40 JSON lines with licences; one is unknown, one will be refused."""
    for file in range(2):
        rows = []
        for number in range(file * 20, file * 20 + 20):
            licence = {3: "my own", 4: "proprietary"}.get(number, ("MIT", "CC BY-SA 4.0", None)[number % 3])
            rows.append({"body": {"text": sentence(number + 500, 30)}, "key": f"note-{number}", "license": licence})
        path = folder / f"{file}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_quiz(folder: Path, items: Sequence[str]) -> None:
    """Write an evaluation set of one file, ids q-0, q-1, …"""
    rows = [{"id": f"q-{number}", "question": item} for number, item in enumerate(items)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "quiz.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_sources(root: Path) -> None:
    """Write all sources and the evaluation set at the paths of the recipe."""
    write_wikipedia(root / "sources" / "wikipedia")
    for site in SITES:
        write_site(root / "sources" / "sites", site)
    write_notes(root / "sources" / "notes")
    ends = [" ".join(text.split()[-13:]) for text in (sentence(0), sentence(501, 30))]  # of a page and of a note
    write_quiz(root / "sources" / "quiz", [*ends, "Too short."])


def recipe_content(commit: str) -> dict[str, Any]:
    """Return a recipe's YAML values; its shards are small, so sources have several."""
    hub = {
        "kind": "hub",
        "source": "pages",
        "dataset": DATASET,
        "config": "default",
        "revision": commit,
        "split": "train",
        "files": ["data/*.parquet"],
        "domain": "web",
        "license_tag": "odc-by",
        "columns": {"text": "text", "id": "id", "created_at": None, "license": None},
        "rules": ["score >= 3"],
        "language": "en",
        "amount": {"files": 2},
        "seed": "seed",
        "max_reject_fraction": "0.1",
        "filters": {"length": {"min_words": 20}, "masking": {"emails": True, "public_ips": True}},
    }
    wikipedia = {
        "kind": "wikipedia",
        "source": "wikipedia_en",
        "path": "sources/wikipedia",
        "files": ["**/wiki_*"],
        "domain": "encyclopedia",
        "language": "en",
        "dump_date": "2026-11-01",
        "license_tag": None,
        "filters": {"wikipedia": {}, "length": {"min_characters": 100}},
    }
    sites = [
        {
            "kind": "stackexchange",
            "source": site,
            "path": f"sources/sites/{site}",
            "files": ["Posts.xml"],
            "domain": "questions",
            "host": site,
            "min_question_score": 1,
            "min_answer_score": None,
            "min_answers": 1,
            "max_reject_fraction": "0.1",
        }
        for site in SITES
    ]
    notes = {
        "kind": "local",
        "source": "notes",
        "path": "sources/notes",
        "files": ["*.jsonl"],
        "columns": {"text": "body.text", "id": "key", "created_at": None, "license": "license"},
        "text_unit": None,
        "domain": "books",
        "license_tag": "cc0-1.0",
        "filters": {"length": {"min_words": 5}},
    }
    return {
        "system": "stage_a",
        "name": "mixed",
        "refuse_licences": ["proprietary"],
        "tokenizer": {"family": "o200k_harmony", "sha256": VOCABULARY_SHA256},
        "shard_text_bytes": 2000,
        "sources": [hub, wikipedia, *sites, notes],
    }


SOURCES = tuple(str(source["source"]) for source in recipe_content("0" * 40)["sources"])


def with_dedup(content: dict[str, Any]) -> None:
    minhash = {"shingle_words": 3, "permutations": 16, "bands": 8, "rows": 2, "seed": 1}
    near = {"threshold": "0.7", "max_compared": 10, "minhash": minhash}
    content["dedup"] = {"mode": "both", "scope": "global", "selection": "first", "near": near}
    content["max_removed"] = {"every_source": "1"}
    content["outputs"] = {"normalized_dir": "stage_a/mixed/normalized", "signatures": True}


def with_decontamination(content: dict[str, Any], path: str = "sources/quiz") -> None:
    columns = {"text": ["question"], "item": "row", "id": "id"}
    content["decontamination"] = {
        "ngram_words": 13,
        "min_item_words": 5,
        "min_item_overlap": "0.5",
        "max_items_per_ngram": 10,
        "action": "cut",
        "cut": {"margin_words": 0, "min_kept_words": 10},
        "evaluation": [
            {"name": "quiz", "path": path, "files": ["*.jsonl"], "columns": columns, "text_unit": None},
        ],
    }


def with_pack(content: dict[str, Any]) -> None:
    """Add packing of all sources to a recipe, with almost equal weights."""
    names = [source["source"] for source in content["sources"]]
    each = round(Decimal(1) / len(names), 2)
    shares = {name: str(each) for name in names[1:]} | {names[0]: str(1 - each * (len(names) - 1))}
    content["pack"] = {
        "seq_len": 64,
        "num_seqs": 12,
        "strategy": "best_fit",
        "seed": 1,
        "weights": shares,
        "max_epochs": {"every_source": "4"},
        "tokenizer": content["tokenizer"],
        "boundaries": True,
    }


def with_all_steps(content: dict[str, Any]) -> None:
    with_dedup(content)
    content["dedup"]["scope"] = "per-source"  # the second site repeats the first: nothing would remain to pack
    with_decontamination(content)
    with_pack(content)


def write_recipe(
    root: Path, commit: str, change: Callable[[dict[str, Any]], None] = lambda content: None, name: str = "mixed"
) -> Path:
    """Write the recipe into a data root; `change` edits it first."""
    content = recipe_content(commit) | {"name": name}
    change(content)
    path = root / "recipes" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return path


def source_named(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    section: dict[str, Any] = next(source for source in content["sources"] if source["source"] == name)
    return section


def write_ship_recipe(folder: Path, root: Path, rows: int) -> Path:
    """Write rows, and a recipe that deduplicates and packs them; return its path."""
    folder.mkdir(parents=True)
    texts = (f"Row {row} is about the {row * row % 97} ships of harbour {row % 13}." for row in range(rows))
    (folder / "rows.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    source = {"kind": "local", "source": "notes", "path": str(folder), "files": ["*.jsonl"]}
    source |= {"domain": "letters", "license_tag": "cc0-1.0"}
    recipe = {"system": "stage_a", "name": "notes", "sources": [source], "dedup": {}, "pack": {"seq_len": 64}}
    path = root / "recipes" / "notes.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(yaml.safe_dump(recipe))
    return path
