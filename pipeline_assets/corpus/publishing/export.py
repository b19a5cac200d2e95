"""Text artifacts as folders that other programs read: shards as Parquet or JSON lines, a dataset card, the manifest.

    parquet   00000.parquet, …                          README.md  manifest.json
    jsonl     00000.jsonl.zst, …                        README.md  manifest.json
    hf        data/train-00000-of-0000N.parquet, …      README.md  manifest.json      as a hub has it

Equal rows give equal bytes. The folder takes its name when all is there. Documents also as one plain file, for programs
that read no more than that.

The YAML at the head of a card is what a hub and `datasets` know configs, splits, columns and licence by. The hub has
identifiers of licences of its own (hub documentation, "Licenses"). Most are our tags; what has none is `other`, with a
name beside it.
"""

import contextlib
import errno
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import msgspec
import pyarrow as pa
import yaml

from pipeline_assets.corpus.document import DocumentText
from pipeline_assets.corpus.document_shards import shard_rows
from pipeline_assets.corpus.formats.compression import SUFFIX, JsonlZstWriter, compressor_for, read_line_blocks
from pipeline_assets.corpus.formats.parquet import in_row_groups, strings, write_table
from pipeline_assets.corpus.licences import UNKNOWN, licence_table
from pipeline_assets.corpus.pages import code, markdown_table, plain
from pipeline_assets.corpus.rows.store import RowStore, TableShard
from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact
from pipeline_assets.corpus.spine.errors import UsageError
from pipeline_assets.corpus.spine.files import unreplaced
from pipeline_assets.corpus.spine.manifest import FILE_NAME
from pipeline_assets.corpus.spine.temporary_names import temporary_path

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
    if out.exists():
        raise _is_there(out)
    if out.parent.is_dir():
        durable.remove_leftovers(out.parent)
    building = temporary_path(out)
    try:
        with unreplaced(store.artifact.folder):  # checked before the copy gets its name
            open_artifact(store.artifact.folder, store.artifact.manifest.digest)
            made = _write_copy(store, to, building, zstd_level)
        durable.rename(building, out)
    except BaseException as error:
        # The copy is partial, and may fill the disk.
        with contextlib.suppress(OSError):
            durable.remove(building)
        if isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise _is_there(out) from None
        raise
    return replace(made, folder=out)


def _is_there(out: Path) -> UsageError:
    return UsageError("it is there already", out, "give another folder, or remove it")


def _write_copy(store: RowStore, to: To, building: Path, zstd_level: int) -> Exported:
    """Write the rows, the card and the manifest into a new folder."""
    shards = store.table_shards()
    durable.make_folder(building / "data" if to == "hf" else building)
    made = Exported(building)
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
        *markdown_table(["source", "licence", "rows"], counts),
        "",
        "```python",
        "from datasets import load_dataset",
        'rows = load_dataset("this/folder", split="train")',
        "```",
    ]
    return (head + "\n".join(lines) + "\n").encode()


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


def refuse_folder(path: Path) -> None:
    """Raises UsageError where a folder lies in the place of the file: for who asks before there is a corpus."""
    if path.is_dir():
        raise UsageError("this is a folder", path, "name a file")


def _write(corpus: Artifact, path: Path, form: Form) -> int:
    refuse_folder(path)
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


_UNFIT = re.compile(r"\W+")
_ALL = "all"  # in any case: builder.py of `datasets` refuses a whole dataset that has a split of this name
DEFAULT = "default"  # the config of a dataset that has but one
# `datasets`, size_categories.json: from a thousand on, each is ten times the one before.
_SIZES = ["n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M", "100M<n<1B", "1B<n<10B"]


def hub_split_names(splits: Sequence[str]) -> dict[str, str]:
    r"""The hub's name of each split: its own where that is allowed, else with `_` for what isn't.

    `datasets` allows `\w+(\.\w+)*` (its naming.py), and keeps `all`, which becomes `all_`, for all of them together.
    Where two names would become one, later ones get `_2`, `_3`, …; names that are allowed keep theirs.
    """
    names = {split: split for split in splits if re.fullmatch(r"\w+(\.\w+)*", split) and split.lower() != _ALL}
    for split in splits:
        if split in names:
            continue
        allowed = f"{split}_" if split.lower() == _ALL else _UNFIT.sub("_", split)
        taken, times = set(names.values()), 1
        while (name := allowed if times == 1 else f"{allowed}_{times}") in taken:
            times += 1
        names[split] = name
    return {split: names[split] for split in splits}


OTHER = "other"
_IDENTIFIERS = """
    apache-2.0 mit openrail bigscience-openrail-m creativeml-openrail-m bigscience-bloom-rail-1.0 bigcode-openrail-m
    afl-3.0 artistic-2.0 bsl-1.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear c-uda cc cc0-1.0 cc-by-2.0 cc-by-2.5
    cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-3.0
    cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cdla-sharing-1.0 cdla-permissive-1.0
    cdla-permissive-2.0 wtfpl ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 agpl-3.0 gfdl gpl gpl-2.0 gpl-3.0 lgpl
    lgpl-2.1 lgpl-3.0 isc lppl-1.3c ms-pl mpl-2.0 odc-by odbl openrail++ osl-3.0 postgresql ofl-1.1 ncsa unlicense zlib
    pddl lgpl-lr deepfloyd-if-license llama2 gemma unknown
"""
_FAMILIES = {"gfdl-1.2-or-later": "gfdl", "gfdl-1.3": "gfdl"}
_UNFIT_IN_NAME = re.compile(r"[^a-z0-9.]+")
_NAME_CHARACTERS = 60


def hub_licence(licence: str | None) -> str:
    """The hub's identifier of a licence as rows say it; `unknown` where they say none, `other` where it has none."""
    if licence is None:
        return UNKNOWN
    tag = licence_table().tag_of(licence) or licence.strip().lower()
    identifier = _FAMILIES.get(tag, tag)
    return identifier if identifier in _IDENTIFIERS.split() else OTHER


def licence_metadata(licences: Mapping[str | None, int]) -> dict[str, str | list[str]]:
    """What the YAML of a card says: `license`, one or a list of them, that of most rows first; for one that the hub
    doesn't know also `license_name`, and `license_link` where our table has one.

    Args:
        licences: rows by licence, as rows say it; None of those that say none.
    """
    rows: Counter[str] = Counter()
    for licence, count in licences.items():
        rows[hub_licence(licence)] += count
    identifiers = sorted(rows, key=lambda identifier: (-rows[identifier], identifier)) or [UNKNOWN]
    metadata: dict[str, str | list[str]] = {"license": identifiers if len(identifiers) > 1 else identifiers[0]}
    unnamed = sorted(licence for licence in licences if licence is not None and hub_licence(licence) == OTHER)
    if len(unnamed) == 1:
        metadata["license_name"] = _UNFIT_IN_NAME.sub("-", unnamed[0].lower())[:_NAME_CHARACTERS].strip("-.") or OTHER
        tag = licence_table().tag_of(unnamed[0])
        if tag is not None and (url := licence_table()[tag].url) is not None:
            metadata["license_link"] = url
    elif unnamed:
        metadata["license_name"] = "several-see-the-table"
    return metadata


@dataclass(frozen=True)
class ConfigSplit:
    """A split of a config: its name on the hub, the pattern of its files, rows, bytes as stored and of the pages
    uncompressed, an estimate of what loading takes.
    """

    name: str
    pattern: str
    rows: int
    bytes: int
    uncompressed_bytes: int


@dataclass(frozen=True)
class CardConfig:
    """A config of a dataset.

    Attributes:
        data_files: paths of each split.
        info: what `datasets` calls `dataset_info`.
    """

    name: str
    data_files: Sequence[Mapping[str, Any]]
    info: Mapping[str, Any]

    @classmethod
    def of(cls, name: str, splits: Sequence[ConfigSplit], fields: Iterable[pa.Field] = ()) -> "CardConfig":
        """One whose rows are counted, so that `datasets` counts them when it loads a split.

        Args:
            fields: its columns; none where the files alone say them.
        """
        features = features_of(fields)
        info = {
            **({"features": features} if features else {}),
            "splits": [
                {"name": split.name, "num_bytes": split.uncompressed_bytes, "num_examples": split.rows}
                for split in splits
            ],
            "download_size": sum(split.bytes for split in splits),
            "dataset_size": sum(split.uncompressed_bytes for split in splits),
        }
        return cls(name, [{"split": split.name, "path": split.pattern} for split in splits], info)


def card_metadata(
    title: str,
    licences: Mapping[str | None, int],
    tags: Sequence[str],
    configs: Sequence[CardConfig],
    rows: int,
    sources: Sequence[str] = (),
    gate: Mapping[str, Any] | None = None,
) -> str:
    """The YAML at the head of a card, with the lines around it.

    Args:
        licences: see `licence_metadata`.
        configs: none where there are no rows.
        sources: datasets of the hub that the rows are of.
        gate: what whoever wants to read agrees to, as the hub's cards say it.
    """
    infos = [
        config.info if config.name == DEFAULT else {"config_name": config.name, **config.info} for config in configs
    ]
    metadata = {
        "pretty_name": title,
        **licence_metadata(licences),
        "task_categories": ["text-generation"],
        "size_categories": [_SIZES[min(max(len(str(rows)) - 3, 0), len(_SIZES) - 1)]],
        **({"source_datasets": [*sources]} if sources else {}),
        "tags": tags,
        **(gate or {}),
    }
    if configs:
        metadata["configs"] = [{"config_name": one.name, "data_files": one.data_files} for one in configs]
        metadata["dataset_info"] = infos if len(infos) > 1 or configs[0].name != DEFAULT else infos[0]
    return f"---\n{yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True, width=120)}---\n\n"


def type_name(kind: pa.DataType) -> str:
    """A column's type as `datasets` names it, of a list that of its values."""
    if pa.types.is_list(kind):
        return type_name(kind.value_type)
    return "float64" if pa.types.is_float64(kind) else str(kind)


def features_of(fields: Iterable[pa.Field]) -> list[dict[str, Any]]:
    """Columns as the YAML of a card names them."""
    return [{"name": field.name, **_feature(field.type)} for field in fields]


def _feature(kind: pa.DataType) -> dict[str, Any]:
    if pa.types.is_struct(kind):
        return {"struct": features_of(kind)}
    return {"list" if pa.types.is_list(kind) else "dtype": type_name(kind)}
