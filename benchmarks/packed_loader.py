"""Benchmark of a packed set's training loader against a plain memmap.

    python benchmarks/packed_loader.py --rows 50000 --workers 2

torch's DataLoader reads the memmap. Input: synthetic rows of five documents. Set `index` has no stored boundaries, as
by the default recipe; set `boundaries` has them. The plain loader delivers tokens alone; ours also numbers the
documents and the rows, and its time includes opening the set. The flows take turns in one process, on rows in the page
cache, and a ratio is the median over rounds. CPU seconds include the workers.
"""

import argparse
import json
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import numpy as np
import torch
import zstandard
from measure import machine_line
from torch.utils.data import DataLoader, Dataset

from pipeline_assets.corpus.batching import loader
from pipeline_assets.corpus.formats import memmap

SEQ_LEN, SEGMENTS, FRAME_ROWS, SEED = 2048, 5, 4096, 1
Figures = tuple[float, float]  # million tokens per CPU second and per second


class PlainRows(Dataset[torch.Tensor]):
    """Shuffled rows of a token file, as a trainer without corpusmill reads them."""

    def __init__(self, path: Path) -> None:
        self.rows = np.memmap(path, "<i4", "r").reshape(-1, SEQ_LEN)
        self.order = np.random.default_rng([SEED, 0]).permutation(len(self.rows))

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, place: int) -> torch.Tensor:
        return torch.from_numpy(self.rows[self.order[place]].astype(np.int64))


def write_sets(folder: Path, rows: int) -> dict[str, Path]:
    """Write a packed set with an index alone, and one that also has stored boundaries."""
    folders = {name: folder / name for name in ("index", "boundaries")}
    for path in folders.values():
        path.mkdir()
    draw = np.random.default_rng(SEED)
    cuts = np.sort(draw.choice(SEQ_LEN - 1, (rows, SEGMENTS - 1)) + 1, axis=1)
    starts = np.concatenate([np.zeros((rows, 1), np.int32), cuts.astype(np.int32)], axis=1)
    lengths = np.diff(starts, axis=1, append=SEQ_LEN).astype(np.int32)
    tokens, frames, offset = folders["index"] / memmap.INPUT_IDS, list[memmap.Frame](), 0
    with open(tokens, "wb") as token_file, open(folders["index"] / memmap.INDEX, "wb") as index:
        for first in range(0, rows, FRAME_ROWS):
            part = lengths[first : first + FRAME_ROWS].tolist()
            segments = [[memmap.Segment(f"document-{draw.random()}", "made", 0, n) for n in row] for row in part]
            draw.integers(0, 200_000, (len(part), SEQ_LEN), np.int32).tofile(token_file)
            frames.append(memmap.Frame(first, offset))
            offset += index.write(zstandard.compress(msgspec.json.Encoder().encode_lines(segments)))
    meta = memmap.Meta(
        seq_len=SEQ_LEN,
        n_seqs=rows,
        dtype="int32",
        tokenizer_family="o200k_harmony",
        tokenizer_sha256="0" * 64,
        tokenizer_path="",
        vocabulary_size=200_000,
        eod_id=0,
        pad_id=0,
        strategy="sequential",
        documents=rows * SEGMENTS,
        tokens=rows * SEQ_LEN,
        padding_tokens=0,
        created_at="2026-01-01T00:00:00+00:00",
        index_frames=frames,
    )
    (folders["index"] / memmap.META).write_bytes(meta.to_bytes())
    for name in (memmap.META, memmap.INPUT_IDS, memmap.INDEX):
        os.link(folders["index"] / name, folders["boundaries"] / name)
    np.save(folders["boundaries"] / memmap.BOUNDARIES, np.stack([starts, lengths], axis=-1).reshape(-1, 2))
    np.save(folders["boundaries"] / memmap.BOUNDARY_OFFSETS, np.arange(rows + 1, dtype=np.int64) * SEGMENTS)
    return folders


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of the workers that ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def speed(open_loader: Callable[[], Iterable[torch.Tensor | tuple[torch.Tensor, ...]]]) -> Figures:
    """Return a loader's million tokens per CPU second and per second, opening it too."""
    cpu_s, wall_s = cpu_seconds(), time.perf_counter()
    sizes = [(batch if isinstance(batch, torch.Tensor) else batch[0]).numel() for batch in open_loader()]
    return sum(sizes) / 1e6 / (cpu_seconds() - cpu_s), sum(sizes) / 1e6 / (time.perf_counter() - wall_s)


def main() -> None:
    parser = argparse.ArgumentParser(description="Rows of a packed set → batches in torch")
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(
        f"{machine_line()}; {options.rows:,} rows of {SEQ_LEN:,}, batches of {options.batch}, {options.runs} rounds\n"
    )
    print(
        "| workers | loader | million tokens per CPU s | to plain | million tokens per s | to plain |\n"
        + "|---" * 6
        + "|"
    )
    to_plain = {}
    with tempfile.TemporaryDirectory() as temporary:
        folders = write_sets(Path(temporary), options.rows)
        for workers in (0, options.workers):
            flows: dict[str, Callable[[], Iterable[torch.Tensor | tuple[torch.Tensor, ...]]]] = {
                "plain": lambda w=workers: DataLoader(
                    PlainRows(folders["index"] / memmap.INPUT_IDS), batch_size=options.batch, num_workers=w
                ),
                **{
                    name: lambda w=workers, path=path: loader(path, options.batch, SEED, workers=w)
                    for name, path in folders.items()
                },
            }
            rounds = [{name: speed(flow) for name, flow in flows.items()} for _ in range(options.runs + 1)][1:]
            for name in flows:
                cells = []
                for kind in (0, 1):
                    ratio = statistics.median(figures[name][kind] / figures["plain"][kind] for figures in rounds)
                    median = statistics.median(figures[name][kind] for figures in rounds)
                    cells += [f"{median:.1f}", f"{ratio:.2f}"]
                    to_plain[f"{name}, {workers} workers, {('cpu', 'wall')[kind]}"] = round(ratio, 2)
                print(f"| {workers} | {name} | {' | '.join(cells)} |")
    print(json.dumps({"benchmark": "packed_loader", "to_plain": to_plain}))


if __name__ == "__main__":
    main()
