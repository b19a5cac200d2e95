"""Summary lines of an artifact: folder, digest, ledger and counts."""

from collections.abc import Iterator, Mapping
from typing import Any

from pipeline_assets.commands.terminal import align
from pipeline_assets.corpus.document_shards import REJECTS_FILE
from pipeline_assets.corpus.tokens.sealed_losses import read_losses
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.plural import pluralize

_READABLE_SUFFIXES = (".json", ".md")
_LEDGER_COUNTS = ("ledger", "documents")


def artifact_lines(artifact: Artifact) -> Iterator[str]:
    """Yield an artifact's summary lines; for a pin, only lines on skipped files."""
    identity = artifact.manifest.identity
    counts = identity.counts
    if not artifact.manifest.storage:
        for file in identity.decisions.get("left_out", ()):
            yield f"not read, because the split has {identity.decisions['format']} files: {file}"
        return
    yield f"{artifact.folder}\n  {artifact.manifest.digest}"
    if "ledger" in counts:
        ledger = identity.ledger
        fates = (fate for fate in ledger.other_outcomes() if fate[2])
        lost = (f"{count:,} {fate}" + f" ({reason})" * bool(reason) for fate, reason, count in fates)
        yield " + ".join([f"  {pluralize(ledger.rows_in, 'row')} in = {pluralize(ledger.out, 'document')}", *lost])
        if ledger.total_rejected:
            yield f"  rejected rows: {artifact.path(REJECTS_FILE)}"
    other = {name: value for name, value in counts.items() if not ("ledger" in counts and name in _LEDGER_COUNTS)}
    yield from _count_lines(other)
    readable = [file.path for file in identity.files if file.path.endswith(_READABLE_SUFFIXES)]
    pages = [file.path for file in artifact.manifest.storage if file.path.endswith(".html")]
    yield from (f"  {artifact.path(path)}" for path in (*readable, *pages))


def lines_with_losses(artifact: Artifact) -> Iterator[str]:
    """Yield an artifact's summary lines, then its tokenizer's losses by source."""
    yield from artifact_lines(artifact)
    yield from (f"  {source}: {losses}" for source, losses in (read_losses(artifact.manifest) or {}).items())


def _count_lines(counts: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line of single counts, then a line or table for each group of counts."""
    plain = {name: value for name, value in counts.items() if isinstance(value, int | str) and value}
    if plain:
        yield f"  {', '.join(f'{_spell_out(name)} {_format_count(value)}' for name, value in plain.items())}"
    for name, group in counts.items():
        if not isinstance(group, Mapping) or not group:
            continue
        if all(isinstance(value, Mapping) for value in group.values()):
            rows = _table_rows(_spell_out(name), group)
            yield from (f"  {line}" for line in align(rows, range(1, len(rows[0]))))
        elif any(group.values()):
            parts = (f"{_format_count(value)} {key}" for key, value in group.items() if value)
            yield f"  {_spell_out(name)}: {', '.join(parts)}"


def _table_rows(title: str, groups: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return a header row and a row for each group; omit columns that are all zero."""
    columns = dict.fromkeys(
        name for counts in groups.values() for name, value in counts.items() if isinstance(value, int | str) and value
    )
    rows = [(name, *(_format_count(counts.get(column, 0)) for column in columns)) for name, counts in groups.items()]
    return [(title, *map(_spell_out, columns)), *rows]


def _spell_out(name: str) -> str:
    return name.replace("_", " ")


def _format_count(count: int | str) -> str:
    return f"{count:,}" if isinstance(count, int) else count
