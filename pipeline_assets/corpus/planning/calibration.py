"""Measures the machine: the real kernels on a small text that every Python has, in two seconds or so."""

import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline_assets.corpus.planning.rates import Rates
from pipeline_assets.corpus.readers.hub_files import HubFile, Span
from pipeline_assets.corpus.readers.parquet import Footer, row_groups
from pipeline_assets.corpus.sampling.row_groups import Piece
from pipeline_assets.corpus.snapshot.convert import convert_shard
from pipeline_assets.corpus.snapshot.plan import LocalPiece, SnapshotShard
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.corpus.spine.building import BuildFolder, Receipt
from pipeline_assets.corpus.spine.durable import DurableFile
from pipeline_assets.corpus.spine.stage import WHOLE
from pipeline_assets.corpus.tokens.encode import EncodeShard, encode_shard
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256

_PAGE_CHARACTERS = 5000
_TEXT_CHARACTERS = 6_000_000
_TRIES = 3
_WRITTEN_BYTES = 32 << 20
_ROOM_BYTES = 96 << 20
_DATASET = "python/library"
_ROWS_PER_GROUP = 500
_PROJECT = Path(__file__).parents[3]


def calibrate(folder: Path, zstd_level: int) -> Rates | None:
    """Rates of this machine, as busy as it is now, from the sources of Python's library: 5 MB, not repeated. Of web
    pages and manuals they are right within a third.

    The tokenizer has seen every word when it is timed, as it soon has in a real corpus.

    Args:
        folder: on the disk that a build would write to; what is written here is removed again.
    Returns:
        None where this Python has no sources, or the disk no room for it.
    """
    texts = _library_texts()
    if not texts or shutil.disk_usage(folder).free < _ROOM_BYTES:
        return None
    with tempfile.TemporaryDirectory(prefix=".calibration.", dir=folder) as temporary:
        build, recipe, source = BuildFolder(Path(temporary)), _recipe(), _source(Path(temporary), texts)
        converted: list[Receipt] = []
        convert_s = _fastest(lambda: converted.append(convert_shard(source, WHOLE, build, recipe, zstd_level)))
        documents = converted[0].files[0]
        shard = EncodeShard(source.name, documents.path, build.path(documents.path), documents.rows)

        def encode() -> None:
            encode_shard(shard, WHOLE, build, VOCABULARY_SHA256, "gigatoken", "train", "0", zstd_level)

        first_s, encode_s = _fastest(encode, tries=1), _fastest(encode)
        write_s = _fastest(lambda: _write(build.path("written")))
    text_bytes = converted[0].counts["bytes"]
    return Rates(
        convert=text_bytes / convert_s,
        encode=text_bytes / encode_s,
        write=_WRITTEN_BYTES / write_s,
        start_s=round(_import_s() + max(0.0, first_s - encode_s), 3),
        basis="calibrated now",
    )


def _library_texts() -> list[str]:
    """Pages of the modules of Python's library, in the order of their names."""
    pages: list[str] = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace").replace("\0", "")
        pages += [text[start : start + _PAGE_CHARACTERS] for start in range(0, len(text), _PAGE_CHARACTERS)]
    return pages[: _TEXT_CHARACTERS // _PAGE_CHARACTERS]


def _import_s() -> float:
    """Seconds until a fresh Python has what a worker imports."""
    modules = f"import {convert_shard.__module__}, {encode_shard.__module__}"
    return _fastest(lambda: subprocess.run([sys.executable, "-c", modules], check=True, cwd=_PROJECT), tries=1)


def _fastest(work: Callable[[], object], tries: int = _TRIES) -> float:
    """Seconds of the quickest try."""
    seconds = []
    for _ in range(tries):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return max(min(seconds), 1e-6)


def _write(path: Path) -> None:
    with DurableFile(path) as file:
        file.write(bytes(_WRITTEN_BYTES))


def _source(folder: Path, texts: Sequence[str]) -> SnapshotShard:
    """A shard of one Parquet file that lies here."""
    ids = [f"{number:032x}" for number in range(len(texts))]
    path = folder / "library.parquet"
    columns = {"text": pa.array(texts), "id": ids, "url": ids, "language": ["en"] * len(ids)}
    pq.write_table(pa.table(columns), path, row_group_size=_ROWS_PER_GROUP)
    file = HubFile(path.name, path.stat().st_size, "")
    spans = (Span(0, file.size, path),)
    groups = row_groups(Footer(pq.read_metadata(path), spans), file, "text", _DATASET)
    return SnapshotShard("library", tuple(LocalPiece(Piece(group, group.rows), spans) for group in groups))


def _recipe() -> SnapshotRecipe:
    return SnapshotRecipe.model_validate(
        {
            "name": "library",
            "dataset": _DATASET,
            "config": "default",
            "revision": "0" * 40,
            "split": "train",
            "files": ["*"],
            "source": "python",
            "domain": "manual",
            "license_tag": "psf-2.0",
            "columns": {"text": "text", "id": "id", "created_at": None},
            "rules": [],
            "language": "en",
            "amount": {"files": 1},
            "seed": "",
            "shard_text_bytes": 1 << 26,
        }
    )
