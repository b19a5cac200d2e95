"""Benchmark of samples and batches of sentence pairs.

    python benchmarks/parallel_text.py --pairs newstest.fr-en.jsonl

Each sampling algorithm is measured. Input: the pairs of a file of JSON lines, repeated with numbers, as JSON lines and
as Parquet. The ceilings only read: with the same reader, with Python's loop over lines (`plain`), and with a loop that
decodes each line by json or msgspec. The samples of both formats are proven equal. Then batches of 16 of the original
pairs: their padding, in random order and in buckets, and the speed of the loader next to a DataLoader that maps the
same files and pads with torch's `pad_sequence`; an epoch has each pair 20 times, and both deliver the same sequences.
"""

import argparse
import collections
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measure import cpu_s, machine_line

from pipeline_assets.corpus.parallel_text.batches import Order, padding_share
from pipeline_assets.corpus.parallel_text.draw import draw_pairs, materialize
from pipeline_assets.corpus.parallel_text.encode import encode
from pipeline_assets.corpus.parallel_text.pairs import Languages, PairFilters, canonical_text
from pipeline_assets.corpus.parallel_text.sample import SampleRecipe, SampleSource
from pipeline_assets.corpus.parallel_text.token_cache import open_cache
from pipeline_assets.corpus.parallel_text.translation_files import TranslationFile, read_translation_rows

FR_EN = Languages(src="fr", tgt="en")
FILTERS = PairFilters()
_COPIES = 20  # of each pair in an epoch of the loaders


def write_rows(folder: Path, pairs: list[dict[str, str]], rows: int) -> dict[str, TranslationFile]:
    """Write the rows in both formats; return the files by suffix."""
    lines, table = folder / "rows.jsonl", folder / "rows.parquet"
    schema = pa.schema([("translation", pa.struct([("fr", pa.string()), ("en", pa.string())]))])
    with open(lines, "wb") as file, pq.ParquetWriter(table, schema) as writer:
        for first in range(0, rows, len(pairs)):
            numbered = enumerate(pairs[: rows - first], first)
            block = [{"fr": f"{number} {pair['fr']}", "en": f"{number} {pair['en']}"} for number, pair in numbered]
            file.writelines(msgspec.json.encode({"translation": pair}) + b"\n" for pair in block)
            writer.write_table(pa.table({"translation": block}, schema))
    return {path.suffix: TranslationFile(path.name, lambda path=path: path) for path in (lines, table)}


def uids(file: TranslationFile, **options: object) -> frozenset[str]:
    """Return the ids of the sampled pairs."""
    recipe = SampleRecipe.from_mapping({"languages": FR_EN.content(), **options}, "benchmark")
    return frozenset(pair.uid for pair in draw_pairs([file], recipe).pairs)


def count_passing(file: TranslationFile) -> int:
    """Count the rows that pass the filters, without sampling."""
    return sum(
        FILTERS.drop_reason(canonical_text(row.src), canonical_text(row.tgt)) is None
        for _, row in read_translation_rows(file, FR_EN)
    )


def plain_lines(file: TranslationFile) -> None:
    with open(file.fetch(), "rb") as opened:
        collections.deque(opened, maxlen=0)


def decode_lines(file: TranslationFile, decode: Callable[[bytes], Any]) -> None:
    with open(file.fetch(), "rb") as opened:
        for line in opened:
            sides = decode(line)["translation"]
            _ = sides["fr"], sides["en"]


def rounds(flows: dict[str, Callable[[], object]], runs: int) -> list[dict[str, float]]:
    """Return the CPU seconds of each flow by round.

    Flows take turns, so that a busy machine slows down all of them.
    """
    measured = []
    for _ in range(runs):
        spent = {}
        for name, flow in flows.items():
            started = time.process_time()
            flow()
            spent[name] = time.process_time() - started
        measured.append(spent)
    return measured


def write_cache(pairs: list[dict[str, str]], folder: Path) -> Path:
    """Sample and encode the pairs; return the folder of the token cache."""
    path = folder / "pairs.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode({"translation": pair}) + b"\n" for pair in pairs))
    source = SampleSource(dataset="benchmark", revision="0" * 40, splits=())
    files = [TranslationFile(path.name, lambda: path)]
    k = min(2000, len(pairs) // 2)
    sample = materialize(k, files=files, languages=("fr", "en"), source=source, folder=folder / "sample")
    return encode(sample, None, folder / "cache")


def waste(folder: Path) -> dict[str, float]:
    """Return the shares of padding without buckets, and with buckets of 20 steps."""
    cache = open_cache(folder)
    lengths = cache.lengths("pair")[cache.pair_numbers("train")]
    steps = {name: Order(16, bucket_steps=size).steps(lengths, 0) for name, size in (("random", 0), ("buckets", 20))}
    return {name: padding_share(lengths, [np.asarray(batch) for [batch] in batches]) for name, batches in steps.items()}


def loader_speeds(folder: Path, runs: int) -> dict[str, float]:
    """Return the loader's speed to a plain DataLoader's, in CPU seconds, by workers."""
    import torch
    from torch.utils.data import DataLoader

    from pipeline_assets.corpus.batching import PairDataset, PairLoader

    torch.set_num_threads(1)
    dataset = PairDataset(folder)
    dataset.pair_numbers, dataset.lengths = np.tile(dataset.pair_numbers, _COPIES), np.tile(dataset.lengths, _COPIES)
    names, pad_id = ("src", "tgt"), dataset.cache.meta.pad_id
    files = [[np.load(folder / f"{side}.{kind}.npy", mmap_mode="r") for kind in ("ids", "offsets")] for side in names]

    class PlainPairs(torch.utils.data.Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return len(dataset)

        def __getitem__(self, position: int) -> torch.Tensor:
            row = dataset.pair_numbers[position]
            sides = [ids[starts[row] : starts[row + 1]] for ids, starts in files]
            return torch.from_numpy(np.concatenate(sides).astype(np.int64))

    def pad(pairs: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        ids = torch.nn.utils.rnn.pad_sequence(pairs, batch_first=True, padding_value=pad_id)
        tokens, targets = ids[:, :-1].clone(), ids[:, 1:].clone()
        is_token = torch.arange(tokens.shape[1]) < torch.tensor([len(pair) - 1 for pair in pairs])[:, None]
        tokens[~is_token], targets[~is_token] = pad_id, -100
        return {"tokens": tokens, "targets": targets, "attn_mask": is_token[:, None]}

    def plain(workers: int) -> Iterable[dict[str, torch.Tensor]]:
        return DataLoader(PlainPairs(), 16, shuffle=True, num_workers=workers, collate_fn=pad)

    def ours(workers: int) -> Iterable[Any]:
        return PairLoader(dataset, Order(16), mask="padding", workers=workers)

    def sequences(batches: Iterable[dict[str, torch.Tensor]]) -> list[tuple[list[int], list[int]]]:
        return sorted(
            (tokens[mask[0]].tolist(), targets[mask[0]].tolist())
            for batch in batches
            for tokens, targets, mask in zip(batch["tokens"], batch["targets"], batch["attn_mask"], strict=True)
        )

    speeds = {}
    for workers in (0, 2):
        if sequences(plain(workers)) != sequences(ours(workers)):
            sys.exit(f"the loaders' sequences differ with {workers} workers")
        ratios = []
        for _ in range(runs):
            spent = []
            for flow in (plain, ours):
                started = cpu_s()
                collections.deque(flow(workers), maxlen=0)
                spent.append(cpu_s() - started)
            ratios.append(spent[0] / spent[1])
        speeds[f"{workers} workers"] = round(statistics.median(ratios), 2)
    return speeds


def main() -> None:
    parser = argparse.ArgumentParser(description="Sentence pairs → a sample of 120")
    parser.add_argument("--pairs", type=Path, required=True, help="JSON lines with a column `translation` of fr and en")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    pairs = [json.loads(line)["translation"] for line in arguments.pairs.read_bytes().splitlines()]
    algorithms: dict[str, tuple[str, dict[str, object]]] = {
        "classic, no filters": ("rows", {"filters": None}),
        "classic": ("rows and filters", {}),
        "es_weighted by chars": ("rows and filters", {"algorithm": "es_weighted", "weight": "chars"}),
    }
    print(f"{machine_line()}; one process, medians of {arguments.runs}, {arguments.rows:,} rows, samples equal\n")
    print("| | lines, CPU s | speed | Parquet, CPU s | speed |\n|---|---|---|---|---|")
    table: dict[str, list[str]] = {}
    speeds: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        files = write_rows(Path(temporary), pairs, arguments.rows)
        for algorithm, (_, options) in algorithms.items():
            if len({uids(file, **options) for file in files.values()}) != 1:
                sys.exit(f"{algorithm}: the samples of the formats differ")
        for suffix, file in files.items():
            flows: dict[str, Callable[[], object]] = {
                "rows": lambda file=file: collections.deque(read_translation_rows(file, FR_EN), maxlen=0),
                "rows and filters": lambda file=file: count_passing(file),
            }
            flows |= {
                algorithm: lambda file=file, options=options: uids(file, **options)
                for algorithm, (_, options) in algorithms.items()
            }
            if suffix == ".jsonl":
                flows["plain"] = lambda file=file: plain_lines(file)
                flows["json"] = lambda file=file: decode_lines(file, json.loads)
                flows["msgspec"] = lambda file=file: decode_lines(file, msgspec.json.Decoder().decode)
            measured = rounds(flows, arguments.runs)
            for name in flows:
                ceiling = algorithms[name][0] if name in algorithms else name
                speed = statistics.median(spent[ceiling] / spent[name] for spent in measured)
                cpu = statistics.median(spent[name] for spent in measured)
                table.setdefault(name, []).extend(
                    [f"{cpu:.2f}", f"{speed:.2f} of {ceiling}" if name in algorithms else ""]
                )
                if name in algorithms:
                    speeds.setdefault(name, {})[suffix] = round(speed, 3)
        cache = write_cache(pairs, Path(temporary))
        padding, loaders = waste(cache), loader_speeds(cache, arguments.runs)
    for name, cells in table.items():
        print(f"| {name} | {' | '.join(cells + [''] * (4 - len(cells)))} |")
    print(f"\npadding, batches of 16: {padding['random']:.1%} in random order, {padding['buckets']:.1%} in buckets")
    print(f"loader of pairs, times as fast as a plain DataLoader: {loaders}")
    rounded = {name: round(share, 4) for name, share in padding.items()}
    print(
        json.dumps(
            {"benchmark": "parallel_text", "speed_of_ceiling": speeds, "pad_waste": rounded, "loader_to_plain": loaders}
        )
    )


if __name__ == "__main__":
    main()
