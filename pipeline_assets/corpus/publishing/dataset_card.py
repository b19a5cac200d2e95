"""Dataset cards: the README.md of a dataset repo.

A hub and `datasets` read configs, splits, columns, licences and sizes from the YAML at the top. A card has no date or
host, so that equal content gives equal bytes. Titles, licences and other text from datasets are escaped.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.corpus.licences import UNKNOWN, licence_table, tag_or_unknown
from pipeline_assets.corpus.markdown import code, escape, markdown_table
from pipeline_assets.corpus.nemotron.schema import COLUMN_DESCRIPTIONS
from pipeline_assets.corpus.publishing import hub_metadata
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import InputError, UsageError, one_line
from pipeline_assets.spine.manifest import MANIFEST_FILE, Manifest

ROW_FILE_PATTERN = re.compile(r"(?:(?:candidates|subset)_(\w+)|data)/(.+)-\d{5}-of-(\d{5})\.parquet")
_FILE_NUMBER_GLOB = "[0-9]" * 5
_CARD_COLUMNS = ["dataset", "source_revision", "meta_license", "stats_tokens", "stats_completion_tokens"]
_MAX_LICENCES, _MAX_LICENCE_CHARACTERS = 50, 80
_VERIFICATION_TEXT = "This script exits with 0 if every file matches its manifest, byte for byte:"
RowLicences = Counter[tuple[str, str | None]]  # rows by source and stated licence; None for rows that state none


@dataclass
class CardSplit:
    """Split of a config on a dataset card, with its schema, sizes and licences."""

    config: str
    name: str  # as in the file names; `dataset/split` in a subset
    data_files: str | Sequence[str]  # pattern or paths
    schema: pa.Schema
    rows: int = 0
    tokens: int = 0
    completion_tokens: int = 0
    bytes: int = 0
    uncompressed_bytes: int = 0  # estimate of the memory that loading needs
    licences: RowLicences = field(default_factory=Counter)

    def add_file(self, footer: pq.FileMetaData, stored_bytes: int) -> None:
        """Add the rows and sizes of a Parquet file."""
        self.rows += footer.num_rows
        self.bytes += stored_bytes
        groups = map(footer.row_group, range(footer.num_row_groups))
        self.uncompressed_bytes += sum(group.total_byte_size for group in groups)


@dataclass(frozen=True)
class CardSource:
    """Dataset from which published rows come."""

    dataset: str
    revision: str | None  # commit; None for a folder
    metadata: Mapping[str, Any] | None = None  # YAML of its card at the commit; None if not fetched
    gate: str | None = None  # `auto` or `manual` if readers must request access


@dataclass(frozen=True)
class CardContent:
    """Data from which a dataset card is written."""

    title: str
    repository: str  # argument of `load_dataset`: owner/name, or a folder
    splits: Sequence[CardSplit]  # with rows; may be empty
    sources: Sequence[CardSource]  # datasets that rows name; may be empty
    manifests: Sequence[Manifest]  # of the artifacts that contain the rows; the card shows the first one's recipe
    upstream_manifests: Sequence[Manifest] = ()  # sources first
    agreement: Mapping[str, Any] = field(default_factory=dict)  # YAML keys with the terms that readers agree to
    column_descriptions: Mapping[str, str] = field(default_factory=lambda: COLUMN_DESCRIPTIONS)  # descriptions by name
    notes: Sequence[str] = ()  # lines about configs
    verification_script: str | None = None  # Python script that checks a downloaded copy; None omits the section
    other_row_licences: RowLicences = field(default_factory=Counter)  # of rows outside `splits`


def file_pattern(path: str) -> str:
    """Return the glob pattern for all files of a split, from the path of one file."""
    return re.sub(r"-\d{5}-of-(?=\d{5}\.parquet)", f"-{_FILE_NUMBER_GLOB}-of-", path)


def collect_splits_and_sources(artifacts: Iterable[Artifact]) -> tuple[list[CardSplit], list[CardSource]]:
    """Collect the splits that have rows, and all source datasets that rows name.

    Raise UsageError if a row does not name its dataset, InputError if a file is damaged.
    """
    splits: dict[str, CardSplit] = {}
    sources: set[tuple[str, str | None]] = set()
    for artifact, stored in ((source, file) for source in artifacts for file in source.manifest.storage):
        if (match := ROW_FILE_PATTERN.fullmatch(stored.path)) is None:
            continue
        where = artifact.folder / stored.path
        try:
            with open_parquet(artifact.path(stored.path)) as file:
                footer, schema, rows = file.metadata, file.schema_arrow.remove_metadata(), file.read(_CARD_COLUMNS)
        except (pa.ArrowException, OSError) as error:
            what = f"the file differs from its manifest ({one_line(error, 200)})"
            raise InputError(what, where, "run `corpusmill verify`") from None
        if rows["dataset"].null_count:
            what = "rows do not name their dataset, so the terms of its readers are unknown"
            raise UsageError(what, where, "publish an artifact of normalized rows")
        pattern = file_pattern(stored.path)
        config = match[1] or hub_metadata.DEFAULT_CONFIG
        split = splits.setdefault(pattern, CardSplit(config, match[2], pattern, schema))
        datasets, revisions, licences, tokens, completion_tokens = (rows[name].to_pylist() for name in _CARD_COLUMNS)
        split.add_file(footer, stored.bytes)
        split.tokens += sum(filter(None, tokens))
        split.completion_tokens += sum(filter(None, completion_tokens))
        split.licences.update(zip(datasets, licences, strict=True))
        sources.update(zip(datasets, revisions, strict=True))
    # `datasets` loads no split of a config that names one without rows.
    with_rows = [split for split in splits.values() if split.rows]
    return with_rows, [CardSource(*source) for source in sorted(sources, key=str)]


def split_names(splits: Iterable[CardSplit]) -> dict[str, str]:
    """Map the name of each split to the name that a hub allows for it."""
    return hub_metadata.hub_split_names(sorted({split.name for split in splits}))


def group_by_config(splits: Iterable[CardSplit]) -> dict[str, list[CardSplit]]:
    configs: dict[str, list[CardSplit]] = {}
    for split in splits:
        configs.setdefault(split.config, []).append(split)
    return configs


def count_row_licences(splits: Iterable[CardSplit], other_rows: RowLicences | None = None) -> Counter[str | None]:
    """Add up the row counts by licence; rows that state no licence count under None."""
    rows: Counter[str | None] = Counter()
    for (_, licence), count in sum((split.licences for split in splits), other_rows or Counter()).items():
        rows[licence] += count
    return rows


def dataset_card(card: CardContent) -> str:
    """Return the text of a card, with split names that a hub allows."""
    hub_names, script = split_names(card.splits), card.verification_script
    sections = [
        [f"# {escape(card.title)}", "", *_opening_lines(card)],
        *([["## Configs", "", *_config_lines(card, hub_names)]] if card.splits else []),
        ["## Sources and licences", "", *_licence_lines(card)],
        ["## How the rows were built", "", *_recipe_lines(card.manifests)],
        ["## Rows kept and removed", "", *_ledger_lines([*card.upstream_manifests, *card.manifests])],
        *([["## Columns", "", *_column_lines(card)]] if card.splits and card.column_descriptions else []),
    ]
    if script:
        sections.append(["## Verification", "", _VERIFICATION_TEXT, "", "```python", *script.splitlines(), "```"])
    return _front_matter(card, hub_names) + "\n\n".join("\n".join(section) for section in sections) + "\n"


def _front_matter(card: CardContent, hub_names: Mapping[str, str]) -> str:
    configs = group_by_config(card.splits)
    infos = [
        {**({} if name == hub_metadata.DEFAULT_CONFIG else {"config_name": name}), **_dataset_info(splits, hub_names)}
        for name, splits in configs.items()
    ]
    hub_datasets = [source.dataset for source in card.sources if source.revision is not None]
    metadata: dict[str, Any] = {
        "pretty_name": card.title,
        **hub_metadata.licence_metadata(count_row_licences(card.splits, card.other_row_licences)),
        "task_categories": ["text-generation"],
        "size_categories": [hub_metadata.size_category(sum(split.rows for split in card.splits))],
        **({"source_datasets": hub_datasets} if hub_datasets else {}),
        "tags": ["corpusmill"],
        **card.agreement,
    }
    if configs:
        metadata["configs"] = [
            {
                "config_name": name,
                "data_files": [{"split": hub_names[split.name], "path": split.data_files} for split in splits],
            }
            for name, splits in configs.items()
        ]
        metadata["dataset_info"] = infos if [*configs] != [hub_metadata.DEFAULT_CONFIG] else infos[0]
    return f"---\n{yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True, width=120)}---\n\n"


def _dataset_info(splits: Sequence[CardSplit], hub_names: Mapping[str, str]) -> dict[str, Any]:
    """Return a config's `dataset_info`; `datasets` verifies its row counts on loading."""
    return {
        "features": hub_metadata.arrow_features(splits[0].schema),
        "splits": [
            {"name": hub_names[split.name], "num_bytes": split.uncompressed_bytes, "num_examples": split.rows}
            for split in splits
        ],
        "download_size": sum(split.bytes for split in splits),
        "dataset_size": sum(split.uncompressed_bytes for split in splits),
    }


def _opening_lines(card: CardContent) -> list[str]:
    manifest = code(MANIFEST_FILE)
    lines = [
        "This dataset was built by corpusmill from pinned sources. It contains:",
        "",
        *(f"- {code(m.kind)} {code(m.name)}, {code(m.digest)}" for m in card.manifests),
        "",
        f"{manifest} lists the inputs with their digests, the version of the program, and how many rows were",
        "kept, dropped and rejected, with the reasons.",
    ]
    if any("ids" in split.schema.names for split in card.splits):  # packed rows
        return [*lines, "Each row lists the splits and ids of its conversations, as in the artifact above."]
    return lines + (["Each row names the row of the source dataset that it comes from."] if card.splits else [])


def _config_lines(card: CardContent, hub_names: Mapping[str, str]) -> list[str]:
    counts = ("rows", "tokens", "completion_tokens", "bytes")
    columns = [name for name in counts if any(getattr(split, name) for split in card.splits)]
    rows: list[list[str | int]] = [
        [code(split.config), code(hub_names[split.name]), *(getattr(split, name) for name in columns)]
        for split in card.splits
    ]
    first = card.splits[0]
    renamed = [split for split, name in hub_names.items() if name != split]
    return [
        *markdown_table(["config", "split", *(name.replace("_", " ") for name in columns)], rows),
        "",
        *(f"The split {code(hub_names[split])} consists of the files named {code(split)}." for split in renamed),
        *([""] if renamed else []),
        *card.notes,
        "```python",
        "from datasets import load_dataset",
        "",
        f"rows = load_dataset({', '.join(map(json.dumps, (card.repository, first.config)))}, "
        f"split={json.dumps(hub_names[first.name])})",
        "```",
    ]


def _licence_lines(card: CardContent) -> list[str]:
    lines: list[str] = []
    if card.sources:
        cells = [[code(source.dataset), *_source_cells(source)] for source in card.sources]
        lines = [*markdown_table(["source", "commit", "licence of its card", "who may read it"], cells), ""]
    counts = sum((split.licences for split in card.splits), card.other_row_licences)
    if not counts:
        return lines[:-1]
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0][0], item[0][1] or ""))
    rows: list[list[str | int]] = [
        [
            code(source),
            "not stated" if licence is None else code(licence[:_MAX_LICENCE_CHARACTERS]),
            count,
            code(hub_metadata.hub_licence(licence)),
            _licence_url(licence),
        ]
        for (source, licence), count in ranked[:_MAX_LICENCES]
    ]
    if more := ranked[_MAX_LICENCES:]:
        rows.append(["", f"{len(more):,} more", sum(count for _, count in more), "", ""])
    if card.other_row_licences:
        lines += ["The rows of the exported artifact state these licences:", ""]
    else:
        lines += ["Each row keeps the licence that its source states. Over all configs, these are:", ""]
    return lines + markdown_table(["source", "licence", "rows", "the hub's identifier", "its text"], rows)


def _source_cells(source: CardSource) -> list[str]:
    if source.revision is None:
        return ["a folder", "not stated", "not stated"]
    if source.metadata is None:
        return [code(source.revision), "see its card", "see its card"]
    licence = source.metadata.get("license_name") or source.metadata.get("license") or "not stated"
    readers = "everyone" if source.gate is None else f"people who agree ({code(source.gate)})"
    return [code(source.revision), code(str(licence)), readers]


def _licence_url(licence: str | None) -> str:
    tag = tag_or_unknown(licence)
    return escape(licence_table()[tag].url or "") if tag != UNKNOWN else ""


def _recipe_lines(manifests: Sequence[Manifest]) -> list[str]:
    first = manifests[0].identity
    how = {"recipe": first.recipe, "decisions": first.decisions}
    how |= {} if first.tokenizer is None else {"tokenizer": first.tokenizer}
    recipe = json.dumps(how, ensure_ascii=False, indent=1).replace("`", "\\u0060")  # A backtick could end the fence.
    upstream = dict.fromkeys(
        (code(str(entry["name"])), code(str(entry["digest"])))
        for manifest in manifests
        for entry in manifest.identity.upstream
    )
    lines = [f"Stage {code(str(first.stage))} built them with this recipe:", "", "```json", *recipe.splitlines(), "```"]
    return [*lines, "", *markdown_table(["input", "digest"], [*upstream])]


def _ledger_lines(manifests: Sequence[Manifest]) -> list[str]:
    """Return Markdown with each step's kept and removed rows, and filter settings."""
    rows: list[list[str | int]] = []
    filters: list[str] = []
    for manifest in manifests:
        if "ledger" in manifest.identity.counts:
            ledger = manifest.identity.ledger
            removed = ", ".join(
                f"{code(reason or fate)} {count:,}" for fate, reason, count in ledger.other_outcomes() if count
            )
            step = [code(manifest.kind), code(manifest.name.partition("/")[2] or manifest.name)]
            rows.append([*step, ledger.rows_in, ledger.out, removed or "none"])
        settings = remove_empty_values(manifest.identity.recipe.get("filters"))
        if settings:
            filters.append(f"- {code(manifest.name)}: {code(json.dumps(settings, ensure_ascii=False))}")
    lines = markdown_table(["step", "artifact", "rows read", "rows kept", "rows removed or merged, by reason"], rows)
    return [*lines, "", "Filters and their thresholds:", "", *filters] if filters else lines


def remove_empty_values(settings: Any) -> Any:
    """Return a copy of settings without null values, empty lists and empty sections."""
    if not isinstance(settings, dict):
        return settings
    cleaned = {name: remove_empty_values(value) for name, value in settings.items()}
    return {name: value for name, value in cleaned.items() if value not in (None, [], {})}


def _column_lines(card: CardContent) -> list[str]:
    rows = []
    for column in card.splits[0].schema:
        type_label = ("list of " if pa.types.is_list(column.type) else "") + hub_metadata.item_type_name(column.type)
        rows.append([code(column.name), type_label, card.column_descriptions.get(column.name, "")])
    head = ["All configs have all columns; missing values are null.", ""]
    return head + markdown_table(["column", "type", "content"], rows)
