"""Complete tiny model with its own tokenizer, pools of texts, and their scores."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tiny_models import save_model
from tiny_tokenizer import id_of, save_tokenizer

from pipeline_assets.build.run import Run
from pipeline_assets.corpus.scoring.recipe import ScoringRecipe
from pipeline_assets.corpus.scoring.score_shard import Scorer
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.manifest import Manifest
from pipeline_assets.systems.nemotron import NemotronRecipe

Row = dict[str, Any]
SCORES = "nemotron/nll_scores"
ONE_WORKER = RunSettings(1)
TILDE = id_of("~")


def save_whole_model(folder: Path, name: str = "Llama", **more: Any) -> Path:
    """A model that takes 4,096 tokens of a vocabulary of 500, with a tokenizer of 263."""
    folder.mkdir(parents=True)
    return save_tokenizer(save_model(name, folder, **more))


def text_of(number: int, question: str = "", answer: str = "") -> str:
    """A Harmony text: a prompt, and a completion of one message."""
    question, answer = question or f"{number} + 2?", answer or f"It is {number + 2}, I am sure."
    return f"<|start|>user<|message|>{question}<|end|><|start|>assistant<|channel|>final<|message|>{answer}<|return|>"


def rows_of(count: int, first: int = 0) -> list[Row]:
    """Rows that can be scored, as a stranger's pool has them: no column beside those that are needed."""
    return [
        {"id": f"row-{number}", "text": text_of(number), "loss_mode": "assistant_all"}
        for number in range(first, first + count)
    ]


def write_pool(folder: Path, rows: Sequence[Row], file: str = "data/train.parquet", **options: Any) -> Path:
    """The folder, with a file of rows in it; a column that a row lacks is null."""
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    names = dict.fromkeys(name for row in rows for name in row)
    pq.write_table(pa.table({name: [row.get(name) for row in rows] for name in names}), folder / file, **options)
    return folder


def scoring_recipe(pool: Path, model: Path, *splits: str, **scoring: Any) -> dict[str, Any]:
    """The recipe that scores a folder of pools by a folder of a model."""
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
    """Builds a recipe's scores in this process, and their workers; what is sealed of its only split."""
    targets = [one for one in NemotronRecipe.from_mapping(recipe, "the test").targets() if one.kind.name in MADE]
    run = Run(root, settings, replace=replace)
    return [target.kind.build(target, run).manifest for target in targets][-1]


MADE = ("nemotron/raw", "nemotron/model", SCORES)


def scored_rows(root: Path) -> list[Row]:
    """The rows of the only scores below a data root."""
    [path] = root.glob("nemotron/*/nll_scores/*/*/scores.parquet")
    return pq.ParquetFile(path).read().to_pylist()


def scorer_of(model: Path, **recipe: Any) -> Scorer:
    """What scores rows by a model in a folder, known by the folder's name."""
    return Scorer(str(model), ScoringRecipe.from_mapping(recipe, "the test"), model)


def copy_of(model: Path, folder: Path) -> Path:
    return Path(shutil.copytree(model, folder))


def spoiled(model: Path, folder: Path, weight: str = "model.embed_tokens.weight", at: int | slice = TILDE) -> Path:
    """A copy of the model, part of which is NaN: the embedding of `~`, and so what rows that hold it come to."""
    import torch
    from safetensors.torch import load_file, save_file

    copied = copy_of(model, folder)
    weights = load_file(copied / "model.safetensors")
    weights[weight][at] = torch.nan
    save_file(weights, copied / "model.safetensors", {"format": "pt"})
    return copied


def half_written(root: Path) -> list[str]:
    """What builds left below a data root that is no artifact: building folders, and what they hold."""
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if ".building." in path.name)
