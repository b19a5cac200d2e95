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
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from scoring_gpu_flows import DEVICE, DTYPE, WARM_UP, Setup, plain_scores, set_attention, token_scores

from pipeline_assets.corpus.scoring.nll import LanguageModel, score_rows, token_nll
from pipeline_assets.corpus.scoring.token_rows import TokenRow

_KINDS = {
    "flash": "attention",
    "fold_row": "sums of the head",
    "gemm": "products",
    "nvjet": "products",
    "cutlass": "products",
}
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


def measure_all(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return all figures, and print them."""
    setup = Setup.save(options, folder)
    figures = describe(setup)
    short = [row for row in setup.rows if len(row.ids) <= _SHORT]
    figures["compared"] = compare(setup.model, folder / "model", short[:8])
    print(json.dumps(figures), file=sys.stderr)
    if DEVICE == "cuda":
        torch.cuda.empty_cache()
    peak = figures["peak"] = matmul_peak(options.peak_size)
    taken = time_flows(setup, list(filter(None, options.peers.split(","))))
    figures["flows"] = {
        name: {
            "seconds": round(flow_seconds, 3),
            "tokens_per_second": round(figures["tokens"] / flow_seconds),
            "share_of_peak": round(figures["operations"] / flow_seconds / peak, 3),
            "largest_difference": difference,
        }
        for name, (flow_seconds, difference) in taken.items()
    }
    set_attention(setup.model, "corpusmill_by_rows")
    figures["head"] = measure_head(setup, peak)
    if DEVICE == "cuda":
        figures["profile"] = profile(lambda: score_rows(setup.model, setup.timed[:24], setup.recipe.batch_tokens))
    print_table(figures)
    return figures


def describe(setup: Setup) -> dict[str, Any]:
    """Return the device, the versions, the model and the size of the timed rows."""
    return {
        "device": torch.cuda.get_device_name() if DEVICE == "cuda" else "CPU",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "model": dict(setup.model.metadata),
        "parameters": sum(weight.numel() for weight in setup.model.network.parameters()),
        "rows": len(setup.timed),
        "tokens": sum(len(row.ids) for row in setup.timed),
        "completion_tokens": sum(int(row.in_loss.sum()) for row in setup.timed),
        "operations": useful_operations(setup.config, setup.timed),
    }


def time_flows(setup: Setup, peers: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Return the seconds of each flow, and its largest difference to the first.

    The difference compares NLLs of rows, in nats per token.
    """
    flows: dict[str, Callable[[range], list[Any]]] = {
        "corpusmill": setup.through_files,
        "packed": functools.partial(setup.by_kernel, attention="corpusmill_by_rows"),
        "padded": functools.partial(setup.by_kernel, attention="sdpa"),
        **{name: functools.partial(setup.by_plain_loop, order=name) for name in peers},
    }
    tokens = np.array([int(row.in_loss.sum()) for row in setup.timed])
    found, expected = {}, list[float]()
    for name, flow in flows.items():
        set_attention(setup.model, "corpusmill_by_rows")
        flow(range(WARM_UP))
        scores = list[Any]()
        taken = seconds(lambda flow=flow, scores=scores: scores.extend(flow(range(WARM_UP, len(setup.rows)))))
        if None in scores:
            sys.exit(f"{name} does not fit into memory")
        expected = expected or scores
        difference = float((np.abs(np.array(scores) - expected) / tokens).max())
        if not difference < _TOLERANCE:
            sys.exit(f"{name}'s scores differ by up to {difference:.3f} nats per token")
        found[name] = taken, difference
        print(name, round(taken, 3), "s", file=sys.stderr)
    return found


def measure_head(setup: Setup, peak: float) -> dict[str, float]:
    """Return time and share of the peak of the head's kernel on random states."""
    positions, width, vocabulary = 8192, setup.config.hidden_size, setup.config.vocab_size
    hidden = torch.randn(positions, width, device=DEVICE, dtype=DTYPE)
    targets = torch.randint(0, vocabulary, (positions,), device=DEVICE)
    with torch.inference_mode():
        token_nll(hidden, targets, setup.model.head)
        taken = seconds(lambda: token_nll(hidden, targets, setup.model.head), 10 if DEVICE == "cuda" else 1)
    share = 2 * width * vocabulary * positions / taken / peak
    return {"share_of_peak": round(share, 3), "milliseconds": round(1000 * taken, 2)}


def print_table(figures: dict[str, Any]) -> None:
    """Print speed, share of the peak and relative time of each flow."""
    print(f"\n| flow | tokens per s | share of the peak ({figures['peak'] / 1e12:.0f} TFLOP/s) | its time to packed |")
    print("|---" * 4 + "|")
    ours = figures["flows"]["packed"]["seconds"]
    for name, flow in figures["flows"].items():
        share, ratio = flow["share_of_peak"], flow["seconds"] / ours
        print(f"| {name} | {flow['tokens_per_second']:,} | {share:.1%} | {ratio:.2f} |")
    print(f"| LM head alone | | {figures['head']['share_of_peak']:.1%} | |\n")


if __name__ == "__main__":
    main()
