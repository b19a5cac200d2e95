"""The dataset card: README.md of normalised rows as a hub has them.

    data/<split>-00000-of-0000N.parquet   all splits of one dataset, `SCHEMA`
    <split>__tools_catalog.json
    README.md                             this page

The YAML at its head is what a hub and `datasets` know splits, columns, licence and size by. No date, no host: equal
content gives equal bytes. No text of a dataset, a title or a licence can leave its place.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.corpus.nemotron.schema import COLUMNS, SCHEMA
from pipeline_assets.corpus.pages import code, markdown_table, plain
from pipeline_assets.corpus.publishing import export
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import InputError

_DATA_FILE = re.compile(r"data/(.+)-\d{5}-of-\d{5}\.parquet")
_LICENCE = "meta_license"
_LISTS = [field.name for field in SCHEMA if pa.types.is_list(field.type)]
_MOST_LICENCES = 20  # of a split
_LICENCE_CHARACTERS = 80


@dataclass(frozen=True)
class CardSplit:
    """One split of normalised rows.

    Attributes:
        name: as its files have it.
        digest: of its artifact.
        files: Parquet files.
        bytes: of these, as stored.
        uncompressed_bytes: of their pages before compression, as the footers say.
        rejected: source rows by why they gave none.
        licences: rows by licence, as rows say it; None of those that say none.
        filled: rows by column that isn't null in them, in the schema's order.
    """

    name: str
    digest: str
    files: int
    bytes: int
    uncompressed_bytes: int
    rows: int
    rejected: Mapping[str, int]
    tokens: int
    completion_tokens: int
    tool_calls: int
    licences: Mapping[str | None, int]
    filled: Mapping[str, int]


def card_split(artifact: Artifact) -> CardSplit:
    """The split that `normalise_split` made. Licences and lists are read in batches: memory is that of one.

    Raises:
        InputError: it holds no normalised rows.
    """
    manifest = artifact.manifest
    paths = {file.path: found[1] for file in manifest.storage if (found := _DATA_FILE.fullmatch(file.path))}
    if len(set(paths.values())) != 1:
        what = f"it holds normalised rows of {len(set(paths.values()))} splits"
        raise InputError(what, artifact.folder, "give the folder of one normalised split")
    filled: Counter[str] = Counter(dict.fromkeys(SCHEMA.names, 0))
    licences: Counter[str | None] = Counter()
    uncompressed_bytes = 0
    for path in paths:
        with open_parquet(artifact.path(path)) as file:
            uncompressed_bytes += _add_footer(file.metadata, filled)
            for batch in file.iter_batches(columns=[_LICENCE, *_LISTS]):
                for found in batch.column(_LICENCE).value_counts().to_pylist():
                    licences[found["values"]] += found["counts"]
                for name in _LISTS:
                    filled[name] += batch.num_rows - batch.column(name).null_count
    counts = manifest.identity.counts
    return CardSplit(
        name=next(iter(paths.values())),
        digest=manifest.digest,
        files=len(paths),
        bytes=sum(file.bytes for file in manifest.storage if file.path in paths),
        uncompressed_bytes=uncompressed_bytes,
        rows=counts["ledger"]["out"],
        rejected=counts["ledger"]["rejected"],
        tokens=counts["tokens"],
        completion_tokens=counts["completion_tokens"],
        tool_calls=counts["tool_calls"],
        licences=licences,
        filled=filled,
    )


def _add_footer(footer: pq.FileMetaData, filled: Counter[str]) -> int:
    """Counts what isn't null in columns that are no lists, whose footers count values instead; bytes uncompressed."""
    uncompressed_bytes = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        uncompressed_bytes += group.total_byte_size
        for place in range(group.num_columns):
            column = group.column(place)
            if column.path_in_schema in filled:
                filled[column.path_in_schema] += group.num_rows - column.statistics.null_count
    return uncompressed_bytes


_NUMBER = "[0-9]" * 5


def files_pattern(split: str, files: int) -> str:
    """A pattern of the Parquet files of one split. Not `<split>-*`: that is also `<split>-more-00000-of-00001`."""
    return f"data/{split}-{_NUMBER}-of-{files:05d}.parquet"


@dataclass(frozen=True)
class CardContent:
    """What a card is of.

    Attributes:
        title: for people.
        repository: what `load_dataset` takes: owner/name, or a folder.
        source: the dataset that the rows are of.
        revision: its commit, 40 hex digits; None of a folder on this machine.
        template, analysis, loss_rule: as the manifest's decisions name them.
        tokenizer_sha256: of the o200k file that counted tokens.
        choices: other choices that decided the rows, in words.
    """

    title: str
    repository: str
    source: str
    revision: str | None
    template: str
    analysis: str
    loss_rule: str
    tokenizer_sha256: str
    choices: Mapping[str, str]
    splits: Sequence[CardSplit]


def dataset_card(card: CardContent) -> str:
    """The text of README.md. Splits that a hub can't name as the files do have another name there, which it says.

    Raises:
        ValueError: there is no split, or two have one name.
    """
    names = export.hub_split_names([split.name for split in card.splits])
    if not names or len(names) != len(card.splits):
        raise ValueError(f"a card is of one or more splits, each once, not {[split.name for split in card.splits]}")
    sections = [
        [f"# {plain(card.title)}", "", *_opening(card)],
        ["## Splits", "", *_splits(card.splits, names)],
        ["## Loading", "", *_loading(card, names)],
        ["## How the text was made", "", *_making(card, names)],
        ["## Licences", "", *_licences(card.splits, names)],
        ["## Columns", "", *_columns(card.splits)],
    ]
    return _metadata(card, names) + "\n\n".join("\n".join(section) for section in sections) + "\n"


def _opening(card: CardContent) -> list[str]:
    commit = "in a folder, of no commit" if card.revision is None else f"at commit {code(card.revision)}"
    return [
        f"Conversations of {code(card.source)}, {commit}.",
        "Each is one text, with its exact token counts and what its row says of itself.",
        "Every row names the one that it was made from: `source_file`, `source_row`, `source_revision`.",
    ]


def _splits(splits: Sequence[CardSplit], names: Mapping[str, str]) -> list[str]:
    figures = [
        [split.rows, sum(split.rejected.values()), split.tokens, split.completion_tokens, split.tool_calls, split.bytes]
        for split in splits
    ]
    rows: list[Sequence[str | int]] = [
        [code(names[split.name]), *line] for split, line in zip(splits, figures, strict=True)
    ]
    if len(splits) > 1:
        rows.append(("all", *map(sum, zip(*figures, strict=True))))
    lines = markdown_table(["split", "rows", "rejected", "tokens", "completion tokens", "tool calls", "bytes"], rows)
    others = [split.name for split in splits if names[split.name] != split.name]
    if others:
        lines += ["", "A hub's split names have no `-`, dots only between other characters, and none is `all`, so:"]
        lines += [f"{code(name)} of the files is the split {code(names[name])}." for name in others]
    rejected = [
        (code(names[split.name]), code(reason), rows)
        for split in splits
        for reason, rows in sorted(split.rejected.items())
    ]
    if rejected:
        lines += [
            "",
            "Rows of the source that gave none, and why:",
            "",
            *markdown_table(["split", "reason", "rows"], rejected),
        ]
    return lines


def _loading(card: CardContent, names: Mapping[str, str]) -> list[str]:
    first = card.splits[0].name
    return [
        "```python",
        "from datasets import load_dataset",
        "",
        f"rows = load_dataset({json.dumps(card.repository)}, split={json.dumps(names[first])})",
        "```",
        "",
        f"The tools that rows declare lie in a file for each split, such as {code(f'{first}__tools_catalog.json')}, "
        "under their `source_tools_id`.",
    ]


def _making(card: CardContent, names: Mapping[str, str]) -> list[str]:
    rows = [
        ["template", code(card.template)],
        ["messages on the analysis channel", code(card.analysis)],
        ["completion", code(card.loss_rule)],
        *([plain(name), code(choice)] for name, choice in card.choices.items()),
        ["sha256 of the o200k file", code(card.tokenizer_sha256)],
        *([f"manifest of {code(names[split.name])}", code(split.digest)] for split in card.splits),
    ]
    return markdown_table(["choice", "value"], rows)


def _licences(splits: Sequence[CardSplit], names: Mapping[str, str]) -> list[str]:
    rows: list[tuple[str, str, str, int]] = []
    for split in splits:
        most = sorted(split.licences.items(), key=lambda item: (-item[1], item[0] is None, item[0] or ""))
        for licence, count in most[:_MOST_LICENCES]:
            shown = "not stated" if licence is None else code(licence[:_LICENCE_CHARACTERS])
            rows.append((code(names[split.name]), shown, code(export.hub_licence(licence)), count))
        if more := most[_MOST_LICENCES:]:
            rows.append((code(names[split.name]), f"{len(more):,} more", "", sum(count for _, count in more)))
    head = ["Each row has its own, in `meta_license`, as the source says it.", ""]
    return head + markdown_table(["split", "licence", "the hub's identifier", "rows"], rows)


def _columns(splits: Sequence[CardSplit]) -> list[str]:
    filled: Counter[str] = Counter()
    for split in splits:
        filled.update(split.filled)
    rows = sum(split.rows for split in splits)
    lines = [
        [code(field.name), _type(field.type), _share(filled[field.name], rows), COLUMNS[field.name]] for field in SCHEMA
    ]
    head = ["All splits have all columns; where a row says nothing, there is null.", ""]
    return head + markdown_table(["column", "type", "rows with a value", "what it holds"], lines)


def _type(kind: pa.DataType) -> str:
    return f"list of {export.type_name(kind)}" if pa.types.is_list(kind) else export.type_name(kind)


def _share(part: int, rows: int) -> str:
    """A percentage that is 0 or 100 only where it is exactly that."""
    tenths = 1000 * part // rows if rows else 0
    if 0 < part < rows:
        tenths = min(max(tenths, 1), 999)
    return f"{tenths // 10}.{tenths % 10} %"


def card_of(source: Mapping[str, Any], splits: Sequence[Artifact], repository: str) -> str:
    """What README.md says of a dataset whose splits are normalised.

    Args:
        source: the recipe of what lists its files.
        repository: as `CardContent` has it.
    """
    identity = splits[0].manifest.identity
    assert identity.tokenizer is not None
    content = CardContent(
        title=f"{source['dataset'].rpartition('/')[2]}, normalised",
        repository=repository,
        source=source["dataset"],
        revision=source.get("revision"),
        template=identity.decisions["template"],
        analysis=identity.decisions["analysis"],
        loss_rule=identity.decisions["loss_rule"],
        tokenizer_sha256=identity.tokenizer["sha256"],
        choices=_choices(splits),
        splits=[card_split(split) for split in splits],
    )
    return dataset_card(content)


def _choices(splits: Sequence[Artifact]) -> dict[str, str]:
    """What decided the rows of a dataset beside its template, in words."""
    recipes = [split.manifest.identity.recipe for split in splits]
    rows = recipes[0]["rows"]
    efforts = {recipe["reasoning_effort"] for recipe in recipes} - {None}
    dropped = {"drop_invalid_harmony": "text that is no Harmony", "drop_empty_completion": "an empty completion"}
    hidden = {"keep_user_names": "user names", "keep_urls": "urls"}
    return {
        "system message": "none" if rows["system"] is None else json.dumps(rows["system"], ensure_ascii=False),
        **({"reasoning effort in it": "by split: " + ", ".join(sorted(efforts))} if efforts else {}),
        "rows of a split": "all" if rows["max_rows"] is None else f"a sample of {rows['max_rows']:,} at most",
        "dropped with": ", ".join(what for key, what in dropped.items() if rows[key]) or "nothing that can be told",
        "left out of meta_source_json": ", ".join(what for key, what in hidden.items() if not rows[key]) or "nothing",
    }


def _metadata(card: CardContent, names: Mapping[str, str]) -> str:
    """The YAML."""
    licences: Counter[str | None] = Counter()
    for split in card.splits:
        licences.update(split.licences)
    splits = [
        export.ConfigSplit(
            names[split.name], files_pattern(split.name, split.files), split.rows, split.bytes, split.uncompressed_bytes
        )
        for split in card.splits
    ]
    return export.card_metadata(
        card.title,
        licences,
        tags=["corpusmill", card.template.partition("/")[0]],
        sources=[card.source] if card.revision is not None else [],
        configs=[export.CardConfig.of("default", splits, SCHEMA)],
        rows=sum(split.rows for split in card.splits),
    )
