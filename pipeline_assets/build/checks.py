"""Checks: what must hold of every artifact of a kind."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline_assets.build.target import Target
from pipeline_assets.spine.artifact import Artifact, Damage, Verdict, verify
from pipeline_assets.spine.pinned_folder import forbid_replacement

CheckFunction = Callable[[Artifact, Target, Path], Verdict]


@dataclass(frozen=True)
class Check:
    """A question that is asked of every artifact of a kind.

    Attributes:
        question: what must hold, in a sentence.
        evaluate: of the artifact, its target and the data root.
        is_blocking: whether a failure holds the artifact back; else it is a warning.
    """

    name: str
    question: str
    evaluate: CheckFunction
    is_blocking: bool = True


def artifact_check(judge: Callable[[Artifact], Verdict], *, is_blocking: bool = True) -> Check:
    """The question that a judge's name and docstring say, of an artifact alone."""
    return context_check(
        functools.wraps(judge)(lambda artifact, target, root: judge(artifact)), is_blocking=is_blocking
    )


def context_check(judge: CheckFunction, *, is_blocking: bool = True) -> Check:
    """Likewise, of an artifact beside what it was made from, or is compared to."""
    return Check(judge.__name__, (judge.__doc__ or "").split("\n\n")[0].strip(), judge, is_blocking)


def files_match_manifest(artifact: Artifact, target: Target, root: Path) -> Verdict:
    """Every file is there, byte for byte as it was sealed, and there are no others."""
    labels = dict(_labels(target))
    with forbid_replacement(artifact.folder):
        findings = list(verify(artifact.folder, lambda kind: labels.get(kind, ())))
    damage = [item for item in findings if isinstance(item, Damage)]
    if damage:
        more = f", and {len(damage) - 1} more" if len(damage) > 1 else ""
        return Verdict(False, f"{damage[0].path}: {damage[0].what}{more}", {"damaged": len(damage)})
    size = sum(item.bytes for item in findings if not isinstance(item, Damage))
    return Verdict(True, f"{len(findings)} files, {size:,} bytes, as sealed", {"files": len(findings), "bytes": size})


def _labels(target: Target) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the label names of a target's kind and of all kinds upstream, which members belong to."""
    for upstream in target.upstream:
        yield from _labels(upstream)
    yield target.kind.name, target.kind.labels


def ledger_adds_up(artifact: Artifact) -> Verdict:
    """Rows in = rows out + merged + dropped + rejected, each with its reason; rejects are in the file of rejects."""
    ledger = artifact.manifest.identity.ledger
    kept_aside = sum(file.rows for file in artifact.manifest.identity.files if file.path.startswith("rejects"))
    numbers = {
        "in": ledger.rows_in,
        "out": ledger.out,
        "dropped": ledger.total_dropped,
        "rejected": ledger.total_rejected,
    }
    holds = ledger.adds_up and ledger.total_rejected == kept_aside
    words = str(ledger) if holds else f"not so: {ledger}; {kept_aside:,} rows in the file of rejects"
    return Verdict(holds, words, numbers)


FILES = context_check(files_match_manifest)
LEDGER = artifact_check(ledger_adds_up)
