"""Publishing to a dataset repo: each commit leaves the repo whole, so an interrupted run is continued by the next.

New files are committed first, at most 100 at a time: no card names them yet. The last commit has the card, the
manifest, replaced files, and deletions of files that only the earlier manifest lists. Files that the hub has are not
sent. Each commit names its parent; if the head moved, the rest is planned again.
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
_FILES = 100  # of a commit (the hub's documentation, "Repository limitations"); their bytes are sent before it
_MAX_MOVES = 5  # of the head by others, while a run commits
PUBLICATION = "publication.json"


@dataclass(frozen=True)
class Part:
    """One commit that is to be made.

    Attributes:
        deletions: paths that go.
    """

    items: Sequence[Item]
    deletions: Sequence[str] = ()

    @property
    def bytes(self) -> int:
        return sum(item.size for item in self.items)


@dataclass(frozen=True)
class Plan:
    """What publishing will do.

    Attributes:
        parent: the head of the repo; None where there is no repo yet.
        parts: commits in order; none where all is there.
        unchanged: files that are there already.
    """

    parent: str | None
    parts: Sequence[Part]
    unchanged: Sequence[Item]

    @property
    def bytes(self) -> int:
        """Bytes of all commits."""
        return sum(part.bytes for part in self.parts)

    def lines(self) -> Iterator[str]:
        """For people: a line a commit."""
        for number, part in enumerate(self.parts, 1):
            last = f"; card, manifest, what is replaced; {len(part.deletions):,} files go"
            size = f"{len(part.items):,} files, {part.bytes:,} bytes"
            yield f"commit {number} of {len(self.parts)}: {size}{last if number == len(self.parts) else ''}"
        there = sum(item.size for item in self.unchanged)
        yield f"not sent, as they are there: {len(self.unchanged):,} files, {there:,} bytes"


def plan_publication(made: Publication, repo: HubRepo, *, replaces: bool = False) -> Plan:
    """Plan the commits that are missing.

    Args:
        replaces: whether to replace what the repo holds of something else.
    Raises:
        UsageError: the repo has a card or a manifest of something else, or its card was edited.
    """
    if repo.settings() is None:
        return Plan(None, _parts([*made.items.values()], {}, []), [])
    head = repo.hub.resolve(repo.name)
    there = repo.files(head)
    changed, unchanged = list[Item](), list[Item]()
    for item in made.items.values():
        (unchanged if item.is_there(there.get(item.path)) else changed).append(item)
    before, manifest = _manifest_at(repo, there, head), made.artifact.manifest
    gone = [file.path for file in before.storage if file.path in there.keys() - made.items.keys()] if before else []
    if not changed and not gone:
        return Plan(head, [], unchanged)
    is_bare = not {CARD, FILE_NAME} & there.keys()
    if not (replaces or is_bare or (before is not None and _subject(before) == _subject(manifest))):
        held = "a card of another origin" if before is None else f"{before.kind} {before.name}"
        what = f"it holds {held}, and {manifest.kind} {manifest.name} would take its place"
        raise UsageError(what, repo.name, "give another name, or --replace")
    if before is not None and not replaces and is_edited(read_card(repo.hub, repo.name, head)):
        raise UsageError(
            f"its {CARD} was edited since it was published", repo.name, "give --replace, which drops the edit"
        )
    return Plan(head, _parts(changed, there, gone), unchanged)


def _subject(manifest: Manifest) -> tuple[str, str]:
    """Return the kind and the partition of an artifact, whatever recipe made it."""
    return manifest.kind, manifest.name.partition("/")[2]


def publish(made: Publication, repo: HubRepo, *, private: bool = True, replaces: bool = False) -> tuple[str, Plan]:
    """Make the repo hold the publication and nothing of an earlier one, and read it back.

    Args:
        private: of a repo that isn't there yet.
        replaces: as of `plan_publication`.
    Returns:
        The commit that holds the publication, and what was planned before the first commit.
    Raises:
        InputError: the hub refuses, a file isn't as it was sealed, or `datasets` can't load the result. What was
            committed is whole; the same call continues from it.
    """
    with repo.limits():
        repo.check_token()
        if (settings := repo.settings()) is None:
            repo.create(private=private)
        if made.gate is not None and (settings or {}).get("gated") not in (made.gate, "manual"):  # which is stricter
            repo.gate(made.gate)
        plan = planned = plan_publication(made, repo, replaces=replaces)
        title, tries = f"{made.artifact.manifest.kind} {made.artifact.manifest.name}", 0
        while plan.parts:
            [part, *rest] = plan.parts
            tries += 1
            if tries > len(planned.parts) + _MAX_MOVES:
                what = f"after {tries - 1} tries to commit, {len(part.items):,} files are missing or have other bytes"
                raise RetryableError(what, repo.name, "publish again when nobody else commits to it")
            verb = "Files of" if rest else "Publish"
            repo.commit(str(plan.parent), f"{verb} {title}", part.items, part.deletions)
            plan = plan_publication(made, repo, replaces=replaces)
            logger.info("%s: sent %s bytes; commits left: %d", repo.name, f"{part.bytes:,}", len(plan.parts))
        head = str(plan.parent)
        if made.configs:
            load_back(repo.name, head, repo.hub.client().address, repo.hub.token, made.configs)
        return head, planned


def publish_sealed(
    building: StagingDir, artifact: Artifact, hub: HubFiles | None, asked: PublishRecipe, *, replaces: bool
) -> BuildResult:
    """`publication.json`: which repo holds a sealed folder, and how many rows of each split by config.

    Args:
        hub: None where nothing is sent, as in a rebuild.
    Raises:
        UsageError: HF_TOKEN isn't set.
        InputError: from `prepare_publication`, `publish`.
    """
    sent: dict[str, Any] = {}
    if hub is None:
        splits, _ = card_splits([artifact])
    else:
        repo = HubRepo.open(asked.repo, hub, hf_token(os.environ))
        made = prepare_publication(artifact, repo, allow_unknown=asked.allow_unknown_licences)
        for line in made.terms():
            logger.info("%s: %s", repo.name, line)
        splits = [*made.splits]
        commit, plan = publish(made, repo, private=asked.private, replaces=replaces)
        sent = {"published": {"url": repo.url, "commit": commit, "bytes_sent": plan.bytes}}
    rows = [{"config": split.config, "split": split.split, "rows": split.rows} for split in splits]
    content = {"repo": asked.repo, "digest": artifact.manifest.digest, "rows": rows}
    file = write_text(building, PUBLICATION, json.dumps(content, indent=1, sort_keys=True) + "\n")
    return BuildResult([file], {"splits": len(rows), "rows": sum(split.rows for split in splits)}, {}, provenance=sent)


def preview_publication(artifact: Artifact) -> list[dict[str, str]]:
    """The rows of each split by config."""
    said = json.loads(artifact.path(PUBLICATION).read_bytes())["rows"]
    return [{"config": one["config"], "split": one["split"], "rows": f"{one['rows']:,}"} for one in said]


def _manifest_at(repo: HubRepo, there: Mapping[str, HubFile], commit: str) -> Manifest | None:
    """Of what was published before; None where nothing was."""
    if FILE_NAME not in there:
        return None
    local = repo.hub.fetch(repo.name, commit, there[FILE_NAME]).local
    with suppress(InputError):  # somebody's own, none of ours
        return Manifest.from_bytes(local.read_bytes(), local)
    return None


def _parts(changed: Sequence[Item], there: Mapping[str, HubFile], gone: Sequence[str]) -> list[Part]:
    """Return the commits: new files, a few at a time; then all else at once."""
    at_last = {*there, CARD, FILE_NAME}
    new = [item for item in changed if item.path not in at_last]
    last = [item for item in changed if item.path in at_last]
    return [*(Part(new[first : first + _FILES]) for first in range(0, len(new), _FILES)), Part(last, gone)]
