"""Publication in a dataset repo, which is consistent after every commit.

The first commits, of at most 100 files each, add new files, which no card names yet. The last commit has the card, the
manifest and replaced files, and deletes files that only the previous manifest lists. Each commit names its parent; if
the head moved, the remaining commits are planned again. A resumed run does not send files that the hub has.
"""

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pipeline_assets.corpus.nemotron.inventory import write_text
from pipeline_assets.corpus.nemotron.sections import PublishRecipe
from pipeline_assets.corpus.publishing.dataset_card import collect_splits_and_sources
from pipeline_assets.corpus.publishing.hub_repo import HubRepo, UploadFile, hf_token
from pipeline_assets.corpus.publishing.load_back import check_configs_load
from pipeline_assets.corpus.publishing.publication import Publication, is_edited, prepare_publication
from pipeline_assets.corpus.readers.hub_configs import CARD_FILE, read_card
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.damage import errors_as_damage
from pipeline_assets.spine.errors import InputError, RetryableError, UsageError
from pipeline_assets.spine.manifest import MANIFEST_FILE, Manifest
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.spine.staging import StagingDir

logger = logging.getLogger("corpusmill")
_FILES_PER_COMMIT = 100  # hub documentation, "Repository limitations"; their bytes are sent before the commit
_MAX_HEAD_MOVES = 5  # of the head by other writers during a run
PUBLICATION_FILE = "publication.json"


@dataclass(frozen=True)
class PlannedCommit:
    """Files that one commit adds, replaces or deletes."""

    uploads: Sequence[UploadFile]
    deletions: Sequence[str] = ()

    @property
    def upload_bytes(self) -> int:
        return sum(item.size for item in self.uploads)


@dataclass(frozen=True)
class PublicationPlan:
    """Commits that a publication still needs, in order; may be empty."""

    parent: str | None  # head of the repo; None if it does not exist
    commits: Sequence[PlannedCommit]
    unchanged: Sequence[UploadFile]  # files that the repo has already

    @property
    def upload_bytes(self) -> int:
        return sum(commit.upload_bytes for commit in self.commits)

    def lines(self) -> Iterator[str]:
        """Yield a line for each commit, then a line for the files already in the repo."""
        for number, commit in enumerate(self.commits, 1):
            last = f", with card, manifest and replaced files; {pluralize(len(commit.deletions), 'file')} deleted"
            size = f"{pluralize(len(commit.uploads), 'file')}, {commit.upload_bytes:,} bytes"
            yield f"commit {number} of {len(self.commits)}: {size}{last if number == len(self.commits) else ''}"
        unchanged_bytes = sum(item.size for item in self.unchanged)
        yield f"already in the repo, not sent: {pluralize(len(self.unchanged), 'file')}, {unchanged_bytes:,} bytes"


def plan_publication(publication: Publication, repo: HubRepo, *, replaces: bool = False) -> PublicationPlan:
    """Plan the commits that the repo still needs.

    Without `replaces`, raise UsageError if the commits would overwrite a card that was edited on the hub, or files that
    another publication or another program wrote.
    """
    if repo.access_settings() is None:
        return PublicationPlan(None, _plan_commits([*publication.files.values()], {}, []), [])
    head = repo.hub.resolve(repo.name)
    remote_files = repo.list_files(head)
    changed, unchanged = list[UploadFile](), list[UploadFile]()
    for item in publication.files.values():
        (unchanged if item.is_stored(remote_files.get(item.path)) else changed).append(item)
    previous, manifest = _read_repo_manifest(repo, remote_files, head), publication.artifact.manifest
    replaceable = remote_files.keys() - publication.files.keys()
    obsolete = [file.path for file in previous.storage if file.path in replaceable] if previous else []
    if not changed and not obsolete:
        return PublicationPlan(head, [], unchanged)
    foreign = [path for path in (CARD_FILE, MANIFEST_FILE, *(item.path for item in changed)) if path in remote_files]
    is_next = previous is not None and _kind_and_partition(previous) == _kind_and_partition(manifest)
    if not replaces and foreign and not is_next:
        has_card = CARD_FILE in remote_files
        content = "a card without a readable manifest.json" if has_card else f"a different {foreign[0]}"
        content = content if previous is None else f"{previous.kind} {previous.name}"
        what = f"the repo contains {content}, which {manifest.kind} {manifest.name} would replace"
        raise UsageError(what, repo.name, "choose another name, or use --replace")
    if previous is not None and not replaces and is_edited(read_card(repo.hub, repo.name, head)):
        what = f"{CARD_FILE} was edited after its publication"
        raise UsageError(what, repo.name, "use --replace to overwrite the edit")
    return PublicationPlan(head, _plan_commits(changed, remote_files, obsolete), unchanged)


def _kind_and_partition(manifest: Manifest) -> tuple[str, str]:
    """Return kind and partition, which all versions of a publication share."""
    return manifest.kind, manifest.name.partition("/")[2]


def publish(
    publication: Publication, repo: HubRepo, *, private: bool = True, replaces: bool = False
) -> tuple[str, PublicationPlan]:
    """Make the missing commits, then test that `datasets` loads each config.

    A missing repo is created, by default as private. If source datasets are gated, readers must request access to the
    repo. Calling again resumes an interrupted publication.

    Returns:
        Commit of the publication, and the plan that was made before the first commit.

    Raises:
        UsageError: The commits would overwrite other content; see `plan_publication`.
        RetryableError: The token cannot write, or other processes commit to the repo.
        InputError: The hub refuses the files, or `datasets` cannot load them.
    """
    with repo.limit_requests():
        repo.check_token()
        if (settings := repo.access_settings()) is None:
            repo.create(private=private)
        gate = (settings or {}).get("gated")
        if publication.gate is not None and gate not in (publication.gate, "manual"):  # "manual" is stricter
            repo.require_agreement(publication.gate)
        plan = planned = plan_publication(publication, repo, replaces=replaces)
        title, attempts = f"{publication.artifact.manifest.kind} {publication.artifact.manifest.name}", 0
        while plan.commits:
            [commit, *rest] = plan.commits
            attempts += 1
            if attempts > len(planned.commits) + _MAX_HEAD_MOVES:
                what = f"after {attempts - 1} attempts to commit, {len(commit.uploads):,} files are missing or differ"
                raise RetryableError(what, repo.name, "publish again when no other process commits to it")
            verb = "Files of" if rest else "Publish"
            repo.commit(str(plan.parent), f"{verb} {title}", commit.uploads, commit.deletions)
            plan = plan_publication(publication, repo, replaces=replaces)
            sent = f"{commit.upload_bytes:,}"
            logger.info("%s: sent %s bytes, commits remaining: %d", repo.name, sent, len(plan.commits))
        head = str(plan.parent)
        if publication.configs:
            check_configs_load(repo.name, head, repo.hub.client().address, repo.hub.token, publication.configs)
        return head, planned


def publish_sealed(
    staging: StagingDir, artifact: Artifact, hub: HubFiles | None, recipe: PublishRecipe, *, replaces: bool
) -> BuildResult:
    """Publish an artifact and record its repo and row counts in `publication.json`.

    Without `hub`, as in a rebuild, nothing is sent. `plan_publication` explains `replaces`; `publish` lists the errors.
    """
    sent: dict[str, Any] = {}
    if hub is None:
        splits, _ = collect_splits_and_sources([artifact])
    else:
        repo = HubRepo.open(recipe.repo, hub, hf_token(os.environ))
        publication = prepare_publication(artifact, repo, allow_unknown_licences=recipe.allow_unknown_licences)
        for line in publication.describe_terms():
            logger.info("%s: %s", repo.name, line)
        splits = [*publication.splits]
        commit, plan = publish(publication, repo, private=recipe.private, replaces=replaces)
        sent = {"published": {"url": repo.url, "commit": commit, "bytes_sent": plan.upload_bytes}}
    rows = [{"config": split.config, "split": split.name, "rows": split.rows} for split in splits]
    content = {"repo": recipe.repo, "digest": artifact.manifest.digest, "rows": rows}
    file = write_text(staging, PUBLICATION_FILE, json.dumps(content, indent=1, sort_keys=True) + "\n")
    return BuildResult([file], {"splits": len(rows), "rows": sum(split.rows for split in splits)}, {}, provenance=sent)


def preview_publication(artifact: Artifact) -> list[dict[str, str]]:
    """Return the config, name and number of rows of each split in `publication.json`."""
    path = artifact.path(PUBLICATION_FILE)
    with errors_as_damage(path, "list of splits"):
        rows = json.loads(path.read_bytes())["rows"]
        return [{"config": row["config"], "split": row["split"], "rows": f"{row['rows']:,}"} for row in rows]


def _read_repo_manifest(repo: HubRepo, remote_files: Mapping[str, HubFile], commit: str) -> Manifest | None:
    """Return a repo's manifest; None if it is missing or not a valid manifest."""
    if MANIFEST_FILE not in remote_files:
        return None
    local = repo.hub.fetch(repo.name, commit, remote_files[MANIFEST_FILE]).path
    with suppress(InputError):  # a file that another program wrote
        return Manifest.from_bytes(local.read_bytes(), local)
    return None


def _plan_commits(
    changed_files: Sequence[UploadFile], remote_files: Mapping[str, HubFile], obsolete_paths: Sequence[str]
) -> list[PlannedCommit]:
    """Divide changes into commits: batches of new data files, then all other changes."""
    at_last = {*remote_files, CARD_FILE, MANIFEST_FILE}
    new = [item for item in changed_files if item.path not in at_last]
    last = [item for item in changed_files if item.path in at_last]
    starts = range(0, len(new), _FILES_PER_COMMIT)
    batches = (PlannedCommit(new[first : first + _FILES_PER_COMMIT]) for first in starts)
    return [*batches, PlannedCommit(last, obsolete_paths)]
