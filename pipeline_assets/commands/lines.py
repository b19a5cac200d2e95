"""Lines that a command prints of an artifact: its folder, its digest, what became of its rows, its counts."""

from collections.abc import Iterator, Mapping
from typing import Any

from pipeline_assets.commands.terminal import aligned
from pipeline_assets.corpus.document_shards import REJECTS_FILE
from pipeline_assets.spine.artifact import Artifact

_READABLE = (".json", ".md")
_LEDGER_COUNTS = ("ledger", "documents")


def artifact_lines(made: Artifact) -> Iterator[str]:
    """Yield the lines; of a pin, whose files lie elsewhere, which files beside them are not read."""
    identity = made.manifest.identity
    counts = identity.counts
    if not made.manifest.storage:
        for file in identity.decisions.get("left_out", ()):
            yield f"not read, beside {identity.decisions['format']} files of the same split: {file}"
        return
    yield f"{made.folder}\n  {made.manifest.digest}"
    if "ledger" in counts:
        ledger = identity.ledger
        gone = (f"{count:,} {fate}" + f" ({reason})" * bool(reason) for fate, reason, count in ledger.fates() if count)
        yield " + ".join([f"  {ledger.rows_in:,} rows in = {ledger.out:,} documents", *gone])
        if ledger.total_rejected:
            yield f"  rejected rows: {made.path(REJECTS_FILE)}"
    told = {name: value for name, value in counts.items() if not ("ledger" in counts and name in _LEDGER_COUNTS)}
    yield from _count_lines(told)
    readable = [file.path for file in identity.files if file.path.endswith(_READABLE)]
    pages = [file.path for file in made.manifest.storage if file.path.endswith(".html")]
    yield from (f"  {made.path(path)}" for path in (*readable, *pages))


def _count_lines(counts: Mapping[str, Any]) -> Iterator[str]:
    """Yield plain counts in one line, then a line for each group of counts, or a table for each group of groups."""
    plain = {name: value for name, value in counts.items() if isinstance(value, int | str) and value}
    if plain:
        yield f"  {', '.join(f'{_words(name)} {_number(value)}' for name, value in plain.items())}"
    for name, group in counts.items():
        if not isinstance(group, Mapping) or not group:
            continue
        if all(isinstance(value, Mapping) for value in group.values()):
            rows = _table(_words(name), group)
            yield from (f"  {line}" for line in aligned(rows, range(1, len(rows[0]))))
        elif any(group.values()):
            parts = (f"{_number(value)} {key}" for key, value in group.items() if value)
            yield f"  {_words(name)}: {', '.join(parts)}"


def _table(title: str, groups: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return a row for each group, and a column for each count that is not zero, or missing, in all of them."""
    columns = dict.fromkeys(
        name for one in groups.values() for name, value in one.items() if isinstance(value, int | str) and value
    )
    rows = [(name, *(_number(one.get(column, 0)) for column in columns)) for name, one in groups.items()]
    return [(title, *map(_words, columns)), *rows]


def _words(name: str) -> str:
    return name.replace("_", " ")


def _number(value: int | str) -> str:
    return f"{value:,}" if isinstance(value, int) else value
