"""What each artifact of the nemotron system holds, in a few lines."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline_assets.corpus.spine.artifact import Artifact


def lines_of(made: "Artifact") -> Iterator[str]:
    """Its folder, its digest, what is in it; of a pin, which holds no files, what it leaves out."""
    step, decisions = made.manifest.kind.partition("/")[2], made.manifest.identity.decisions
    if step == "raw":
        if decisions["left_out"]:
            left_out = ", ".join(decisions["left_out"])
            yield f"not read, beside {decisions['format']} files of the same split: {left_out}"
        return
    yield f"{made.folder}\n  {made.manifest.digest}"
    match step:
        case "inventory":
            yield from _of_inventory(made)
        case "normalized_shards":
            yield from _of_rows(made)
        case "hf_layout":
            counts, files = made.manifest.identity.counts, len(made.manifest.storage)
            parts = _many(files, "file"), _many(counts["splits"], "split"), _many(counts["documents"], "row")
            yield f"  {', '.join(parts)}, {counts['tokens']:,} tokens"
        case _:
            for file in made.manifest.identity.files:
                yield f"  {made.path(file.path)}"


def _of_inventory(made: "Artifact") -> Iterator[str]:
    from pipeline_assets.corpus.nemotron.inventory import read_inventory

    found = read_inventory(made)
    scan = "all rows" if found["scan"]["kind"] == "full" else "a sample"
    optional = f", {len(found['optional_columns'])} of them optional" * bool(found["optional_columns"])
    parts = (
        _many(len(found["files"]), "file"),
        _many(found["rows_counted"], "row"),
        _many(len(found["columns"]), "column"),
    )
    yield f"  {parts[0]}, {parts[1]} ({scan}), {parts[2]}{optional}"
    yield from _rejects(made, "rows that can't be read", found["rejected"])


def _of_rows(made: "Artifact") -> Iterator[str]:
    identity = made.manifest.identity
    counts, ledger = identity.counts, identity.counts["ledger"]
    yield (
        f"  {_many(ledger['out'], 'row')} of {ledger['in']:,}, {counts['tokens']:,} tokens, "
        f"{counts['completion_tokens']:,} of them completion"
    )
    if counts["analysis_given"] != counts["analysis_rendered"]:
        yield f"  analysis: {counts['analysis_rendered']:,} of {counts['analysis_given']:,} messages are in the texts"
    if counts["empty_messages"]:
        yield f"  empty: {_many(counts['empty_messages'], 'message')} before the last of a conversation"
    yield from _rejects(made, "rows that give no text", ledger["rejected"])


def _rejects(made: "Artifact", what: str, rejected: Mapping[str, int]) -> Iterator[str]:
    from pipeline_assets.corpus.document_shards import REJECTS_FILE

    if rejected:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in rejected.items())
        yield f"  {what}: {reasons}; {made.path(REJECTS_FILE)} has them"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + "s" * (count != 1)
