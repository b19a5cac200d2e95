"""Text artifacts as folders that other programs read: shards as Parquet or JSON lines, a dataset card, the manifest.

    parquet   00000.parquet, …                          README.md  manifest.json
    jsonl     00000.jsonl.zst, …                        README.md  manifest.json
    hf        data/train-00000-of-0000N.parquet, …      README.md  manifest.json      as a hub has it

Equal rows give equal bytes. The folder takes its name when all is there. Documents also as one plain file, for programs
that read no more than that.
"""

import contextlib
import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import msgspec
import pyarrow as pa

from pipeline_assets.build.rows.store import RowStore, TableShard
from pipeline_assets.corpus.document import DocumentText
from pipeline_assets.corpus.document_shards import shard_rows
from pipeline_assets.corpus.formats.compressors import compressor_for
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter, read_line_blocks
from pipeline_assets.corpus.formats.parquet import in_row_groups, write_table
from pipeline_assets.corpus.nemotron.schema import COLUMNS, SCHEMA
from pipeline_assets.corpus.publishing.dataset_card import CardContent, CardSplit, dataset_card
from pipeline_assets.corpus.publishing.hub_metadata import DEFAULT
from pipeline_assets.spine import durable
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.manifest import FILE_NAME
from pipeline_assets.spine.pinned_folder import forbid_replacement
from pipeline_assets.spine.temporary_names import temporary_path

To = Literal["parquet", "jsonl", "hf"]
_ROW_GROUP_ROWS = 4096  # of long texts tens of megabytes
_SOURCES, _LICENCES = ("source", "source_dataset", "dataset"), ("license_tag", "meta_license")
Form = Callable[[bytes], bytes]
_decoder = msgspec.json.Decoder(DocumentText)


def export(store: RowStore, to: To, out: Path, zstd_level: int) -> CardSplit:
    """Write the rows of an artifact into a folder, and return what is in it.

    Args:
        out: a folder that isn't there yet.
    Raises:
        UsageError: it is there, or the rows are no text.
        InputError: a shard is damaged.
    """
    if out.exists():
        raise _exists_error(out)
    if out.parent.is_dir():
        durable.remove_leftovers(out.parent)
    building = temporary_path(out)
    try:
        with forbid_replacement(store.artifact.folder):  # checked before the copy gets its name
            open_artifact(store.artifact.folder, store.artifact.manifest.digest)
            written = _write_copy(store, to, building, zstd_level)
        durable.rename(building, out)
    except BaseException as error:
        # The copy is partial, and may fill the disk.
        with contextlib.suppress(OSError):
            durable.remove(building)
        if isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise _exists_error(out) from None
        raise
    return written


def _exists_error(out: Path) -> UsageError:
    return UsageError("it is there already", out, "give another folder, or remove it")


def _write_copy(store: RowStore, to: To, building: Path, zstd_level: int) -> CardSplit:
    shards, files = store.table_shards(), list[str]()
    durable.make_folder(building / "data" if to == "hf" else building)
    made = CardSplit(DEFAULT, "train", files, shards[0].schema if shards else pa.schema([]))
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
        files.append(name)
        made.bytes += path.stat().st_size
    durable.write_durably(building / "README.md", _card(store, made))
    durable.write_durably(building / FILE_NAME, (store.artifact.folder / FILE_NAME).read_bytes())
    return made


def _counted(shard: TableShard, split: CardSplit) -> Iterator[pa.Table]:
    named = [next((one for one in names if one in shard.schema.names), None) for names in (_SOURCES, _LICENCES)]
    for rows in shard.tables():
        split.rows += rows.num_rows
        split.uncompressed_bytes += rows.nbytes
        sources, licences = ([None] * rows.num_rows if name is None else rows[name].to_pylist() for name in named)
        split.licences.update((source or "", licence) for source, licence in zip(sources, licences, strict=True))
        yield rows


def _card(store: RowStore, split: CardSplit) -> bytes:
    manifest = store.artifact.manifest
    title = manifest.name.partition("/")[2] or manifest.name
    columns = COLUMNS if split.schema.names[: len(SCHEMA)] == SCHEMA.names else {}
    return dataset_card(
        CardContent(title, "this/folder", [split] if split.rows else [], [], [manifest], columns=columns)
    ).encode()


_ASCII_BLANKS = " \t\v\f"  # what a reader of lines takes for a blank line


def write_ndjsonl(corpus: Artifact, path: Path) -> int:
    """Write documents as JSON lines, compressed where the name ends so; return their number. Errors as `write_txt`."""
    return _write(corpus, path, lambda lines: lines)


def write_txt(corpus: Artifact, path: Path) -> int:
    """Write each text as one line, with blanks for its line breaks; return the number of lines.

    A text of nothing but blanks is left out: `text_unit: line` reads back as many documents as were written. The file
    is compressed where its name ends with .gz, .bz2, .xz or .zst, and appears when it is whole.

    Raises:
        UsageError: `path` is a folder.
    """
    return _write(corpus, path, lambda lines: "".join(f"{line}\n" for line in _texts(lines)).encode())


def _texts(lines: bytes) -> Iterator[str]:
    texts = (" ".join(document.text.splitlines()) for document in _decoder.decode_lines(lines))
    return (text for text in texts if text.strip(_ASCII_BLANKS))


def raise_if_folder(path: Path) -> None:
    """Raises UsageError where a folder lies in the place of the file: for who asks before there is a corpus."""
    if path.is_dir():
        raise UsageError("this is a folder", path, "name a file")


def _write(corpus: Artifact, path: Path, form: Form) -> int:
    raise_if_folder(path)
    durable.make_folder(path.absolute().parent)
    written, stream = 0, compressor_for(path.name)
    with durable.DurableFile(path) as file:
        for shard in shard_rows(corpus):
            for lines in read_line_blocks(corpus.path(shard)):
                data = form(lines)
                file.write(stream.compress(data))
                written += data.count(b"\n")
        file.write(stream.flush())
    return written
