"""Benchmark of reading a shuffled mixture against NumPy copies of the same bytes.

    python benchmarks/shards.py --mb 512 --runs 5

One process reads two corpora of synthetic uint16 rows of 2,048 tokens, in token shards of 64 MiB, in batches of 32, all
in memory. The peers are numpy.copy of every shard; numpy.copy of rows in stored order, a batch at a time, which no
shuffled order can match; and NumPy's fancy index, a batch of the same random rows at a time. Before speeds are
compared, batches of the reader are compared with single rows. Flows take turns; a ratio is the median over rounds, of
CPU seconds.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from measure import machine_line

from pipeline_assets.build.build_target import build_target
from pipeline_assets.build.systems import unknown_kind
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.shards.reader import MixtureReader
from pipeline_assets.corpus.shards.recipe import SHARDS_STAGE
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.files import file_sha256
from pipeline_assets.spine.staging import OutputFile, StagingDir

_SEQ_LEN, _ROWS_PER_SHARD, _BATCH = 2048, 16_384, 32
_PROVEN_BATCHES = 50


def seal_rows(root: Path, name: str, rows: int, seed: int) -> Path:
    """Seal token shards of random ids; return their folder."""
    dice = np.random.default_rng(seed)

    def make(building: StagingDir) -> BuildResult:
        files = []
        for number, first in enumerate(range(0, rows, _ROWS_PER_SHARD)):
            path = building.path(f"shard_{number:05d}.npy")
            np.save(path, dice.integers(2, 60_000, (min(_ROWS_PER_SHARD, rows - first), _SEQ_LEN), np.uint16))
            sha256 = file_sha256(path)
            own = min(_ROWS_PER_SHARD, rows - first)
            files.append(OutputFile(path.name, own, path.stat().st_size, sha256, sha256))
        decisions = {"dtype": "uint16", "seq_len": _SEQ_LEN, "end_of_document": 1, "vocabulary_size": 60_000}
        return BuildResult(files, {}, decisions | {"tokenizer_sha256": "0" * 64})

    target = Target(unknown_kind("made/token_shards", SHARDS_STAGE), name, Path(name), {"rows": rows})
    return build_target(target, root, make, False, {}).folder


def prove(reader: MixtureReader) -> None:
    """Assert that the reader's batches contain the rows of their positions."""
    for number, batch in zip(range(_PROVEN_BATCHES), reader.batches(_BATCH), strict=False):
        for position, row in enumerate(batch, number * _BATCH):
            assert np.array_equal(row, reader[position].tokens)


def make_flows(reader: MixtureReader) -> dict[str, Callable[[], object]]:
    files = [shards.map_file(number) for shards in reader.shards.values() for number in range(len(shards.files))]
    dice = np.random.default_rng(1)
    picks = [dice.permutation(len(file)) for file in files]

    def read_all() -> None:
        for _ in reader.batches(_BATCH):
            pass

    def by_shard() -> None:
        for file in files:
            np.copy(file)

    def by_batch() -> None:
        for file in files:
            for first in range(0, len(file), _BATCH):
                np.copy(file[first : first + _BATCH])

    def fancy() -> None:
        for file, rows in zip(files, picks, strict=True):
            for first in range(0, len(file), _BATCH):
                file[rows[first : first + _BATCH]]

    return {
        "MixtureReader.batches": read_all,
        "numpy.copy of every shard": by_shard,
        "numpy.copy in order, a batch at a time": by_batch,
        "fancy index, a batch at a time": fancy,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Rows of a mixture, against NumPy copies of the same bytes")
    parser.add_argument("--mb", type=int, default=512, help="megabytes of tokens")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    rows = options.mb * 1_000_000 // (_SEQ_LEN * 2)
    with tempfile.TemporaryDirectory() as folder:
        folders = {"a": seal_rows(Path(folder), "a", rows * 3 // 4, 1), "b": seal_rows(Path(folder), "b", rows // 4, 2)}
        reader = MixtureReader(folders, None, seed=1)
        prove(reader)
        started = time.perf_counter()
        len(MixtureReader(folders, None, seed=1))
        order_s = time.perf_counter() - started
        flows, rounds = make_flows(reader), []
        for flow in flows.values():
            flow()
        for _ in range(options.runs):
            seconds = {}
            for name, flow in flows.items():
                started = time.process_time()
                flow()
                seconds[name] = time.process_time() - started
            rounds.append(seconds)
    own = "MixtureReader.batches"
    ratios = {name: statistics.median(seconds[name] / seconds[own] for seconds in rounds) for name in flows}
    print(f"{machine_line()}; {options.runs} rounds; {len(reader):,} rows, ordered in {order_s:.2f} s\n")
    print("| flow | GB per CPU s | the reader's speed to it |\n|---|---|---|")
    for name in flows:
        speed = options.mb / 1000 / statistics.median(seconds[name] for seconds in rounds)
        print(f"| {name} | {speed:.1f} | {ratios[name]:.2f} |")
    rounded = {name: round(ratio, 3) for name, ratio in ratios.items()}
    print(json.dumps({"benchmark": "shards", "mb": options.mb, "speed_to": rounded}))


if __name__ == "__main__":
    main()
