"""Text artifacts as folders that other programs read: shards as Parquet or JSON lines, a dataset card, the manifest.

    parquet   00000.parquet, …                          README.md  manifest.json
    jsonl     00000.jsonl.zst, …                        README.md  manifest.json
    hf        data/train-00000-of-0000N.parquet, …      README.md  manifest.json      as a hub has it

Equal rows give equal bytes. The folder takes its name when all is there.

Documents also as one plain file, for programs that read no more than that.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec
import pyarrow as pa

from pipeline_assets.corpus.document import DocumentText
from pipeline_assets.corpus.document_shards import shard_rows
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter, read_line_blocks
from pipeline_assets.corpus.formats.parquet import in_row_groups, strings, write_table
from pipeline_assets.corpus.markdown import code, plain, table
from pipeline_assets.corpus.publishing.card_metadata import DEFAULT, CardConfig, card_metadata, features_of
from pipeline_assets.corpus.rows.store import RowStore, TableShard
from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import UsageError
from pipeline_assets.corpus.spine.manifest import FILE_NAME

To = Literal["parquet", "jsonl", "hf"]
_ROW_GROUP_ROWS = 4096  # of long texts tens of megabytes
_SOURCES, _LICENCES = ("source", "source_dataset", "dataset"), ("license_tag", "meta_license")
_MOST_SHOWN = 50
Form = Callable[[bytes], bytes]
_decoder = msgspec.json.Decoder(DocumentText)


@dataclass
class Exported:
    """What was written.

    Attributes:
        kinds: rows by source and licence.
    """

    folder: Path
    files: list[str] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0
    kinds: Counter[tuple[str, str | None]] = field(default_factory=Counter)


def export(store: RowStore, to: To, out: Path, zstd_level: int) -> Exported:
    """
    Args:
        out: a folder that isn't there yet.
    Raises:
        UsageError: it is there, or the rows are no text.
        InputError: a shard is damaged.
    """
    shards = store.table_shards()
    if out.exists():
        raise UsageError("it is there already", out, "give another folder, or remove it")
    building = out.with_name(f".{out.name}.building")
    durable.remove(building)
    durable.make_folder(building / "data" if to == "hf" else building)
    made = Exported(out)
    for number, shard in enumerate(shards):
        ending = SUFFIX if to == "jsonl" else ".parquet"
        name = f"data/train-{number:05d}-of-{len(shards):05d}{ending}" if to == "hf" else f"{number:05d}{ending}"
        path, tables = building / name, _counted(shard, made)
        if to == "jsonl":
            with JsonlZstWriter(path, zstd_level) as writer:
                for rows in tables:
                    lines = b"".join(msgspec.json.encode(row) + b"\n" for row in rows.to_pylist())
                    writer.write_lines(lines, rows.num_rows)
        else:
            write_table(path, name, in_row_groups(tables, shard.schema, _ROW_GROUP_ROWS), shard.schema)
        made.files.append(name)
        made.bytes += path.stat().st_size
    durable.write_durably(building / "README.md", _card(store, made, shards[0].schema if shards else pa.schema([])))
    durable.write_durably(building / FILE_NAME, (store.artifact.folder / FILE_NAME).read_bytes())
    durable.rename(building, out)
    return made


def _counted(shard: TableShard, made: Exported) -> Iterator[pa.Table]:
    named = [next((one for one in names if one in shard.schema.names), None) for names in (_SOURCES, _LICENCES)]
    for rows in shard.tables():
        made.rows += rows.num_rows
        columns = [strings([""] * rows.num_rows) if name is None else rows[name] for name in named]
        made.kinds.update(zip(*(column.to_pylist() for column in columns), strict=True))
        yield rows


def _card(store: RowStore, made: Exported, schema: pa.Schema) -> bytes:
    manifest = store.artifact.manifest
    title = manifest.name.partition("/")[2] or manifest.name
    licences: Counter[str | None] = Counter()
    for (_, licence), rows in made.kinds.items():
        licences[licence] += rows
    head = card_metadata(
        title,
        licences,
        tags=["corpusmill"],
        configs=[CardConfig(DEFAULT, [{"split": "train", "path": made.files}], {"features": features_of(schema)})],
        rows=made.rows,
    )
    counts = [
        (code(source), code(licence or "not stated"), rows)
        for (source, licence), rows in sorted(made.kinds.items(), key=lambda item: -item[1])[:_MOST_SHOWN]
    ]
    lines = [
        f"# {plain(title)}",
        "",
        f"{made.rows:,} rows of {code(manifest.kind)}, {code(manifest.digest)}. What it was made from, by which",
        f"code, and what became of every row says {code(FILE_NAME)}. Each row names the one that it was read from.",
        "",
        *table(["source", "licence", "rows"], counts),
        "",
        "```python",
        "from datasets import load_dataset",
        'rows = load_dataset("this/folder", split="train")',
        "```",
    ]
    return (head + "\n".join(lines) + "\n").encode()


def write_ndjsonl(corpus: Artifact, path: Path) -> int:
    """Documents as JSON, a line each; how many there are. Errors as `write_txt`."""
    return _write(corpus, path, lambda lines: lines)


def write_txt(corpus: Artifact, path: Path) -> int:
    """Texts, a line each, with blanks for what breaks lines in them; how many there are. The file appears when it is
    whole.

    Raises:
        UsageError: `path` is a folder.
    """
    return _write(corpus, path, lambda lines: "".join(f"{line}\n" for line in _texts(lines)).encode())


def _texts(lines: bytes) -> Iterator[str]:
    return (" ".join(document.text.splitlines()) for document in _decoder.decode_lines(lines))


def refuse_folder(path: Path) -> None:
    """Raises UsageError where a folder lies in the place of the file: for who asks before there is a corpus."""
    if path.is_dir():
        raise UsageError("this is a folder", path, "name a file")


def _write(corpus: Artifact, path: Path, form: Form) -> int:
    refuse_folder(path)
    durable.make_folder(path.absolute().parent)
    documents = shard_rows(corpus)
    with durable.DurableFile(path) as file:
        for shard in documents:
            for lines in read_line_blocks(corpus.path(shard)):
                file.write(form(lines))
    return sum(documents.values())
