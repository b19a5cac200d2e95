"""Scoring of one shard in a worker: pool rows → tokens → NLL → a Parquet file."""

import contextlib
import fcntl
import functools
import math
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline_assets.corpus.formats.parquet_tables import write_table
from pipeline_assets.corpus.formats.python_columns import rows_to_table
from pipeline_assets.corpus.scoring import token_rows
from pipeline_assets.corpus.scoring.launcher import ScoreJob
from pipeline_assets.corpus.scoring.recipe import ScoringRecipe
from pipeline_assets.corpus.scoring.scored_split import read_pool_rows
from pipeline_assets.corpus.scoring.scores import SCORES_SCHEMA, SCORES_WITH_TOKENS_SCHEMA
from pipeline_assets.corpus.tokens.hf_tokenizer import TOKENIZER_FILE, load_model_tokenizer
from pipeline_assets.corpus.tokens.losses import Losses
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, load_encoder
from pipeline_assets.corpus.tokens.tokenizer import Tokenizer
from pipeline_assets.spine.errors import InputError, RecipeKey, UsageError
from pipeline_assets.spine.files import file_sha256
from pipeline_assets.spine.install_hints import not_installed_error
from pipeline_assets.spine.stage import Window
from pipeline_assets.spine.staging import WORK_FOLDER, Receipt, StagingView

if TYPE_CHECKING:
    from pipeline_assets.corpus.scoring.nll import LanguageModel, RowNll  # which loads torch

NOT_FINITE = "not_finite"
OUT_OF_MEMORY = "out_of_memory"
_NO_TOKEN_LIMIT = 1 << 31
POOL_COLUMNS = ("id", "text", "loss_mode")  # required columns of a pool
OPTIONAL_COLUMNS = ("loss_rule", "template")


@dataclass(frozen=True)
class Scorer:
    """Model, tokenizer and recipe that score rows."""

    model_digest: str  # of the model's files
    recipe: ScoringRecipe
    model_folder: Path = field(compare=False)  # scorers that differ only in folders share a loaded model
    vocabulary_file: Path | None = None  # of the o200k tokenizer; None for the built-in file
    # Folder in which the processes of a build claim one GPU each; None to use the first GPU.
    gpu_lock_folder: Path | None = field(default=None, compare=False)
    is_harmony: bool = True  # whether rows are Harmony texts, for which a tokenizer needs Harmony's control tokens

    def warm_up(self) -> None:
        """Load the tokenizer, and on a CPU also the model, before workers are forked."""
        load_scorer_tokenizer(self)
        if self.recipe.device == "cpu":  # the state of a GPU does not survive a fork
            load_scorer_model(self)


@functools.cache
def claim_gpu(lock_folder: Path) -> int:
    """Claim the first free GPU for the life of this process, and return its number.

    Claims are file locks in one build's folder, so two builds do not see each other's claims and may use the same GPU.
    If all GPUs are claimed, return 0.
    """
    import torch

    lock_folder.mkdir(parents=True, exist_ok=True)
    for number in range(torch.cuda.device_count()):
        lock = os.open(lock_folder / f"gpu-{number}", os.O_CREAT | os.O_RDWR)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return number  # the file stays open, so the lock ends with the process
        os.close(lock)
    return 0


@functools.lru_cache(maxsize=1)
def load_scorer_model(scorer: Scorer) -> "LanguageModel":
    """Load and check a scorer's model; cache the last loaded model of this process.

    Raise UsageError if a package is missing or `max_length` exceeds the model's limit; InputError if the tokenizer has
    more tokens than the model; and the errors of `load_model`.
    """
    try:
        import torch

        from pipeline_assets.corpus.scoring.load_model import load_model
    except ImportError as error:
        raise not_installed_error(error, "scoring") from None
    recipe, lock_folder = scorer.recipe, scorer.gpu_lock_folder
    if recipe.device == "cuda" and torch.cuda.is_available():
        torch.cuda.set_device(0 if recipe.spreads or lock_folder is None else claim_gpu(lock_folder))
    model, tokens = load_model(scorer.model_folder, recipe), load_scorer_tokenizer(scorer).vocabulary_size
    embeddings = model.network.get_input_embeddings().weight.shape[0]
    if tokens > embeddings:
        what = f"the tokenizer has {tokens:,} tokens, but the model has only {embeddings:,} embeddings"
        raise InputError(what, scorer.model_folder, "use the tokenizer that the model was trained with")
    if recipe.max_length is not None and recipe.max_length > (model.max_tokens or _NO_TOKEN_LIMIT):
        what = f"must be at most the model's {model.max_tokens:,} tokens, got {recipe.max_length:,}"
        raise UsageError(what, RecipeKey("scoring.max_length"), f"set {model.max_tokens} or less")
    return model


@functools.lru_cache(maxsize=1)
def load_scorer_tokenizer(scorer: Scorer) -> Tokenizer:
    """Load a scorer's tokenizer, and cache the latest one for this process."""
    if scorer.recipe.tokenizer == "o200k_harmony":
        return load_encoder(VOCABULARY_SHA256, scorer.vocabulary_file)
    return load_model_tokenizer(scorer.model_folder, scorer.is_harmony)


@functools.lru_cache(maxsize=1)
def _tokenizer_digest(scorer: Scorer) -> str:
    is_own = scorer.recipe.tokenizer == "model"
    return f"sha256:{file_sha256(scorer.model_folder / TOKENIZER_FILE) if is_own else VOCABULARY_SHA256}"


def score_shard(job: ScoreJob, window: Window, folder: StagingView, scorer: Scorer) -> Receipt:
    """Score the rows of a job, and write a Parquet file of scores without percentiles.

    Counts of the receipt: `documents`, `tokens`, `completion_tokens`, `truncated` (rows), `tokens_lost`,
    `encoded/<loss>` (`Losses`), `unscored/<reason>`, `batches`, `halved_batches` (batches that exceeded the memory).
    """
    model, tokenizer, recipe = load_scorer_model(scorer), load_scorer_tokenizer(scorer), scorer.recipe
    from pipeline_assets.corpus.scoring.nll import score_rows  # after `load_scorer_model` checked that torch exists

    started = time.monotonic()
    limit = recipe.max_length or model.max_tokens or _NO_TOKEN_LIMIT
    ids, encoded = list[str](), list[token_rows.EncodedRow]()
    tables = read_pool_rows(job.pool_path, np.array(job.row_numbers, np.int64), [*POOL_COLUMNS, *OPTIONAL_COLUMNS])
    for row in (row for table in tables for row in table.to_pylist()):
        ids.append(str(row["id"]))
        columns = (row["text"], row["loss_mode"], row.get("loss_rule"))
        encoded.append(token_rows.encode_row(*columns, tokenizer, limit, row.get("template")))
    rows = [row.tokens for row in encoded if row.reason is None]
    scored = score_rows(model, rows, recipe.batch_tokens, job.max_batch_rows)
    schema = SCORES_WITH_TOKENS_SCHEMA if recipe.token_nll else SCORES_SCHEMA
    results = iter(scored.rows)
    scored_rows = [
        {"id": row_id, "pool_file": job.pool_file, "pool_row": number, "tokenizer_digest": _tokenizer_digest(scorer)}
        | _score_columns(row, next(results) if row.reason is None else None, recipe.token_nll)
        for row_id, number, row in zip(ids, job.row_numbers, encoded, strict=True)
    ]
    name = f"{WORK_FOLDER}/scored/{job.name}.parquet"
    written = write_table(folder.path(name), name, [rows_to_table(scored_rows, schema)], schema)
    losses = sum((row.encoding_losses for row in encoded), Losses())
    counts = _sum_counts(scored_rows) | {"halved_batches": scored.halved_batches} | losses.to_counts()
    seconds = _count_gpus(recipe) * (time.monotonic() - started)
    notes = {"model": dict(model.metadata), "made_by": scoring_environment(recipe), "gpu_seconds": seconds}
    return Receipt([written], counts, notes)


def _count_gpus(recipe: ScoringRecipe) -> int:
    """Count the GPUs that score a shard; 0 on a CPU."""
    import torch

    return 0 if recipe.device == "cpu" else torch.cuda.device_count() if recipe.spreads else 1


def _score_columns(row: token_rows.EncodedRow, score: "RowNll | None", with_token_nll: bool) -> dict[str, Any]:
    count = int(row.tokens.in_loss.sum())
    columns = {
        "truncated": row.tokens_lost > 0,
        "tokens_lost": row.tokens_lost,
        "tokens": len(row.tokens.ids),
        "completion_token_count": count,
        "completion_bytes": row.completion_bytes,
    }
    if score is None:
        return columns | {"reason": row.reason}
    columns |= {"batch": score.batch_number, "batch_rows": score.batch_rows, "batch_tokens": score.batch_tokens}
    if score.nll_sum is None or not math.isfinite(score.nll_sum):
        return columns | {"reason": OUT_OF_MEMORY if score.nll_sum is None else NOT_FINITE}
    mean = score.nll_sum / count
    return columns | {
        "token_nll": score.token_nll.tolist() if with_token_nll else None,
        "nll_sum": score.nll_sum,
        "nll_mean": mean,
        "ppl": math.exp(mean) if mean < 700 else math.inf,
        "bits_per_byte": score.nll_sum / math.log(2) / row.completion_bytes if row.completion_bytes else None,
    }


def _sum_counts(scored_rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    sums = {"tokens": "tokens", "completion_tokens": "completion_token_count"}
    sums |= {name: name for name in ("truncated", "tokens_lost")}
    counts = {name: sum(row[column] for row in scored_rows) for name, column in sums.items()}
    counts |= {"documents": len(scored_rows), "batches": len({row["batch"] for row in scored_rows if "batch" in row})}
    return counts | Counter(f"unscored/{row['reason']}" for row in scored_rows if "reason" in row)


def scoring_environment(recipe: ScoringRecipe) -> dict[str, str]:
    """Return library versions and device, which may change the last bits of scores."""
    import torch
    import transformers

    device = "CPU"
    if recipe.device == "cuda":
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return {"torch": str(torch.__version__), "transformers": str(transformers.__version__), "device": device}
