"""Flows of datatrove, datasets and corpusmill's loader that compared.py disturbs.

    python compared_flows.py NAME INPUT FOLDER

Each flow uses only the documented way of its library. It reads the JSON lines in INPUT and writes below FOLDER; a
second call of the same flow is the documented restart.
"""

import json
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

PAUSE_S = 0.0005  # per row, so that a kill meets a half-written file
STOPS = (1_000, 3_000, 5_000)  # rows after which a stream is stopped and resumed by a new process
BUFFER = 1_000  # rows of a shuffle buffer, the default of datasets


def slowly(data: Iterable[Any], rank: int, world_size: int) -> Iterator[Any]:
    for document in data:
        time.sleep(PAUSE_S)
        yield document


def slow_row(row: dict[str, Any]) -> dict[str, Any]:
    time.sleep(PAUSE_S)
    return row


def datatrove_executor(source: Path, folder: Path, writer: Any, steps: list[Any], workers: int = 2) -> Any:
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader

    return LocalPipelineExecutor(
        [JsonlReader(str(source)), *steps, writer],
        tasks=len(list(source.iterdir())),
        workers=workers,
        logging_dir=str(folder / "logs"),
    )


def datatrove_writer(folder: Path, form: str) -> Any:
    from datatrove.pipeline.writers import JsonlWriter, ParquetWriter

    if form == "parquet":
        return ParquetWriter(str(folder))
    return JsonlWriter(str(folder), compression="gzip" if form == "gz" else None)


def datatrove_write(source: Path, folder: Path, form: str) -> None:
    """Run four tasks in two workers; completed tasks are skipped by default."""
    datatrove_executor(source, folder, datatrove_writer(folder / "out", form), [slowly]).run()


def datatrove_read(source: Path, folder: Path, form: str) -> None:
    """Run a second pipeline on the output of the first."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader, ParquetReader

    reader = (ParquetReader if form == "parquet" else JsonlReader)(str(folder / "out"))
    writer = datatrove_writer(folder / "next", "jsonl")
    LocalPipelineExecutor([reader, writer], tasks=1, workers=1, logging_dir=str(folder / "next_logs")).run()


def datatrove_depends(source: Path, folder: Path) -> None:
    """Run a pipeline that `depends` on another, whose incomplete tasks run first."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader

    first = datatrove_executor(source, folder, datatrove_writer(folder / "out", "jsonl"), [slowly])
    steps = [JsonlReader(str(folder / "out")), datatrove_writer(folder / "next", "jsonl")]
    LocalPipelineExecutor(steps, tasks=1, workers=1, logging_dir=str(folder / "next_logs"), depends=first).run()


def load_rows(source: Path, folder: Path, streaming: bool = False) -> Any:
    from datasets import load_dataset

    files = [str(path) for path in sorted(source.iterdir())]
    kind = {".parquet": "parquet"}.get(Path(files[0]).suffix, "json")
    cache = str(folder / "cache")
    return load_dataset(kind, data_files=files, split="train", cache_dir=cache, streaming=streaming)


def datasets_map(source: Path, folder: Path) -> None:
    """Map in two processes, then write Parquet; the cache keeps finished parts."""
    rows = load_rows(source, folder).map(slow_row, num_proc=2)
    (folder / "out").mkdir(exist_ok=True)
    rows.to_parquet(folder / "out" / "rows.parquet")


def datasets_write(source: Path, folder: Path, form: str) -> None:
    """Write rows that are computed on access, so that writing takes a while."""
    rows = load_rows(source, folder).with_transform(slow_batch)
    (folder / "out").mkdir(exist_ok=True)
    match form:
        case "json":
            rows.to_json(folder / "out" / "rows.jsonl", batch_size=500)
        case "parquet":
            rows.to_parquet(folder / "out" / "rows.parquet", batch_size=500)
        case "arrow":
            load_rows(source, folder).map(slow_row).save_to_disk(folder / "out" / "saved", num_shards=4)


def slow_batch(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
    time.sleep(PAUSE_S * len(batch["id"]))
    return batch


def datasets_read(source: Path, folder: Path) -> None:
    """Load the output of another process and write it as JSON lines."""
    from datasets import load_from_disk

    saved = folder / "out" / "saved"
    rows = load_from_disk(saved) if saved.exists() else load_rows(folder / "out", folder / "second")
    (folder / "next").mkdir()
    rows.to_json(folder / "next" / "rows.jsonl")


def take(rows: Iterable[Any], limit: int | None, ids: Path, get_text: Any) -> Iterator[int]:
    """Append a line for each used row, and yield the number of used rows."""
    with ids.open("a") as file:
        for used, row in enumerate(rows, 1):
            file.write(json.dumps({"text": get_text(row)}) + "\n")
            yield used
            if used == limit:
                return


def next_limit(folder: Path) -> tuple[Path, int | None, bool]:
    """Return the file of used rows, the next number of rows, and if it is the first."""
    ids = folder / "next" / "used.jsonl"
    ids.parent.mkdir(exist_ok=True)
    before = len(ids.read_text().splitlines()) if ids.exists() else 0
    limits = [stop - before for stop in STOPS if stop > before]
    return ids, limits[0] if limits else None, before == 0


def datasets_stream(source: Path, folder: Path, way: str) -> None:
    """Use rows of a stream up to the next stop; save and load `state_dict`."""
    ids, limit, is_first = next_limit(folder)
    rows = load_rows(source, folder, streaming=True)
    if way == "shuffled":
        rows = rows.shuffle(seed=1, buffer_size=BUFFER)
    state = folder / "state.json"
    if not is_first:
        rows.load_state_dict(json.loads(state.read_text()))
    for _ in take(rows, limit, ids, lambda row: row["text"]):
        pass
    state.write_text(json.dumps(rows.state_dict()))


def datasets_indexed(source: Path, folder: Path) -> None:
    """Shuffle all rows by an index, and skip the rows that were used."""
    ids, limit, is_first = next_limit(folder)
    used = 0 if is_first else len(ids.read_text().splitlines())
    rows = load_rows(source, folder).shuffle(seed=1).skip(used)
    for _ in take(rows, limit, ids, lambda row: row["text"]):
        pass


def corpusmill_loader(source: Path, folder: Path) -> None:
    """Use rows of a packed set up to the next stop, with `state_dict`."""
    from corpusmill import loader

    ids, limit, is_first = next_limit(folder)
    batches = loader(str(folder / "data/stage_a/compared/packed/compared"), batch=8, seed=1)
    state = folder / "state.json"
    if not is_first:
        batches.load_state_dict(json.loads(state.read_text()))
    with ids.open("a") as file:
        used = 0
        for tokens, *_ in batches:
            for row in tokens.numpy():
                file.write(json.dumps({"text": row.tolist()}) + "\n")
            used += len(tokens)
            if limit is not None and used >= limit:
                break
    state.write_text(json.dumps(batches.state_dict()))


if __name__ == "__main__":
    name, *options = sys.argv[1].split(":")
    globals()[name](Path(sys.argv[2]), Path(sys.argv[3]), *options)
