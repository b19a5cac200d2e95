"""Warnings about built artifacts: failed checks, unread files and repeated ids."""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from pipeline_assets.build.target import Target
from pipeline_assets.spine.artifact import CheckResult, read_manifest
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.manifest import Manifest
from pipeline_assets.spine.rejects import Reject
from pipeline_assets.spine.visible import to_one_line

_MAX_NAMED_FILES = 20


def warning_lines(targets: Iterable[Target], root: Path) -> Iterator[str]:
    """Yield warnings about failed non-blocking checks, unread files and repeated ids."""
    for target in targets:
        with contextlib.suppress(InputError):  # damage is an error of its own
            if (manifest := read_manifest(root / target.folder)) is not None:
                for check in target.check_results(root, manifest):
                    if not check.passed and not check.is_blocking_failure:
                        yield check_result_line(target, check)
                yield from _unread_file_warnings(target, manifest, root)
                yield from _repeated_id_lines(target, manifest)


def _repeated_id_lines(target: Target, manifest: Manifest) -> Iterator[str]:
    """Yield a warning if the recipe has `columns` and over 1 % of rows repeat an id."""
    from pipeline_assets.corpus.converted_shards import DUPLICATE_ID
    from pipeline_assets.corpus.readers.column_recipe import ID_COLUMN_FIX

    identity = manifest.identity
    if not identity.recipe.get("columns") or "ledger" not in identity.counts:
        return
    repeats, rows = identity.ledger.rejected.get(DUPLICATE_ID, 0), identity.ledger.rows_in
    if repeats * 100 > rows:
        what = f"{target.name}: {repeats:,} of {rows:,} rows were rejected, because their ids repeat"
        yield f"{what}; unless they are copies, {ID_COLUMN_FIX}"


def _unread_file_warnings(target: Target, manifest: Manifest, root: Path) -> Iterator[str]:
    """Yield a line per unread local file, at most 20; for more files, also the total."""
    recipe = manifest.identity.recipe
    if recipe.get("kind") != "local" or not manifest.identity.counts.get("ledger", {}).get("rejected"):
        return
    from pipeline_assets.corpus.document_shards import REJECTS_FILE
    from pipeline_assets.corpus.formats.jsonl_zst import read_structs
    from pipeline_assets.corpus.normalize.sources import LocalSource, parse_source
    from pipeline_assets.corpus.readers.unreadable import UNREADABLE

    source, _ = parse_source(recipe)
    assert isinstance(source, LocalSource)
    named = 0
    for reject in read_structs(root / target.folder / REJECTS_FILE, Reject):
        is_whole = source.is_one_document(reject.file) and reject.reason != "empty_text"
        if reject.reason == UNREADABLE or is_whole:
            named += 1
            if named <= _MAX_NAMED_FILES:
                yield to_one_line(f"{target.name}: {reject.file} was not read: {reject.detail or reject.reason}")
    if named > _MAX_NAMED_FILES:
        yield f"{target.name}: {named:,} files were not read; all are in {target.folder / REJECTS_FILE}"


def check_result_line(target: Target, result: CheckResult) -> str:
    """Format a check's result as one line, even if ids in it have line breaks."""
    return to_one_line(f"check {target.name}: {result.name}: {result.state}: {result.because}")
