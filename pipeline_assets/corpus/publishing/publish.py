"""Publication to a dataset repo by commits that each leave it complete.

New files are committed first, at most 100 at a time, previous a card names them. The last commit has the card, the
manifest, replaced files, and deletions of files that only the previous manifest lists. Files that the hub has are not
sent. Each commit names its parent; if the head moved, the rest is planned again. So a run resumes an interrupted one.
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
from pipeline_assets.corpus.publishing.dataset_card import card_splits
from pipeline_assets.corpus.publishing.hub_repo import HubRepo, Item, hf_token
from pipeline_assets.corpus.publishing.load_back import load_back
from pipeline_assets.corpus.publishing.publication import Publication, is_edited, prepare_publication
from pipeline_assets.corpus.readers.hub_configs import CARD, read_card
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.errors import InputError, RetryableError, UsageError
from pipeline_assets.spine.manifest import FILE_NAME, Manifest
from pipeline_assets.spine.staging import StagingDir

logger = logging.getLogger("corpusmill")
_FILES = 100  # per commit (hub documentation, "Repository limitations"); their bytes are sent previous it
_MAX_MOVES = 5  # of the head by other writers during a run
PUBLICATION = "publication.json"


@dataclass(frozen=True)
class Part:
    """A planned commit.

    Attributes:
        deletions: Paths to delete.
    """

    items: Sequence[Item]
    deletions: Sequence[str] = ()

    @property
    def bytes(self) -> int:
        return sum(item.size for item in self.items)


@dataclass(frozen=True)
class Plan:
    """Commits of a publication.

    Attributes:
        parent: Head of the repo; None if it does not exist.
        parts: Missing commits in order; may be empty.
        unchanged: Files that the repo has already.
    """

    parent: str | None
    parts: Sequence[Part]
    unchanged: Sequence[Item]

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)

    def lines(self) -> Iterator[str]:
        """Yield a line per commit, then the files that are not sent."""
        for number, part in enumerate(self.parts, 1):
            last = f", with card, manifest and replaced files; {len(part.deletions):,} files deleted"
            size = f"{len(part.items):,} files, {part.bytes:,} bytes"
            yield f"commit {number} of {len(self.parts)}: {size}{last if number == len(self.parts) else ''}"
        unchanged_bytes = sum(item.size for item in self.unchanged)
        yield f"already in the repo, not sent: {len(self.unchanged):,} files, {unchanged_bytes:,} bytes"


def plan_publication(publication: Publication, repo: HubRepo, *, replaces: bool = False) -> Plan:
    """Plan the commits that are missing.

    `replaces` allows replacing another publication, or an edited card.

    Raises:
        UsageError: The repo has another publication or card, or its card was edited.
    """
    if repo.settings() is None:
        return Plan(None, _parts([*publication.items.values()], {}, []), [])
    head = repo.hub.resolve(repo.name)
    stored = repo.files(head)
    changed, unchanged = list[Item](), list[Item]()
    for item in publication.items.values():
        (unchanged if item.is_stored(stored.get(item.path)) else changed).append(item)
    previous, manifest = _manifest_at(repo, stored, head), publication.artifact.manifest
    obsolete = (
        [file.path for file in previous.storage if file.path in stored.keys() - publication.items.keys()]
        if previous
        else []
    )
    if not changed and not obsolete:
        return Plan(head, [], unchanged)
    is_bare = not {CARD, FILE_NAME} & stored.keys()
    if not (replaces or is_bare or (previous is not None and _subject(previous) == _subject(manifest))):
        content = "a card of another origin" if previous is None else f"{previous.kind} {previous.name}"
        what = f"the repo contains {content}, which {manifest.kind} {manifest.name} would replace"
        raise UsageError(what, repo.name, "choose another name, or use --replace")
    if previous is not None and not replaces and is_edited(read_card(repo.hub, repo.name, head)):
        raise UsageError(f"{CARD} was edited after its publication", repo.name, "use --replace to overwrite the edit")
    return Plan(head, _parts(changed, stored, obsolete), unchanged)


def _subject(manifest: Manifest) -> tuple[str, str]:
    """Return kind and partition of an artifact, without the recipe name."""
    return manifest.kind, manifest.name.partition("/")[2]


def publish(
    publication: Publication, repo: HubRepo, *, private: bool = True, replaces: bool = False
) -> tuple[str, Plan]:
    """Publish to a repo, delete earlier files, and load the result.

    A missing repo is created, by default private. `replaces` allows replacing another publication, or an edited card.
    The same call resumes from the last commit, which is complete.

    Returns:
        The commit of the publication, and the plan before the first commit.

    Raises:
        InputError: The hub refuses, a file differs from its manifest, or `datasets` cannot load the result.
    """
    with repo.limits():
        repo.check_token()
        if (settings := repo.settings()) is None:
            repo.create(private=private)
        if publication.gate is not None and (settings or {}).get("gated") not in (
            publication.gate,
            "manual",
        ):  # "manual" is stricter
            repo.gate(publication.gate)
        plan = planned = plan_publication(publication, repo, replaces=replaces)
        title, attempts = f"{publication.artifact.manifest.kind} {publication.artifact.manifest.name}", 0
        while plan.parts:
            [part, *rest] = plan.parts
            attempts += 1
            if attempts > len(planned.parts) + _MAX_MOVES:
                what = f"after {attempts - 1} attempts to commit, {len(part.items):,} files are missing or differ"
                raise RetryableError(what, repo.name, "publish again when no other process commits to it")
            verb = "Files of" if rest else "Publish"
            repo.commit(str(plan.parent), f"{verb} {title}", part.items, part.deletions)
            plan = plan_publication(publication, repo, replaces=replaces)
            logger.info("%s: sent %s bytes, %d commits remaining", repo.name, f"{part.bytes:,}", len(plan.parts))
        head = str(plan.parent)
        if publication.configs:
            load_back(repo.name, head, repo.hub.client().address, repo.hub.token, publication.configs)
        return head, planned


def publish_sealed(
    staging: StagingDir, artifact: Artifact, hub: HubFiles | None, recipe: PublishRecipe, *, replaces: bool
) -> BuildResult:
    """Publish an artifact and record its repo and row counts in `publication.json`.

    A `hub` of None sends nothing, as in a rebuild.

    Raises:
        UsageError: HF_TOKEN is not set, or from `prepare_publication`, `plan_publication`.
        InputError: From `prepare_publication`, `publish`.
    """
    sent: dict[str, Any] = {}
    if hub is None:
        splits, _ = card_splits([artifact])
    else:
        repo = HubRepo.open(recipe.repo, hub, hf_token(os.environ))
        publication = prepare_publication(artifact, repo, allow_unknown=recipe.allow_unknown_licences)
        for line in publication.terms():
            logger.info("%s: %s", repo.name, line)
        splits = [*publication.splits]
        commit, plan = publish(publication, repo, private=recipe.private, replaces=replaces)
        sent = {"published": {"url": repo.url, "commit": commit, "bytes_sent": plan.bytes}}
    rows = [{"config": split.config, "split": split.split, "rows": split.rows} for split in splits]
    content = {"repo": recipe.repo, "digest": artifact.manifest.digest, "rows": rows}
    file = write_text(staging, PUBLICATION, json.dumps(content, indent=1, sort_keys=True) + "\n")
    return BuildResult([file], {"splits": len(rows), "rows": sum(split.rows for split in splits)}, {}, provenance=sent)


def preview_publication(artifact: Artifact) -> list[dict[str, str]]:
    """Return the rows of each split by config."""
    rows = json.loads(artifact.path(PUBLICATION).read_bytes())["rows"]
    return [{"config": row["config"], "split": row["split"], "rows": f"{row['rows']:,}"} for row in rows]


def _manifest_at(repo: HubRepo, stored: Mapping[str, HubFile], commit: str) -> Manifest | None:
    """Return the manifest of the previous publication; None if there is none."""
    if FILE_NAME not in stored:
        return None
    local = repo.hub.fetch(repo.name, commit, stored[FILE_NAME]).local
    with suppress(InputError):  # a file that another program wrote
        return Manifest.from_bytes(local.read_bytes(), local)
    return None


def _parts(changed: Sequence[Item], stored: Mapping[str, HubFile], obsolete: Sequence[str]) -> list[Part]:
    """Divide changes into commits: batches of new files, then the rest in one commit."""
    at_last = {*stored, CARD, FILE_NAME}
    new = [item for item in changed if item.path not in at_last]
    last = [item for item in changed if item.path in at_last]
    return [*(Part(new[first : first + _FILES]) for first in range(0, len(new), _FILES)), Part(last, obsolete)]
