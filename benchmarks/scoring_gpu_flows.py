"""Model, rows and flows of `scoring_gpu.py`."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
import transformers
from scoring_flows import write_rows

from pipeline_assets.corpus.scoring.launcher import ScoreJob
from pipeline_assets.corpus.scoring.nll import LanguageModel, plan_batches, score_rows, token_nll
from pipeline_assets.corpus.scoring.recipe import ScoringRecipe
from pipeline_assets.corpus.scoring.score_shard import Scorer, load_scorer_model, load_scorer_tokenizer, score_shard
from pipeline_assets.corpus.scoring.token_rows import TokenRow, encode_row
from pipeline_assets.spine.stage import WHOLE_SHARD
from pipeline_assets.spine.staging import StagingView

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # a CPU only tries the program
DTYPE = torch.bfloat16 if DEVICE == "cuda" else torch.float32
WARM_UP = 8  # rows that each flow scores before the timed ones, whose lengths are new to it


@dataclass(frozen=True)
class Setup:
    """Model, recipe and rows, which all flows share.

    Attributes:
        scorer: Argument of `score_shard`, which names the model.
        rows: Encoded rows of the pool; the first `WARM_UP` are not timed.
    """

    folder: Path
    recipe: ScoringRecipe
    scorer: Scorer
    model: LanguageModel
    config: transformers.LlamaConfig
    rows: list[TokenRow]

    @classmethod
    def save(cls, options: argparse.Namespace, folder: Path) -> "Setup":
        """Save a model and a pool in a folder, and load them."""
        config = save_model(folder / "model", options.width, options.layers)
        write_rows(folder / "pool.parquet", options.rows + WARM_UP, options.shrink)
        recipe = ScoringRecipe(device=DEVICE, tokenizer="o200k_harmony", max_length=options.max_length, rescored=0)
        scorer = Scorer("made", recipe, folder / "model")
        encoder = load_scorer_tokenizer(scorer)
        rows = [
            encode_row(row["text"], row["loss_mode"], None, encoder, options.max_length).tokens
            for row in pq.read_table(folder / "pool.parquet").to_pylist()
        ]
        return cls(folder, recipe, scorer, load_scorer_model(scorer), config, rows)

    @property
    def timed(self) -> list[TokenRow]:
        return self.rows[WARM_UP:]

    def through_files(self, numbers: range) -> list[float]:
        """Score rows from the pool's file to a file of scores."""
        job = ScoreJob(str(numbers.start), "pool.parquet", self.folder / "pool.parquet", tuple(numbers))
        receipt = score_shard(job, WHOLE_SHARD, StagingView(self.folder), self.scorer)
        return pq.read_table(self.folder / receipt.files[0].path)["nll_sum"].to_pylist()

    def by_kernel(self, numbers: range, attention: str) -> list[Any]:
        """Score encoded rows with the kernel."""
        rows, model = self.rows[numbers.start : numbers.stop], set_attention(self.model, attention)
        return [row.nll_sum for row in score_rows(model, rows, self.recipe.batch_tokens).rows]

    def by_plain_loop(self, numbers: range, order: str) -> list[float]:
        """Score encoded rows with transformers alone."""
        rows = self.rows[numbers.start : numbers.stop]
        lengths = np.array([len(row.ids) for row in rows], np.int64)
        batches = {
            "plain": [[number] for number in range(len(rows))],
            "plain sorted": plan_batches(lengths, self.recipe.batch_tokens, is_packed=False),
            "plain in order": [[*range(len(rows))][first : first + 4] for first in range(0, len(rows), 4)],
        }
        return run_plain(set_attention(self.model, "sdpa").network, rows, batches[order])


def save_model(folder: Path, width: int, layers: int) -> transformers.LlamaConfig:
    """Save a Llama of seeded weights, made on the GPU."""
    heads = max(width // 128, 1)
    config = transformers.LlamaConfig(
        vocab_size=201_088, hidden_size=width, intermediate_size=width * 7 // 2, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=max(heads // 4, 1), max_position_embeddings=131_072,
    )  # fmt: skip
    torch.manual_seed(0)
    torch.set_default_dtype(DTYPE)
    with torch.device(DEVICE):
        transformers.LlamaForCausalLM(config).save_pretrained(folder)
    torch.set_default_dtype(torch.float32)
    return config


@torch.inference_mode()
def token_scores(model: LanguageModel, rows: Sequence[TokenRow]) -> torch.Tensor:
    """Compute the NLL of each token that counts, in one batch."""
    hidden = model.hidden_states([row.ids for row in rows])
    counts = np.concatenate([row.in_loss for row in rows])
    targets = torch.from_numpy(np.concatenate([row.ids for row in rows])[counts].astype(np.int64))
    return token_nll(hidden[torch.from_numpy(np.flatnonzero(counts) - 1).to(hidden.device)], targets, model.head)


@torch.inference_mode()
def plain_scores(network: Any, rows: Sequence[TokenRow]) -> list[torch.Tensor]:
    """Compute the NLL of each completion token from all logits of a padded batch."""
    longest = max(len(row.ids) for row in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.int64)
    attention, labels = torch.zeros_like(ids), torch.full_like(ids, -100)
    for number, row in enumerate(rows):
        ids[number, : len(row.ids)] = torch.from_numpy(row.ids.astype(np.int64))
        attention[number, : len(row.ids)] = 1
        labels[number, : len(row.ids)] = torch.from_numpy(np.where(row.in_loss, row.ids, -100).astype(np.int64))
    mask = attention.to(DEVICE) if len(rows) > 1 else None
    logits, labels = network(input_ids=ids.to(DEVICE), attention_mask=mask, use_cache=False).logits, labels.to(DEVICE)
    parts = []
    for number in range(len(rows)):
        nll = torch.nn.functional.cross_entropy(logits[number, :-1].float(), labels[number, 1:], reduction="none")
        parts.append(nll[labels[number, 1:] != -100])
    return parts


def run_plain(network: Any, rows: Sequence[TokenRow], batches: Sequence[Sequence[int]]) -> list[float]:
    """Return the NLL sum of each row by a plain loop over batches."""
    sums = [0.0] * len(rows)
    for batch in batches:
        for number, nll in zip(batch, plain_scores(network, [rows[number] for number in batch]), strict=True):
            sums[number] = float(nll.double().sum())
    return sums


def set_attention(model: LanguageModel, name: str) -> LanguageModel:
    """Return the model with another attention, packed if it keeps rows apart."""
    model.network.set_attn_implementation(name)
    return replace(model, is_packed=name == "corpusmill_by_rows")
