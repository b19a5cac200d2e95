"""Tiny model with its own tokenizer and scored pools of texts."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tiny_models import save_model
from tiny_tokenizer import save_tokenizer, token_id

from pipeline_assets.build.run import Run
from pipeline_assets.corpus.scoring.recipe import ScoringRecipe
from pipeline_assets.corpus.scoring.score_shard import Scorer
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.manifest import Manifest
from pipeline_assets.systems.nemotron import NemotronRecipe

Row = dict[str, Any]
SCORES = "nemotron/nll_scores"
ONE_WORKER = RunSettings(1)
TILDE = token_id("~")


def save_whole_model(folder: Path, name: str = "Llama", **more: Any) -> Path:
    """Save a model with a vocabulary of 500 and a tokenizer of 263 tokens."""
    folder.mkdir(parents=True)
    return save_tokenizer(save_model(name, folder, **more))


def render_text(number: int, question: str = "", answer: str = "") -> str:
    """Render a Harmony text: a prompt and a completion of one message."""
    question, answer = question or f"{number} + 2?", answer or f"It is {number + 2}, I am sure."
    return f"<|start|>user<|message|>{question}<|end|><|start|>assistant<|channel|>final<|message|>{answer}<|return|>"


def build_rows(count: int, first: int = 0) -> list[Row]:
    """Build rows with only the columns that scoring needs."""
    return [
        {"id": f"row-{number}", "text": render_text(number), "loss_mode": "assistant_all"}
        for number in range(first, first + count)
    ]


def write_pool(folder: Path, rows: Sequence[Row], file: str = "data/train.parquet", **options: Any) -> Path:
    """Write rows to a file and return the folder; missing columns are null."""
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    names = dict.fromkeys(name for row in rows for name in row)
    pq.write_table(pa.table({name: [row.get(name) for row in rows] for name in names}), folder / file, **options)
    return folder


def scoring_recipe(pool: Path, model: Path, *splits: str, **scoring: Any) -> dict[str, Any]:
    """Return the recipe that scores a folder of pools with a model."""
    section = {"dataset": "mine", "path": str(pool), "splits": [*(splits or ("train",))]}
    files = {split: [f"**/{split}*.parquet"] for split in section["splits"]}
    return {
        "system": "nemotron",
        "name": "mine",
        "scoring": {"model": {"path": str(model)}, **scoring},
        "datasets": [section | {"files": files}],
    }


def score_here(
    root: Path, recipe: Mapping[str, Any], settings: RunSettings = ONE_WORKER, replace: bool = False
) -> Manifest:
    """Build a recipe's scores in this process; return the manifest of the split."""
    targets = NemotronRecipe.from_mapping(recipe, "the test").targets()
    run = Run(root, settings, replace=replace)
    return [target.kind.build(target, run).manifest for target in targets if target.kind.name in KINDS][-1]


KINDS = ("nemotron/raw", "nemotron/model", SCORES)


def scored_rows(root: Path) -> list[Row]:
    """Read the rows of the only scores in a data root."""
    [path] = root.glob("nemotron/*/nll_scores/*/*/scores.parquet")
    return pq.ParquetFile(path).read().to_pylist()


def build_scorer(model: Path, **recipe: Any) -> Scorer:
    """Return a scorer with the model of a folder."""
    return Scorer(str(model), ScoringRecipe.from_mapping(recipe, "the test"), model)


def copy_model(model: Path, folder: Path) -> Path:
    return Path(shutil.copytree(model, folder))


def spoiled(model: Path, folder: Path, weight: str = "model.embed_tokens.weight", at: int | slice = TILDE) -> Path:
    """Copy a model with NaN weights: by default the embedding of `~`."""
    import torch
    from safetensors.torch import load_file, save_file

    copied = copy_model(model, folder)
    weights = load_file(copied / "model.safetensors")
    weights[weight][at] = torch.nan
    save_file(weights, copied / "model.safetensors", {"format": "pt"})
    return copied


def half_written(root: Path) -> list[str]:
    """List staging directories and their content in a data root."""
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if ".building." in path.name)
