"""The command `forget`, which puts rows on the removal list of a data root."""

import datetime
import functools
import itertools
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline_assets.build.recipe_paths import recipe_names_by_folder
from pipeline_assets.build.removal_state import RemovalComparison, applied_positions, read_removals
from pipeline_assets.commands import terminal
from pipeline_assets.corpus.removal_entries import add_entries, entry_dates
from pipeline_assets.corpus.removals import REMOVALS_FOLDER
from pipeline_assets.corpus.urls import split_url
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.lock import locked
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.systems.registry import SYSTEMS

_MAX_FILE_BYTES = 256 << 20
if TYPE_CHECKING:
    from pipeline_assets.build.forgetting import SelectorValue
    from pipeline_assets.build.rows.row_stores import RowStores


def forget(
    ids: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="File with an id per line.")] = None,
    source: Annotated[
        list[str] | None, typer.Option(help="REPO@COMMIT:PATH#ROW, PATH#ROW or PATH:LINE; repeatable.")
    ] = None,
    url: Annotated[
        list[str] | None, typer.Option(help="URL, host, or pattern of known URLs with *; repeatable.")
    ] = None,
    text: Annotated[
        list[Path] | None, typer.Option(exists=True, dir_okay=False, help="File with the text of a row; repeatable.")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Reason, stored in clear text: no personal data.")] = None,
    clean: Annotated[bool, typer.Option("--clean", help="List what still contains forgotten rows.")] = False,
    published: Annotated[
        str | None, typer.Option(help="Hub dataset whose commits are searched for forgotten rows.")
    ] = None,
    keep_history: Annotated[
        bool, typer.Option("--keep-history", help="Keep old artifacts (--clean) or commits (--published).")
    ] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Extend the list, or remove what was found.")] = False,
    data: terminal.Root = Path("data"),
    as_json: terminal.AsJson = False,
) -> None:
    """Put rows on the data root's removal list, for later builds.

    Example: corpusmill forget --ids ids.txt --reason "request 12" --apply --data data
    """
    from pipeline_assets.build import forgetting
    from pipeline_assets.build.rows.row_stores import RowStores

    has_rows = bool(ids or source or url or text)
    _check_options(has_rows, clean, published, keep_history, apply, reason)
    root = terminal.require_root(data)
    if published is not None:
        _clean_published_dataset(published, root, apply, keep_history, as_json)
        return
    lineage = Lineage(root)
    if lineage.manifest_errors:
        raise next(iter(lineage.manifest_errors.values()))
    stores, content, lines = RowStores(SYSTEMS.kinds, lineage), dict[str, Any](), list[str]()
    if has_rows:
        patterns = [pattern for pattern in url or () if "*" in pattern]
        values = [*_selector_values(ids, source or (), url or (), text or (), stores)]
        values, content, lines = _find_matching_rows(values, patterns, stores)
        if not apply:
            counted = pluralize(len(values), "value")
            options = "--apply" if reason else "--reason and --apply"
            advice = f"; to put {counted} on the list, add {options}" if values else ""
            content["unsearchable"], more = _list_unsearchable(stores, ())
            terminal.print_answer(as_json, content, [*lines, *more, f"nothing was changed{advice}"])
            return
        content["added"] = add_entries(root, values, str(reason), f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}")
        lines.append(f"entries added to the removal list: {content['added']:,}")
    affected = forgetting.compare_with_removal_list(stores)
    unsearchable, more = _list_unsearchable(stores, affected)
    if clean:
        content, lines = _clean_remnants(stores, affected, apply, keep_history)
    else:
        commands, next_lines = _removal_steps(affected, data)
        content, lines = content | {"artifacts": [*affected], "commands": commands}, lines + next_lines
    terminal.print_answer(as_json, content | {"unsearchable": unsearchable}, lines + more)


def _check_options(
    has_rows: bool, cleans: bool, published_repo: str | None, keeps_history: bool, applies: bool, reason: str | None
) -> None:
    """Raise UsageError if options exclude each other or a needed option is missing."""
    if published_repo is not None and (cleans or has_rows):
        raise UsageError("excludes --clean and options that select rows", "--published", "add the rows first")
    if cleans and has_rows:
        raise UsageError("excludes --ids, --source, --url and --text", "--clean", "add the rows first")
    if not has_rows and (reason is not None or (applies and not cleans and published_repo is None)):
        option = "--apply" if reason is None else "--reason"
        raise UsageError("no rows to forget", option, "pass --ids, --source, --url or --text")
    if published_repo is not None:
        return
    if keeps_history and not cleans:
        raise UsageError("needs --clean or --published", "--keep-history", "add one of them, or remove the option")
    if has_rows and applies and not (reason or "").strip():
        raise UsageError("missing", "--reason", "state why, such as the number of the request")


def _selector_values(
    ids_file: Path | None, sources: Iterable[str], urls: Iterable[str], text_files: Iterable[Path], stores: "RowStores"
) -> "Iterator[SelectorValue]":
    """Yield (selector, value) for ids, texts, URLs and source rows; skip URL patterns."""
    if ids_file is not None:
        yield from (("id", line.strip()) for line in _read_text(ids_file).split("\n") if line.strip())
    yield from (("text", _read_text(path)) for path in text_files)
    for url in (url for url in urls if "*" not in url):
        host, _ = split_url(url)
        if not host or " " in host:
            raise UsageError(f"must be a URL, a host or a pattern with *, got {url!r}", "--url", "correct it")
        yield ("url", url) if "/" in url else ("host", host)
    for source in sources:
        yield from _source_values(source, stores)


def _find_matching_rows(
    values: "Sequence[SelectorValue]", url_patterns: Sequence[str], stores: "RowStores"
) -> "tuple[list[SelectorValue], dict[str, Any], list[str]]":
    """Find the rows that match values or patterns.

    Return `values` with the values of the matching rows added; the output as JSON; the output as lines.
    """
    from pipeline_assets.build import forgetting

    listed = read_removals(stores.lineage.root, applied_positions(stores.lineage.manifests.values()))
    rows, unmatched = forgetting.find_rows_to_forget(stores, values, url_patterns, listed)
    copies = forgetting.find_recorded_duplicates(stores.lineage, rows, values)
    lines = [*_name_lines([f"{row.folder}/{row.file}  {row.id}" for row in rows], "row")]
    lines += _name_lines([f"{copy}  {share:.2f}  of {row}" for copy, row, share in copies], "known duplicate")
    if copies:
        lines.append("duplicates are kept, unless you add their ids")
        if any("/" in copy for copy, *_ in copies):
            lines.append("of an id DATASET/SPLIT/ID, add only ID")
    if unmatched:
        lines += _name_lines([f"{name}  {value[:80]!r}" for name, value in unmatched], "unmatched value", 10)
        lines.append("correct them if misspelt; the list gets them too, except patterns, for rows of later builds")
    found = dict.fromkeys([*values, *(value for row in rows for value in row.values)])
    return [*found], {"rows": rows, "near_copies": copies, "unmatched": unmatched}, lines


def _removal_steps(comparisons: Mapping[Path, RemovalComparison], root: Path) -> tuple[list[str], list[str]]:
    """Return commands that remove forgotten rows from artifacts, and lines to print."""
    recipes = recipe_names_by_folder(SYSTEMS.load_recipes(root)[0], root)
    counts = [count for comparison in comparisons.values() for count in comparison.rows.values()]
    lines = [f"{pluralize(sum(counts), 'row')} to remove in {pluralize(len(counts), 'file')}"]
    lines += _name_lines([*map(str, comparisons)], "artifact")
    if orphans := sum(folder not in recipes for folder in map(str, comparisons)):
        found = f"{pluralize(orphans, 'artifact')} of no recipe in {root / 'recipes'}"
        lines.append(f"{found}: to keep them without the rows, first run their recipes by path, with --replace")
    names = sorted({recipes[folder] for folder in map(str, comparisons) if folder in recipes})
    commands = [terminal.format_command("run", name, "--replace", "--data", root) for name in names]
    commands += [terminal.format_command("forget", "--clean", "--data", root)] if comparisons else []
    return commands, [*lines, *(f"next: {command}" for command in commands)]


def _list_unsearchable(stores: "RowStores", affected: Collection[Path]) -> tuple[dict[str, str | None], list[str]]:
    """Return unsearchable artifacts outside `affected`, and the lines to print.

    The dict maps each artifact to the name of a missing input, or to None if the artifact was built from files to which
    the removal list is not applied.
    """
    unsearchable = stores.find_unsearchable(affected)
    found: dict[str, str | None] = {str(path): missing for path, missing in unsearchable.items()}
    names = [f"{folder}  {missing}, from which it was built, is missing" for folder, missing in found.items()]
    advice = ["they may contain forgotten rows: run their recipes with --replace, or remove them"] if names else []
    skipped = {*found, *map(str, affected)}
    unlisted = [folder for folder in map(str, stores.find_unsourced()) if folder not in skipped]
    files = "published pools, or files that are not read through the list"
    names += [f"{folder}  built from {files}" for folder in unlisted]
    if unlisted:
        advice.append("they may contain forgotten rows: pin the rebuilt pools, and run their recipes, or remove them")
    lines = [*_name_lines(names, "unsearchable artifact"), *advice] if names else []
    return found | dict.fromkeys(unlisted), lines


def _clean_remnants(
    stores: "RowStores", affected_folders: Collection[Path], applies: bool, keeps_artifacts: bool
) -> tuple[dict[str, Any], list[str]]:
    """Find folders that may contain forgotten rows, and remove them if `applies`.

    If `keeps_artifacts`, skip artifacts. List folders that only the user can remove, but do not remove them. Return the
    command's output as JSON content and as lines.
    """
    from pipeline_assets.build.remnants import find_remnants, remove_remnants

    found = [entry for entry in find_remnants(stores, affected_folders) if not (keeps_artifacts and entry.is_artifact)]
    lines = [*_name_lines([f"{entry.folder}  {entry.reason}" for entry in found if not entry.is_manual], "folder")]
    busy = remove_remnants(found) if applies else []
    lines += [f"in use: {folder}; run the same command later" for folder in busy]
    if len(lines) > 1:
        removed = sum(not entry.is_manual for entry in found) - len(busy)
        lines.append(f"removed: {pluralize(removed, 'folder')}" if applies else "to remove them, add --apply")
    lines += [f"not removed: {entry.folder}: {entry.reason}" for entry in found if entry.is_manual]
    lines.append("not searched: clones, exports, backups and published sets (--published) outside this data root")
    return {"remnants": found, "in_use": busy}, lines


def _clean_published_dataset(dataset: str, root: Path, applies: bool, keeps_history: bool, as_json: bool) -> None:
    """Find forgotten rows in a hub dataset's commits; remove them if `applies`.

    With `keeps_history`, nothing is removed. Print the result, and exit with status 1 if rows remain.
    """
    from pipeline_assets.build.run import open_hub
    from pipeline_assets.corpus.publishing import hub_repo
    from pipeline_assets.corpus.publishing.repo_search import RepoSearch
    from pipeline_assets.corpus.publishing.unpublish import unpublish
    from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, load_encoder

    terminal.log_to_stderr()
    hub_repo.check_repo_name(dataset)
    removals = read_removals(root)
    if not removals.entries:
        raise UsageError("the removal list is empty", root, "put rows on it with `corpusmill forget`")
    repo = hub_repo.HubRepo.open(dataset, open_hub(root, os.environ), hub_repo.hf_token(os.environ))
    record = root / REMOVALS_FOLDER / "published" / f"{dataset.replace('/', '--')}.json"
    search = RepoSearch(removals, load_encoder(VOCABULARY_SHA256).decode, record.with_suffix(".downloads"))
    now = functools.partial(datetime.datetime.now, datetime.UTC)
    with repo.limit_requests(), locked(record):
        repo.check_token()
        removal = unpublish(repo, search, record, entry_dates(root), now, applies=applies, keeps_history=keeps_history)
    commits = len({*itertools.chain(*removal.commits.values())})
    lines = [f"{removal.repo}: {pluralize(commits, 'commit')} of {', '.join(removal.commits) or 'no branch'}"]
    if removal.certificate and not keeps_history:
        lines.append(f"entries removed: {len(removal.removed):,}, large files deleted: {len(removal.objects):,}")
    elif applies:
        lines.append("nothing was removed" + ", since --keep-history is set" * keeps_history)
    lines += _name_lines(sorted({*itertools.chain(*removal.remaining.values())}), "remaining file")
    lines += _name_lines(removal.unread, "unsearchable file")
    if removal.remaining and removal.has_forgotten_head:
        lines.append("a branch still ends with forgotten rows; rebuild, and run `corpusmill nemotron publish` first")
    elif removal.remaining and not applies:
        lines.append("nothing was changed; to remove the rows from the history, add --apply")
    lines.append(f"cannot be reached: {', '.join(removal.unreachable)}")
    if removal.certificate:
        requested = f"requested {removal.requested}" if removal.requested else "no entry was found"
        lines.append(f"{requested}, proved {removal.proved}: {record.with_name(removal.certificate)}")
    terminal.print_answer(as_json, removal, lines)
    if removal.remaining:
        raise typer.Exit(1)


def _name_lines(names: Sequence[str], noun: str, limit: int = 20) -> Iterator[str]:
    """Yield a line with the count of names, then up to `limit` names, one per line."""
    yield pluralize(len(names), noun)
    yield from (f"  {name}" for name in names[:limit])
    if len(names) > limit:
        yield f"  and {len(names) - limit:,} more; --json lists all"


def _read_text(path: Path) -> str:
    """Return the text of a file, without BOM; UsageError if blank, huge or not UTF-8."""
    with open(path, "rb") as file:  # it may be a pipe, or a device that never ends
        data = file.read(_MAX_FILE_BYTES + 1)
    if len(data) > _MAX_FILE_BYTES:
        raise UsageError(
            f"the file has more than {_MAX_FILE_BYTES:,} bytes", path, "split it, and run the command twice"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"the file is not UTF-8 ({error})", path, "pass a text file") from None
    if not text.strip():
        raise UsageError("the file is empty", path, "write an id per line for --ids, or a text for --text")
    return text


def _source_values(source: str, stores: "RowStores") -> "Iterator[SelectorValue]":
    """Yield ('id', …) and ('text', …) for each document that a source row became."""
    from pipeline_assets.build.rows.follow import follow_source, source_files
    from pipeline_assets.build.rows.source_row import parse_row_address

    followed = follow_source(stores, parse_row_address(source, source_files(stores.lineage)))
    parts = [entry.part for entry in followed if entry.part is not None]
    if not parts:
        what = f"no document was read from this row ({followed[0].fate.summary})"
        raise UsageError(what, source, "pass its id with --ids, or its text with --text")
    for part in parts:
        yield from (("id", part.id), ("text", part.text))
