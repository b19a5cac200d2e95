"""diff: what makes two artifacts differ. Only reads."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline_assets.commands.terminal import AsJson, aligned, answer, counted
from pipeline_assets.corpus.spine.artifact import open_artifact, sealed_manifest
from pipeline_assets.corpus.spine.files import unreplaced

if TYPE_CHECKING:
    from pipeline_assets.corpus.rows.comparison import Changed, Comparison, DocumentChanges, FileChanges

_SHOWN_FILES = 5


def diff(
    a: Annotated[Path, typer.Argument(help="Folder of a sealed artifact.")],
    b: Annotated[Path, typer.Argument(help="Folder of another one of its kind.")],
    as_json: AsJson = False,
) -> bool:
    """Example: corpusmill diff data/megatron/pages_v1 data/megatron/pages_v2"""
    from pipeline_assets.corpus.rows.comparison import compare

    with unreplaced(a), unreplaced(b):
        left, right = (open_artifact(folder, sealed_manifest(folder).digest) for folder in (a, b))
        found = compare(left, right)
    answer(as_json, _diff_json(found), _diff_lines(found))
    return found.is_identical


def _diff_json(found: "Comparison") -> dict[str, Any]:
    sides = {
        side: {
            "folder": one.folder,
            "kind": one.manifest.kind,
            "name": one.manifest.name,
            "digest": one.manifest.digest,
        }
        for side, one in (("a", found.a), ("b", found.b))
    }
    parts = ("recipe", "stage", "tokenizer", "upstream", "files", "shards", "documents")
    return {
        **sides,
        "identical": found.is_identical,
        **{part: getattr(found, part) for part in parts},
        "counts": [vars(count) | {"delta": count.delta} for count in found.counts],
    }


def _diff_lines(found: "Comparison") -> Iterator[str]:
    for side, one in (("A", found.a), ("B", found.b)):
        yield f"{side}  {one.folder}  {one.manifest.digest}"
    if found.is_identical:
        yield "identical: their manifests say so, no file was read (`corpusmill verify` reads)"
        return
    yield "different"
    yield from _section("recipe", found.recipe)
    yield from _section("made by", [_change_words(found.stage)] if found.stage else [])
    yield from _section("tokenizer", [_change_words(found.tokenizer)] if found.tokenizer else [])
    yield from _section("made from", [f"{change.name}: {_change_words(change)}" for change in found.upstream])
    if found.files:
        is_hub = bool(found.files.commits_a or found.files.commits_b)
        yield from _section("read from the hub" if is_hub else "files read", _file_lines(found.files))
    yield from _section("shards selected", [f"{change.name}: {_change_words(change)}" for change in found.shards])
    yield from _section("counts", _count_lines(found))
    for changes in found.documents:
        title = "documents" if changes.part is None else f"documents of {changes.part}"
        yield from _section(title, _document_lines(changes))


def _section(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield title
        yield from (f"  {line}" for line in lines)


def _change_words(change: "Changed") -> str:
    return f"{change.a or 'none'} → {change.b or 'none'}"


def _file_lines(files: "FileChanges") -> list[str]:
    commits = [", ".join(side) or "nothing" for side in (files.commits_a, files.commits_b)]
    is_same_commit = commits[0] == commits[1]
    lines = [f"commit: {commits[0]}" + ("" if is_same_commit else f" → {commits[1]}")]
    changes = list(_file_change_lines(files))
    if not files.commits_a and not files.commits_b:
        return changes or ["the same files"]
    return [*lines, *changes] if changes or not is_same_commit else [*lines, "the same files and row groups"]


def _file_change_lines(files: "FileChanges") -> Iterator[str]:
    listed = (
        (files.files_removed, "only in A"),
        (files.files_added, "only in B"),
        (files.files_changed, "with other bytes"),
    )
    yield from (f"{counted(len(paths), 'file')} {words}: {_first(paths)}" for paths, words in listed if paths)
    of_rows = (
        (files.row_groups_removed, "read for A only"),
        (files.row_groups_added, "read for B only"),
        (files.row_groups_cut_elsewhere, "read for both, up to another row"),
    )
    yield from (f"{counted(count, 'row group')} {words}" for count, words in of_rows if count)


def _count_lines(found: "Comparison") -> list[str]:
    rows = [
        (_count_words(one.name), _figure(one.a), _figure(one.b), "" if one.is_equal else _figure(one.delta, "+"))
        for one in found.counts
    ]
    return aligned([("", "A", "B", "change"), *rows], numbers=(1, 2, 3))


def _figure(value: int | str, sign: str = "") -> str:
    """A count, or a decimal as the manifest has it."""
    return format(value if isinstance(value, int) else Decimal(value), f"{sign},")


def _count_words(name: str) -> str:
    """A count as people say it; the ledger is rows read = documents kept + merged + dropped + rejected."""
    match name.split(".", 2):
        case ["ledger", "in"]:
            return "rows read"
        case ["ledger", "out"]:
            return "documents kept"
        case ["ledger", "merged"]:
            return "merged into another row's document"
        case ["changes", *change]:
            return f"changes: {'.'.join(change).replace('/', ' ').replace('_', ' ')}"
        case ["ledger", fate, reason]:
            return f"{fate}: {reason.replace('_', ' ')}"
    return name.replace("_", " ").replace(".", " of ")


def _document_lines(changes: "DocumentChanges") -> list[str]:
    told = [
        (changes.only_in_a, "only in A"),
        (changes.only_in_b, "only in B"),
        (changes.in_both, "in both"),
        (changes.changed, "in both, but with another text"),
    ]
    if changes.relabelled.documents:
        told.append((changes.relabelled, f"in both, of the same text, but {changes.labels}"))
    return [
        f"{counted(found.documents, 'document')} {words}"
        + (f": {', '.join(found.examples)}" if found.examples else "")
        + (", …" if found.documents > len(found.examples) > 0 else "")
        for found, words in told
    ]


def _first(paths: Sequence[str]) -> str:
    return ", ".join(paths[:_SHOWN_FILES]) + (", …" if len(paths) > _SHOWN_FILES else "")
