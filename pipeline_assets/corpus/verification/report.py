"""A verification as JSON, for programs and for the record: what was checked, what was not, what was found."""

import datetime
from collections.abc import Iterable, Mapping
from typing import Any

from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.rehash import HashTask
from pipeline_assets.corpus.verification.result import Proven, Verification

SCHEMA = "corpusmill/verification/1"


def as_json(found: Verification, program: Mapping[str, Any]) -> dict[str, Any]:
    """
    Args:
        program: versions and host, as provenance has them.
    """
    scope = found.scope
    return {
        "schema": SCHEMA,
        "verdict": found.verdict,
        "folder": str(found.folder),
        "digest": found.chain.artifacts[0].manifest.digest,
        "scope": {
            "upstream": scope.root is not None,
            "content": scope.content or scope.sample is not None,
            "data": None if scope.root is None else str(scope.root),
            "sample": None if scope.sample is None else str(scope.sample),
            "seed": None if scope.sample is None else scope.sample.seed,
            "threads": scope.threads,
        },
        "findings": [
            {"path": str(finding.where), "what": finding.what, "artifact": finding.artifact}
            for finding in found.findings
        ],
        "files": len(found.tasks),
        "files_as_sealed": sum(found.state_of(task) in ("as_sealed", "read_before") for task in found.tasks),
        "bytes": sum(task.bytes for task in found.tasks),
        "bytes_as_sealed": found.bytes_held,
        "percent_of_bytes_read": round(found.percent_read, 3),
        "read_before": _read_before(found),
        "contents": {
            "worked_out": len(found.contents),
            "as_the_digest_names": sum(result.complaint is None for result in found.contents),
            "not_worked_out": found.unread_contents,
        },
        "artifacts": [_artifact(artifact, found) for artifact in found.chain.artifacts],
        "hub": _hub(found),
        "sources": _sources(found),
        "documents": [_documents(proven) for proven in found.proofs],
        "started_at_utc": found.started_at.isoformat(timespec="seconds"),
        "seconds": round(found.seconds, 3),
        "mb_per_second": round(found.bytes_read / 1e6 / max(found.reading_seconds, 1e-9), 1),
        "program": dict(program),
    }


def _read_before(found: Verification) -> dict[str, Any]:
    """What a former process had found before it was interrupted."""
    files = [result for result in found.results if result.found_at is not None]
    return {
        "files": len(files),
        "bytes": found.bytes_before,
        "documents": found.documents_before,
        "since_utc": None if found.known_since is None else _utc(found.known_since),
    }


def _artifact(artifact: Artifact, found: Verification) -> dict[str, Any]:
    manifest = artifact.manifest
    return {
        "kind": manifest.kind,
        "name": manifest.name,
        "digest": manifest.digest,
        "folder": str(artifact.folder),
        "findings": sum(finding.artifact == manifest.digest for finding in found.findings),
        "files": list(_files((task for task in found.tasks if task.owner == manifest.digest), found)),
    }


def _hub(found: Verification) -> dict[str, Any] | None:
    hub = found.hub
    if hub is None:
        return None
    return {
        "listed": hub.listed,
        "whole": hub.whole,
        "in_part": hub.in_part,
        "not_here": hub.not_here,
        "not_looked_for": hub.not_looked_for,
        "files": list(_files(hub.tasks, found)),
    }


def _sources(found: Verification) -> dict[str, Any] | None:
    sources = found.sources
    if sources is None:
        return None
    return {
        "listed": sources.listed,
        "changed": [str(finding.where) for finding in sources.findings],
        "not_here": sources.not_here,
        "files": list(_files(sources.tasks, found)),
    }


def _files(tasks: Iterable[HashTask], found: Verification) -> Iterable[dict[str, Any]]:
    for task in tasks:
        yield {"path": task.name, "bytes": task.bytes, "state": found.state_of(task)}


def _documents(proven: Proven) -> dict[str, Any]:
    manifest = proven.artifact.manifest
    return {
        "kind": manifest.kind,
        "name": manifest.name,
        "digest": manifest.digest,
        "documents": manifest.identity.counts["documents"],
        "how": proven.how,
        "proven": proven.documents,
        "not_here": proven.not_here,
        "shards": proven.shards_in_all,
        "shards_drawn": [shard.shard for shard in proven.shards],
        "why_not": proven.why_not,
    }


def _utc(seconds: int) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")
