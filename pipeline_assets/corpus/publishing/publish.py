"""Publishing to a dataset repo: commits that leave it whole, whatever ends the run.

New files are committed first, at most 100 at a time: no card names them yet. The last commit brings card and manifest,
puts changed files in the place of old ones, and takes away what the manifest there had and this one hasn't. Files that
are there aren't sent, so the same command goes on where a run was cut off. Every commit names its parent, and its
message the run, a digest of what is published: a head that no run made stops it.
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
from pipeline_assets.corpus.publishing.hub_repo import HubRepo, Item, taken_over, token_of
from pipeline_assets.corpus.publishing.load_back import load_back
from pipeline_assets.corpus.publishing.publication import Publication, publication_of
from pipeline_assets.corpus.readers.hub_configs import CARD
from pipeline_assets.corpus.readers.hub_files import HubFile, HubFiles
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import InputError, UsageError
from pipeline_assets.corpus.spine.manifest import FILE_NAME, Manifest, sha256_of
from pipeline_assets.corpus.spine.staging import StagingDir
from pipeline_assets.corpus.spine.target import BuildResult

logger = logging.getLogger("corpusmill")
_FILES = 100  # of a commit (the hub's documentation, "Repository limitations"); their bytes are sent before it
_RUN = "corpusmill-run: "
PUBLICATION = "publication.json"
_BY_THE_HUB = frozenset({".gitattributes"})  # in every repo from the start


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

    def lines(self) -> Iterator[str]:
        """For people: a line a commit."""
        for number, part in enumerate(self.parts, 1):
            last = f"; card, manifest, what is replaced; {len(part.deletions):,} files go"
            size = f"{len(part.items):,} files, {part.bytes:,} bytes"
            yield f"commit {number} of {len(self.parts)}: {size}{last if number == len(self.parts) else ''}"
        there = sum(item.size for item in self.unchanged)
        yield f"not sent, as they are there: {len(self.unchanged):,} files, {there:,} bytes"


@dataclass(frozen=True)
class Published:
    """What was done.

    Attributes:
        commit: the repo's head, which holds what was published.
        commits: how many this run made.
        items: that these brought.
    """

    commit: str
    commits: int
    items: Sequence[Item]

    @property
    def bytes(self) -> int:
        """Of them."""
        return sum(item.size for item in self.items)


def plan_publication(made: Publication, repo: HubRepo, *, onto: str | None = None, replaces: bool = False) -> Plan:
    """
    Args:
        onto: somebody else's commit, the head, to go on from.
        replaces: whether what was published of something else may give way.
    Raises:
        UsageError: somebody else's commit is the head, and something is to be sent; `onto` isn't the head; what is
            there was published of something else.
    """
    if repo.settings() is None:
        if onto is not None:
            raise UsageError("there is no such repo yet", f"--onto {onto}", "leave it out")
        return Plan(None, _parts([*made.items.values()], {}, []), [])
    head = repo.head()
    if onto not in (None, head.id):
        what = f"the head of {repo.name} is {head.id}"
        raise UsageError(what, f"--onto {onto}", "give that, if you looked at it")
    there = repo.files(head.id)
    changed, unchanged = list[Item](), list[Item]()
    for item in made.items.values():
        (unchanged if item.is_there(there.get(item.path)) else changed).append(item)
    before = _manifest_at(repo, there, head.id)
    stored = [] if before is None else [file.path for file in before.storage]
    gone = [path for path in stored if path not in made.items and path in there]
    if not changed and not gone:
        return Plan(head.id, [], unchanged)
    if onto is None and _RUN not in head.message and not there.keys() <= _BY_THE_HUB:
        raise taken_over(repo, head, run_of(made, repo))
    if before is not None and not replaces and _subject(before) != _subject(made.artifact.manifest):
        what = f"it holds {before.kind} {before.name}, and {made.artifact.manifest.kind} {made.artifact.manifest.name}"
        raise UsageError(f"{what} would take its place", repo.name, "give another name, or --replace")
    return Plan(head.id, _parts(changed, there, gone), unchanged)


def _subject(manifest: Manifest) -> tuple[str, str]:
    """What an artifact is of, whatever recipe made it: its kind and its partition."""
    return manifest.kind, manifest.name.partition("/")[2]


def publish(
    made: Publication, repo: HubRepo, *, private: bool = True, onto: str | None = None, replaces: bool = False
) -> Published:
    """The repo holds what is to be published, and nothing of an earlier one that isn't in it; read back when it does.

    Args:
        private: of a repo that isn't there yet.
        onto, replaces: as of `plan_publication`.
    Raises:
        InputError: the hub refuses; somebody else commits meanwhile; a file isn't as it was sealed. What was committed
            is whole; the same call goes on from it.
    """
    with repo.limits():
        repo.check_token()
        if (settings := repo.settings()) is None:
            repo.create(private=private)
        if made.gate is not None and (settings or {}).get("gated") not in (made.gate, "manual"):  # which is stricter
            repo.gate(made.gate)
        plan, run = plan_publication(made, repo, onto=onto, replaces=replaces), run_of(made, repo)
        head, commits, manifest = str(plan.parent), len(plan.parts), made.artifact.manifest
        for number, part in enumerate(plan.parts, 1):
            title = f"{'Publish' if number == commits else 'Files of'} {manifest.kind} {manifest.name}"
            head = repo.commit(head, title, f"{_RUN}{run}", f"part {number} of {commits}", part.items, part.deletions)
            logger.info("%s: commit %d of %d, %s, %s bytes", repo.name, number, commits, head, f"{part.bytes:,}")
        _read_back(made, repo, head)
        return Published(head, commits, [item for part in plan.parts for item in part.items])


def publish_sealed(
    building: StagingDir, artifact: Artifact, hub: HubFiles | None, asked: PublishRecipe, *, replaces: bool
) -> BuildResult:
    """`publication.json`: which repo holds a sealed folder, and how many rows of each split by config.

    Args:
        hub: None where nothing is sent, as in a rebuild.
    Raises:
        UsageError: HF_TOKEN isn't set.
        InputError: from `publication_of`, `publish`.
    """
    sent: dict[str, Any] = {}
    if hub is None:
        splits, _ = card_splits([artifact])
    else:
        repo = HubRepo.of(asked.repo, hub, token_of(os.environ))
        made = publication_of(artifact, repo, allow_unknown=asked.allow_unknown_licences)
        for line in made.terms():
            logger.info("%s: %s", repo.name, line)
        splits = [*made.splits]
        done = publish(made, repo, private=asked.private, replaces=replaces)
        sent = {"published": {"url": repo.url, "commit": done.commit, "bytes_sent": done.bytes}}
    rows = [{"config": split.config, "split": split.split, "rows": split.rows} for split in splits]
    content = {"repo": asked.repo, "digest": artifact.manifest.digest, "rows": rows}
    file = write_text(building, PUBLICATION, json.dumps(content, indent=1, sort_keys=True) + "\n")
    return BuildResult([file], {"splits": len(rows), "rows": sum(split.rows for split in splits)}, {}, provenance=sent)


def preview_publication(artifact: Artifact) -> list[dict[str, str]]:
    """The rows of each split by config."""
    said = json.loads(artifact.path(PUBLICATION).read_bytes())["rows"]
    return [{"config": one["config"], "split": one["split"], "rows": f"{one['rows']:,}"} for one in said]


def run_of(made: Publication, repo: HubRepo) -> str:
    """The digest of what is published where."""
    return sha256_of([repo.name, *([item.path, item.sha256] for item in made.items.values())])


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


def _read_back(made: Publication, repo: HubRepo, commit: str) -> None:
    """
    Raises:
        InputError: the hub has other files than were published, or `datasets` can't load them.
    """
    there = repo.files(commit)
    wrong = [item.path for item in made.items.values() if not item.is_there(there.get(item.path))]
    if wrong:
        what = f"the hub has other bytes of {len(wrong):,} files, {wrong[0]} first"
        raise InputError(what, f"{repo.name}@{commit}", "publish again; if it persists, ask who runs the hub")
    if made.configs:
        names = made.split_names
        configs = {config: [names[one.split] for one in splits] for config, splits in made.configs.items()}
        load_back(repo.name, commit, repo.hub.client().address, repo.hub.token, configs)
