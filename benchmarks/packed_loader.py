"""Benchmark of a packed set's loader against a memmap, streaming and litdata.

    python benchmarks/packed_loader.py --rows 131072 --epochs 2 --runs 3

Input: synthetic rows of five documents, 1 GB in the page cache. Set `index` has no stored boundaries, as by the default
recipe; set `boundaries` has them. All loaders deliver the same shuffled rows as int64 batches; ours also numbers the
documents and the rows. The multisets of rows are proven equal first. Each loader runs in a process of its own; loaders
take turns, and a ratio is the median over rounds. Figures include opening the loader and workers, but not imports.
MosaicML streaming and litdata take part if they are installed; they shuffle within blocks and files, not over all rows.
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import zstandard
from loader_flows import BOUNDARIES, CONVERTED, INDEX, LOADERS, SEED, SEQ_LEN
from measure import PROJECT, machine_line

from pipeline_assets.corpus.formats import memmap

SEGMENTS, FRAME_ROWS = 5, 4096
OURS = f"corpusmill, {INDEX}"


def write_sets(folder: Path, rows: int) -> None:
    """Write a packed set with an index alone, and one that also has stored boundaries."""
    folders = {name: folder / name for name in (INDEX, BOUNDARIES)}
    for path in folders.values():
        path.mkdir()
    draw = np.random.default_rng(SEED)
    cuts = np.sort(draw.choice(SEQ_LEN - 1, (rows, SEGMENTS - 1)) + 1, axis=1)
    starts = np.concatenate([np.zeros((rows, 1), np.int32), cuts.astype(np.int32)], axis=1)
    lengths = np.diff(starts, axis=1, append=SEQ_LEN).astype(np.int32)
    tokens, frames, offset = folders[INDEX] / memmap.INPUT_IDS_FILE, list[memmap.Frame](), 0
    with open(tokens, "wb") as token_file, open(folders[INDEX] / memmap.INDEX_FILE, "wb") as index:
        for first in range(0, rows, FRAME_ROWS):
            part = lengths[first : first + FRAME_ROWS].tolist()
            segments = [[memmap.Segment(f"document-{draw.random()}", "made", 0, n) for n in row] for row in part]
            draw.integers(0, 200_000, (len(part), SEQ_LEN), np.int32).tofile(token_file)
            frames.append(memmap.Frame(first, offset))
            offset += index.write(zstandard.compress(msgspec.json.Encoder().encode_lines(segments)))
    meta = memmap.PackedSetMeta(
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
    (folders[INDEX] / memmap.META_FILE).write_bytes(meta.to_bytes())
    for name in (memmap.META_FILE, memmap.INPUT_IDS_FILE, memmap.INDEX_FILE):
        os.link(folders[INDEX] / name, folders[BOUNDARIES] / name)
    np.save(folders[BOUNDARIES] / memmap.BOUNDARIES_FILE, np.stack([starts, lengths], axis=-1).reshape(-1, 2))
    np.save(folders[BOUNDARIES] / memmap.BOUNDARY_OFFSETS_FILE, np.arange(rows + 1, dtype=np.int64) * SEGMENTS)


def run(verb: str, *arguments: object) -> str:
    """Run a verb of loader_flows.py; return the last line that it prints."""
    command = [sys.executable, str(Path(__file__).with_name("loader_flows.py")), verb, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT), str(Path(__file__).parent)])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command[1:])}: {done.stderr[-2000:]}")
    return done.stdout.splitlines()[-1]


def prove_equal(names: Sequence[str], folder: Path, batch: int, workers: int) -> None:
    """Exit if two loaders deliver different multisets of rows."""
    hashes = {name: run("prove", name, folder, batch, workers) for name in names}
    if len(set(hashes.values())) != 1:
        sys.exit(f"the loaders' rows differ with {workers} workers: {hashes}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Rows of a packed set → batches in torch")
    parser.add_argument("--rows", type=int, default=131_072)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2], help="numbers of worker processes")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    names = [name for name in LOADERS if name not in CONVERTED or importlib.util.find_spec(name)]
    speeds: dict[str, float] = {}
    print(f"{machine_line()}; {options.rows:,} rows of {SEQ_LEN:,}, batches of {options.batch}, ", end="")
    print(f"{options.epochs} epochs, {options.runs} rounds", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_sets(folder, options.rows)
        for name in names:
            if name in CONVERTED:
                print(f"conversion to {name}, apart: {float(run('convert', name, folder)):.1f} CPU s", flush=True)
        print("\n| workers | loader | rows per CPU s | corpusmill to it | rows per s | corpusmill to it |")
        print("|---" * 6 + "|")
        for workers in options.workers:
            prove_equal(names, folder, options.batch, workers)
            settings = folder, options.batch, workers, options.epochs
            rounds = [
                {name: json.loads(run("measure", name, *settings)) for name in names} for _ in range(options.runs)
            ]
            for name in names:
                cells = []
                for figure, label in ((1, "CPU"), (2, "wall")):
                    per_s = statistics.median(spent[name][0] / spent[name][figure] for spent in rounds)
                    to_it = statistics.median(spent[name][figure] / spent[OURS][figure] for spent in rounds)
                    cells += [f"{per_s:,.0f}", f"{to_it:.2f}"]
                    speeds[f"{name}, {workers} workers, {label}"] = round(to_it, 2)
                print(f"| {workers} | {name} | {' | '.join(cells)} |", flush=True)
    print(json.dumps({"benchmark": "packed_loader", "rows": options.rows, "corpusmill_to": speeds}))


if __name__ == "__main__":
    main()
