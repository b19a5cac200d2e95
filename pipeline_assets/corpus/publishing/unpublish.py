"""Removal of forgotten rows from the history of a dataset repo.

The user first publishes the rebuilt artifact, so that no head of a branch contains a forgotten row. The removal then
squashes each branch to one commit, moves each tag to the new head of `main`, and permanently deletes large files that
only earlier commits contain. Refs of pull requests and conversions are searched and listed, but never changed. A
`RemovalRecord` is written before the first change, so that the same command continues after a crash. Finally, a
certificate replaces the record.
"""

import datetime
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pipeline_assets.corpus.publishing.hub_repo import HubRepo
from pipeline_assets.corpus.publishing.repo_search import RepoSearch, RepoSearchResult, list_lfs_hashes
from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import RetryableError, UsageError
from pipeline_assets.spine.metadata_file import MetadataFormat

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_BRANCH_PREFIX, _TAG_PREFIX = "refs/heads/", "refs/tags/"
_OWN_REF_PREFIXES = (_BRANCH_PREFIX, _TAG_PREFIX)
_EARLIER_REF = "earlier"  # in place of a ref, for commits that answer although no ref reaches them
_OTHER_COPIES = ("clones and downloaded copies", "forks and duplicated repositories", "caches of readers and mirrors")


class RemovalRecord(msgspec.Struct):
    """Record and certificate of a removal; it has UTC times, but no ids or texts.

    A place is `REF@COMMIT:PATH`. `removed` and `remaining` list places by the hash of the entry that was found there.
    """

    repo: str
    started: str  # time before the first search of the repo
    requested: str = ""  # earliest date at which one of the removed entries was added to the list
    proved: str = ""  # time after the last search
    certificate: str = ""  # name of the certificate's file; empty if no certificate was written
    keeps_history: bool = False
    commits: dict[str, list[str]] = {}  # that each ref reached before the removal
    removed: dict[str, list[str]] = {}  # former places of removed entries
    objects: list[str] = []  # sha256 of the large files that were deleted
    remaining: dict[str, list[str]] = {}  # places of entries that are still reachable
    unread: list[str] = []  # places of files that could not be searched
    unreachable: list[str] = []  # kinds of copies that no command can reach, and refs other than branches and tags

    @property
    def has_forgotten_head(self) -> bool:
        """True if a branch's head contains a forgotten row, which a squash would keep."""
        branches = ((ref, commits) for ref, commits in self.commits.items() if ref.startswith(_BRANCH_PREFIX))
        heads = tuple(f"{ref}@{commits[0]}:" for ref, commits in branches)
        return any(place.startswith(heads) for places in self.remaining.values() for place in places)


_RECORD_FORMAT = MetadataFormat("record of a removal", 1 << 30, "restore it from a backup", RemovalRecord)


def unpublish(
    repo: HubRepo,
    search: RepoSearch,
    record_file: Path,
    dates_by_hash: Mapping[str, str],
    now: Callable[[], datetime.datetime],
    *,
    applies: bool,
    keeps_history: bool,
) -> RemovalRecord:
    """Search a repo for forgotten rows; if `applies`, remove them from its history.

    Nothing is removed if `keeps_history` is true or if the head of a branch contains a forgotten row. `dates_by_hash`
    has the date at which each entry was added to the removal list. With `applies`, a certificate is stored next to
    `record_file` if the repo was changed or `keeps_history` is true. Raise RetryableError if another process changes
    the repo.
    """
    started, result = now().isoformat(timespec="seconds"), search.search(repo, reachable_commits(repo))
    record = _RECORD_FORMAT.read(record_file) if record_file.exists() else RemovalRecord(repo.url, started)
    own = any(place.startswith(_OWN_REF_PREFIXES) for places in result.places_by_hash.values() for place in places)
    _add_result(record, result)
    is_changed = applies and not keeps_history and (own or record_file.exists()) and not record.has_forgotten_head
    if is_changed:
        durable.write_durably(record_file, msgspec.json.encode(record))
        _squash_branches(repo, result)
        tags = [ref.removeprefix(_TAG_PREFIX) for ref in record.commits if ref.startswith(_TAG_PREFIX)]
        _move_tags(repo, tags)
        _delete_large_files(repo, record)
        commits = reachable_commits(repo)
        result = search.search(repo, commits | _surviving_commits(repo, record, commits))
    dates = (dates_by_hash[entry] for entry in record.removed if entry in dates_by_hash)
    record.requested = min(dates, default="")
    record.removed = {entry: places for entry, places in record.removed.items() if entry not in result.places_by_hash}
    record.objects = record.objects if is_changed else []
    record.remaining, record.unread, record.keeps_history = result.places_by_hash, result.unread_places, keeps_history
    other_refs = (ref for ref in result.commits_by_ref if not ref.startswith(_OWN_REF_PREFIXES))
    record.unreachable = [*_OTHER_COPIES, *other_refs]
    record.proved = now().isoformat(timespec="seconds")
    if is_changed or (applies and keeps_history):
        record.certificate = f"{record_file.stem}.{record.proved.replace(':', '')}.json"
        certificate = msgspec.json.format(msgspec.json.encode(record))
        durable.write_durably(record_file.with_name(record.certificate), certificate)
    if is_changed:
        durable.remove(record_file)
    return record


def _add_result(record: RemovalRecord, result: RepoSearchResult) -> None:
    """Add the results of a search to the record of earlier runs.

    Only the large files of branches and tags are added to `objects`. `remaining` and `unread` are replaced.
    """
    for ref, reached in result.commits_by_ref.items():
        record.commits[ref] = list(dict.fromkeys([*reached, *record.commits.get(ref, ())]))
    for entry, places in result.places_by_hash.items():
        record.removed[entry] = list(dict.fromkeys([*record.removed.get(entry, ()), *places]))
    own = (objects for ref, objects in result.lfs_hashes_by_ref.items() if ref.startswith(_OWN_REF_PREFIXES))
    record.objects = sorted({*record.objects}.union(*own))
    record.remaining, record.unread = result.places_by_hash, result.unread_places


def reachable_commits(repo: HubRepo) -> dict[str, list[str]]:
    """Return the commits of each ref, newest first, by the ref's full name."""

    def fetch(api: "HfApi") -> dict[str, list[str]]:
        refs = api.list_repo_refs(repo.name, repo_type="dataset", include_pull_requests=True)
        listed = [*refs.branches, *refs.tags, *refs.converts, *(refs.pull_requests or ())]
        return {ref.ref: _history(api, repo, ref.target_commit) for ref in listed}

    return repo.call_library(fetch)


def _history(api: "HfApi", repo: HubRepo, commit: str) -> list[str]:
    return [entry.commit_id for entry in api.list_repo_commits(repo.name, repo_type="dataset", revision=commit)]


def _squash_branches(repo: HubRepo, result: RepoSearchResult) -> None:
    for ref, reached in result.commits_by_ref.items():
        branch = ref.removeprefix(_OWN_REF_PREFIXES[0])

        def squash(api: "HfApi", branch: str = branch, head: str = reached[0]) -> None:
            history = _history(api, repo, repo.hub.resolve(repo.name, branch))
            if len(history) > 1 and history[0] != head:
                raise RetryableError(f"another commit moved {branch}", repo.name, "run the same command again")
            if len(history) > 1:
                message = "Remove earlier versions"
                api.super_squash_history(repo.name, branch=branch, commit_message=message, repo_type="dataset")

        if branch != ref:
            repo.call_library(squash)


def _move_tags(repo: HubRepo, tags: list[str]) -> None:
    head = repo.hub.resolve(repo.name)
    for name in tags:

        def move(api: "HfApi", name: str = name) -> None:
            commits = {tag.name: tag.target_commit for tag in api.list_repo_refs(repo.name, repo_type="dataset").tags}
            if name in commits and commits[name] != head:
                api.delete_tag(repo.name, tag=name, repo_type="dataset")
            if commits.get(name) != head:
                api.create_tag(repo.name, tag=name, revision=head, repo_type="dataset", exist_ok=True)

        repo.call_library(move)


def _delete_large_files(repo: HubRepo, record: RemovalRecord) -> None:
    """Permanently delete the large files that branches and tags no longer contain.

    Files that only refs of pull requests or conversions ever contained, and uploads since the start of the removal, are
    kept.
    """
    commits, kept, deleted = reachable_commits(repo), set[str](), {*record.objects}
    for ref, objects in list_lfs_hashes(repo, commits).items():
        kept |= objects if ref.startswith(_OWN_REF_PREFIXES) else objects - deleted
    started = datetime.datetime.fromisoformat(record.started)

    def delete(api: "HfApi") -> None:
        stored = [file for file in api.list_lfs_files(repo.name, repo_type="dataset") if file.file_oid not in kept]
        # Later uploads may belong to a publication that has not committed them yet.
        doomed = [file for file in stored if file.file_oid in deleted or file.pushed_at < started]
        if reachable_commits(repo) != commits:
            raise RetryableError("another process changed the repository", repo.name, "run the same command again")
        deleted.update(file.file_oid for file in doomed)
        # Without a rewrite, which would change refs of other people; no commit of ours has these files any more.
        api.permanently_delete_lfs_files(repo.name, doomed, rewrite_history=False, repo_type="dataset")

    repo.call_library(delete)
    record.objects = sorted(deleted - kept)


def _surviving_commits(
    repo: HubRepo, record: RemovalRecord, commits_by_ref: Mapping[str, list[str]]
) -> dict[str, list[str]]:
    """Return commits that no ref reaches any more, but that the hub still serves.

    Only former commits of branches and tags are returned, under the key `_EARLIER_REF`; without any, the dict is empty.
    """
    own_refs = (ref for ref in record.commits if ref.startswith(_OWN_REF_PREFIXES))
    before = {commit for ref in own_refs for commit in record.commits[ref]}
    answering = []
    for commit in sorted(before.difference(*commits_by_ref.values())):
        with suppress(UsageError):
            answering.append(repo.hub.resolve(repo.name, commit))
    return {_EARLIER_REF: answering} if answering else {}
