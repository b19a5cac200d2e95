"""Benchmark of scoring on a GPU, against its matrix products and plain loops.

    python benchmarks/scoring_gpu.py --width 4096 --layers 16 --rows 64

The model is a Llama of seeded weights in bfloat16 with the vocabulary of o200k Harmony, in the proportions of Llama 3:
heads of 128, one in four for keys and values. Rows have the lengths of real Nemotron rows, cut at `--max-length`, so
that the logits of the plain loops fit into memory. The peak is the rate of a product of two 8192 × 8192 matrices of
random numbers in the same run. Only useful operations count: a flow that computes padding or logits of the prompt gets
nothing for them.

First, scores per token are compared with those of the same weights in float32, and those of rows alone with those of
the same rows together. `corpusmill` is `score_shard` from the pool's file to the file of scores; `packed` and `padded`
are its kernel, with the same rows already encoded. The plain loops compute all logits with transformers: of one row at
a time (`plain`), of padded batches sorted by length (`plain sorted`), of four rows at a time in their order (`plain in
order`). Flows take turns; a figure is the median of `--runs`.
"""

import argparse
import functools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
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
_KINDS = {
    "flash": "attention",
    "fold_row": "sums of the head",
    "gemm": "products",
    "nvjet": "products",
    "cutlass": "products",
}
_WARM_UP = 8  # rows that each flow scores before the timed ones, whose lengths are new to it
_TOLERANCE = 0.05  # nats per token of a row, between flows
_SHORT = 2048  # maximum tokens of a row whose scores are compared in float32


def seconds(run: Callable[[], object], runs: int = 1) -> float:
    """Return the median seconds of a run."""
    taken = []
    for _ in range(runs):
        _wait()
        started = time.perf_counter()
        run()
        _wait()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def _wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def matmul_peak(size: int) -> float:
    """Return the operations per second of a square matrix product, a mean of ten."""
    first, second = (torch.randn(size, size, device=DEVICE, dtype=DTYPE) for _ in range(2))
    for _ in range(3):
        first @ second
    _wait()
    started = time.perf_counter()
    for _ in range(10):
        first @ second
    _wait()
    return 10 * 2 * size**3 / (time.perf_counter() - started)


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


def useful_operations(config: transformers.LlamaConfig, rows: Sequence[TokenRow]) -> float:
    """Count the operations that scores need; each multiply-add counts as two."""
    width = config.hidden_size
    keys = width * config.num_key_value_heads // config.num_attention_heads
    # Each layer: queries and output, keys and values, then gate, up and down.
    weights = 2 * width * width + 2 * width * keys + 3 * width * config.intermediate_size
    lengths = np.array([len(row.ids) for row in rows], np.int64)
    body = 2 * weights * int(lengths.sum())
    # A token attends to itself and all before it: L(L + 1) / 2 pairs, each `width` products for its logits in all heads
    # and as many for its values.
    attention = 2 * 2 * width * int((lengths * (lengths + 1) // 2).sum())
    # The head multiplies only states that predict a token that counts.
    head = 2 * width * config.vocab_size * sum(int(row.in_loss.sum()) for row in rows)
    return config.num_hidden_layers * (body + attention) + head


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


def compare(model: LanguageModel, folder: Path, rows: Sequence[TokenRow]) -> dict[str, dict[str, float]]:
    """Return differences in nats per token: to float32, and alone to packed."""
    together = token_scores(model, rows)
    alone = torch.cat([token_scores(model, [row]) for row in rows])
    set_attention(model, "sdpa")
    by_transformers = torch.cat([nll for row in rows for nll in plain_scores(model.network, [row])])
    set_attention(model, "corpusmill_by_rows")
    loader: Any = transformers.AutoModelForCausalLM
    exact = loader.from_pretrained(folder, dtype=torch.float32, device_map=DEVICE).eval()
    reference = torch.cat([nll for row in rows for nll in plain_scores(exact, [row])])
    pairs = {"packed to float32": (together, reference), "transformers to float32": (by_transformers, reference)}
    found = {}
    for name, (scores, base) in {**pairs, "alone to packed": (alone, together)}.items():
        difference = (scores - base).abs()
        ends = np.cumsum([int(row.in_loss.sum()) for row in rows])[:-1].tolist()
        means = [abs(float(part.mean())) for part in torch.tensor_split((scores - base).double().cpu(), ends)]
        found[name] = {"mean": float(difference.mean()), "largest": float(difference.max()), "row mean": max(means)}
    return found | {"scores": {"tokens": len(reference), "mean": float(reference.mean())}}


def set_attention(model: LanguageModel, name: str) -> LanguageModel:
    """Return the model with another attention, packed if it keeps rows apart."""
    model.network.set_attn_implementation(name)
    return replace(model, is_packed=name == "corpusmill_by_rows")


def profile(run: Callable[[], object]) -> dict[str, float]:
    """Return the share of time by kind of GPU kernel; print the longest kernels."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity

    _wait()
    with torch.profiler.profile(activities=[ProfilerActivity.CUDA]) as profiler:
        started = time.perf_counter()
        run()
        _wait()
        wall = time.perf_counter() - started
    shares: dict[str, float] = {}
    kernels = [event for event in profiler.key_averages() if event.device_type == DeviceType.CUDA]
    for event in sorted(kernels, key=lambda event: -event.self_device_time_total):
        kind = next((kind for part, kind in _KINDS.items() if part in event.key.lower()), "elementwise")
        share = event.self_device_time_total / 1e6 / wall
        shares[kind] = shares.get(kind, 0.0) + share
        if share > 0.005:
            print(f"{share:6.1%} {event.count:6} {event.key[:140]}", file=sys.stderr)
    return {kind: round(share, 3) for kind, share in shares.items()} | {"idle": round(1 - sum(shares.values()), 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description="Rows of a pool → the NLL of their completions, on a GPU")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--shrink", type=int, default=1, help="how many times shorter than real rows")
    parser.add_argument("--max-length", type=int, default=16_384)
    parser.add_argument("--peers", default="plain,plain sorted,plain in order")
    parser.add_argument("--peak-size", type=int, default=8192)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as temporary:
        print(json.dumps({"benchmark": "scoring_gpu", **measure_all(options, Path(temporary))}))


def measure_all(options: argparse.Namespace, temporary: Path) -> dict[str, Any]:
    """Return all figures, and print them."""
    folder, pool = temporary / "model", temporary / "pool.parquet"
    config = save_model(folder, options.width, options.layers)
    write_rows(pool, options.rows + _WARM_UP, options.shrink)
    recipe = ScoringRecipe(device=DEVICE, tokenizer="o200k_harmony", max_length=options.max_length, rescored=0)
    scorer = Scorer("made", recipe, folder)
    model, encoder = load_scorer_model(scorer), load_scorer_tokenizer(scorer)
    rows = [
        encode_row(row["text"], row["loss_mode"], None, encoder, options.max_length).tokens
        for row in pq.read_table(pool).to_pylist()
    ]
    lengths = np.array([len(row.ids) for row in rows], np.int64)
    timed = rows[_WARM_UP:]
    figures: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if DEVICE == "cuda" else "CPU",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "model": dict(model.metadata),
        "parameters": sum(weight.numel() for weight in model.network.parameters()),
        "rows": len(timed),
        "tokens": int(lengths[_WARM_UP:].sum()),
        "completion_tokens": sum(int(row.in_loss.sum()) for row in timed),
        "operations": useful_operations(config, timed),
    }
    figures["compared"] = compare(model, folder, [row for row in rows if len(row.ids) <= _SHORT][:8])
    print(json.dumps(figures), file=sys.stderr)
    if DEVICE == "cuda":
        torch.cuda.empty_cache()
    peak = figures["peak"] = matmul_peak(options.peak_size)

    def through_files(numbers: range) -> list[float]:
        job = ScoreJob(str(numbers.start), "pool.parquet", pool, tuple(numbers))
        receipt = score_shard(job, WHOLE_SHARD, StagingView(temporary), scorer)
        return pq.read_table(temporary / receipt.files[0].path)["nll_sum"].to_pylist()

    def kernel(numbers: range, attention: str) -> list[Any]:
        some = rows[numbers.start : numbers.stop]
        return [row.nll_sum for row in score_rows(set_attention(model, attention), some, recipe.batch_tokens).rows]

    def plain(numbers: range, order: str) -> list[float]:
        some = rows[numbers.start : numbers.stop]
        batches = {
            "plain": [[number] for number in range(len(some))],
            "plain sorted": plan_batches(lengths[numbers.start : numbers.stop], recipe.batch_tokens, is_packed=False),
            "plain in order": [[*range(len(some))][first : first + 4] for first in range(0, len(some), 4)],
        }
        return run_plain(set_attention(model, "sdpa").network, some, batches[order])

    flows: dict[str, Callable[[range], list[Any]]] = {
        "corpusmill": through_files,
        "packed": lambda numbers: kernel(numbers, "corpusmill_by_rows"),
        "padded": lambda numbers: kernel(numbers, "sdpa"),
    }
    for name in filter(None, options.peers.split(",")):
        flows[name] = functools.partial(plain, order=name)
    figures["flows"] = {}
    expected: list[float] = []
    for name, flow in flows.items():
        set_attention(model, "corpusmill_by_rows")
        flow(range(_WARM_UP))
        scores = list[Any]()
        taken = seconds(lambda flow=flow, scores=scores: scores.extend(flow(range(_WARM_UP, len(rows)))))
        if None in scores:
            sys.exit(f"{name} does not fit into memory")
        expected = expected or scores
        differences = np.abs(np.array(scores) - expected) / [int(row.in_loss.sum()) for row in rows[_WARM_UP:]]
        if not differences.max() < _TOLERANCE:
            sys.exit(f"{name}'s scores differ by up to {differences.max():.3f} nats per token")
        figures["flows"][name] = {
            "seconds": round(taken, 3),
            "tokens_per_second": round(figures["tokens"] / taken),
            "share_of_peak": round(figures["operations"] / taken / peak, 3),
            "largest_difference": float(differences.max()),
        }
        print(name, json.dumps(figures["flows"][name]), file=sys.stderr)
    set_attention(model, "corpusmill_by_rows")
    positions = 8192
    hidden = torch.randn(positions, config.hidden_size, device=DEVICE, dtype=DTYPE)
    targets = torch.randint(0, config.vocab_size, (positions,), device=DEVICE)
    with torch.inference_mode():
        token_nll(hidden, targets, model.head)
        taken = seconds(lambda: token_nll(hidden, targets, model.head), 10 if DEVICE == "cuda" else 1)
    operations = 2 * config.hidden_size * config.vocab_size * positions
    figures["head"] = {"share_of_peak": round(operations / taken / peak, 3), "milliseconds": round(1000 * taken, 2)}
    if DEVICE == "cuda":
        figures["profile"] = profile(lambda: score_rows(model, timed[:24], recipe.batch_tokens))
    print(f"\n| flow | tokens per s | share of the peak ({peak / 1e12:.0f} TFLOP/s) | its time to packed |")
    print("|---" * 4 + "|")
    ours = figures["flows"]["packed"]["seconds"]
    for name, flow_figures in figures["flows"].items():
        tokens, share, took = (flow_figures[key] for key in ("tokens_per_second", "share_of_peak", "seconds"))
        print(f"| {name} | {tokens:,} | {share:.1%} | {took / ours:.2f} |")
    print(f"| LM head alone | | {figures['head']['share_of_peak']:.1%} | |\n")
    return figures


if __name__ == "__main__":
    main()
