"""Stage A of the demo: a recipe over five small sources that asks for every step, and its build through the assets."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.artifact import open_artifact
from pipeline_assets.corpus.spine.ledger import Ledger
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256
from pipeline_assets.demo_sources import HELP_DATASET, SITE, SOURCES_FOLDER, write_help_dataset, write_sources
from pipeline_assets.systems.stage_a import StageARecipe

if TYPE_CHECKING:
    from pipeline_assets.launch import Outcome

STAGE_A_RECIPE_NAME = "stage_a_v1"
HELP = "python_help"
_WEIGHTS = {HELP: "0.6", "wikipedia_en": "0.13", SITE: "0.08", "notes": "0.07", "papers": "0.12"}
_MAX_REJECT_FRACTION = "0.2"  # the sources are small, and each of them has a bad row
_WRITTEN = "# Written by corpusmill: five small sources through every step of stage A.\n"


def write_stage_a_inputs(root: Path, hub: Path) -> None:
    """The dataset below the hub's folder, the files and the evaluation set below the data root's."""
    dataset = hub / "datasets" / HELP_DATASET
    if not (dataset / "README.md").exists():
        durable.remove(dataset)
        write_help_dataset(dataset)
    write_sources(root / SOURCES_FOLDER)


def write_stage_a_recipe(root: Path, commit: str) -> Path:
    """The recipe, its dataset pinned to a commit, in the data root's recipes."""
    path = root / "recipes" / f"{STAGE_A_RECIPE_NAME}.yaml"
    durable.make_folder(path.parent)
    durable.write_durably(path, (_WRITTEN + yaml.safe_dump(_content(commit), sort_keys=False, width=120)).encode())
    return path


def build_stage_a(recipe: StageARecipe, root: Path, workers: int) -> Iterator["Outcome"]:
    """Every artifact of the recipe, upstream first; those that are there as asked are not built."""
    from pipeline_assets.launch import run_targets

    return run_targets(recipe, Run.of(root, os.environ, workers=workers, replace=True))


def step_lines(recipe: StageARecipe, root: Path) -> Iterator[str]:
    """What became of the documents of all sources, a line a step, and what each source has of the tokens."""
    packed = open_artifact(root / recipe.target("stage_a/packed").folder).manifest.identity.counts
    for step in ("normalized", "filtered", "deduplicated", "decontaminated"):
        targets = [target for target in recipe.targets() if target.kind == f"stage_a/{step}"]
        ledgers = [open_artifact(root / target.folder).manifest.identity.ledger for target in targets]
        what = "rows" if step == "normalized" else "documents"
        rows_in, out = sum(one.rows_in for one in ledgers), sum(one.out for one in ledgers)
        yield f"{step:15} {rows_in:,} {what} in = {out:,} out{_others(ledgers)}"
    rows = f"{packed['rows']:,} rows, {packed['padding_tokens']:,} of padding"
    yield f"{'packed':15} {packed['documents']:,} documents drawn: {packed['tokens']:,} tokens in {rows}"
    for source, counts in packed["by_source"].items():
        epochs = f"{float(counts['epochs']):.2f} epochs"
        yield f"{'':15} {source}: {counts['packed_tokens']:,} tokens, {float(counts['share']):.1%}, {epochs}"


def _others(ledgers: Sequence[Ledger]) -> str:
    counts: Counter[str] = Counter()
    for ledger in ledgers:
        counts.update({reason or fate: count for fate, reason, count in ledger.fates()})
    return "".join(f" + {count:,} {reason}" for reason, count in counts.items() if count)


def _content(commit: str) -> dict[str, Any]:
    return {
        "system": "stage_a",
        "name": STAGE_A_RECIPE_NAME,
        "refuse_licences": ["proprietary"],
        "tokenizer": {"family": "o200k_harmony", "sha256": VOCABULARY_SHA256},
        "shard_text_bytes": 65_536,
        "sources": _sources(commit),
        "dedup": {
            "mode": "both",
            "scope": "global",
            "selection": "first",
            "near": {
                "threshold": "0.7",
                "max_compared": 100,
                "minhash": {"shingle_words": 5, "permutations": 112, "bands": 28, "rows": 4, "seed": 1},
            },
        },
        "max_removed": {"every_source": "0.3"},
        "decontamination": {
            "ngram_words": 13,
            "min_item_words": 8,
            "min_item_overlap": "0.5",
            "max_items_per_ngram": 10,
            "action": "drop",
            "evaluation": [
                {
                    "name": "quiz",
                    "path": f"{SOURCES_FOLDER}/quiz",
                    "files": ["*.jsonl"],
                    "columns": {"text": ["question"], "item": "row", "id": "id"},
                    "text_unit": None,
                }
            ],
        },
        "pack": {
            "seq_len": 512,
            "num_seqs": 128,
            "strategy": "best_fit",
            "seed": 1,
            "weights": _WEIGHTS,
            "max_epochs": {"every_source": "2"},
            "tokenizer": {"family": "o200k_harmony", "sha256": VOCABULARY_SHA256},
            "boundaries": True,
        },
    }


def _sources(commit: str) -> Sequence[dict[str, Any]]:
    files = {"max_reject_fraction": _MAX_REJECT_FRACTION}
    return [
        {
            "kind": "hub",
            "source": HELP,
            "dataset": HELP_DATASET,
            "config": "default",
            "revision": commit,
            "split": "train",
            "files": ["data/*.parquet"],
            "domain": "reference",
            "license_tag": "psf-2.0",
            "columns": {"text": "text", "id": "id", "created_at": None, "license": None},
            "rules": ["int_score >= 3"],
            "language": "en",
            "amount": {"files": 2},
            "seed": "demo",
            "filters": {
                "length": {"min_words": 50},
                "characters": {"min_ascii_ratio": "0.8", "max_symbol_ratio": "0.3"},
            },
            **files,
        },
        {
            "kind": "wikipedia",
            "source": "wikipedia_en",
            "path": f"{SOURCES_FOLDER}/wikipedia",
            "files": ["**/wiki_*"],
            "domain": "encyclopedia",
            "language": "en",
            "dump_date": "2026-11-01",
            "license_tag": None,
            "filters": {"wikipedia": {}, "length": {"min_characters": 200}},
            **files,
        },
        {
            "kind": "stackexchange",
            "source": SITE,
            "path": f"{SOURCES_FOLDER}/{SITE}",
            "files": ["Posts.xml"],
            "domain": "questions",
            "host": SITE,
            "min_question_score": 1,
            "min_answer_score": None,
            "min_answers": 1,
            "filters": {"length": {"min_words": 20}},
            **files,
        },
        {
            "kind": "local",
            "source": "notes",
            "path": f"{SOURCES_FOLDER}/notes",
            "files": ["*.jsonl", "texts/*.txt"],
            "columns": {"text": "text", "id": "key", "created_at": None, "license": "license"},
            "text_unit": "file",
            "domain": "notes",
            "license_tag": "cc0-1.0",
            "filters": {"masking": {"emails": True, "public_ips": True}},
            **files,
        },
        {
            "kind": "local",
            "source": "papers",
            "path": f"{SOURCES_FOLDER}/papers",
            "files": ["*.parquet"],
            "columns": {"text": "body.text", "id": "doi", "created_at": "published", "license": "license"},
            "text_unit": None,
            "domain": "science",
            "license_tag": "unknown",
            "filters": {"boilerplate": {"phrases": ["all rights reserved"], "max_line_fraction": "0.3"}},
            **files,
        },
    ]
