"""Checks of artifacts after a build."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

from pipeline_assets.build.target import Check, CheckFunction, Target
from pipeline_assets.spine.artifact import (
    Artifact,
    CheckResult,
    Damage,
    Verdict,
    open_artifact,
    verify,
    write_check_results,
)
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.spine.replacement import forbid_replacement


def artifact_check(function: Callable[[Artifact], Verdict], *, is_blocking: bool = True) -> Check:
    """Make a check from a function that takes only an artifact; see `context_check`."""
    with_context = functools.wraps(function)(lambda artifact, target, root: function(artifact))
    return context_check(with_context, is_blocking=is_blocking)


def context_check(function: CheckFunction, *, is_blocking: bool = True) -> Check:
    """Make a check; its `question` is the first paragraph of `function.__doc__`."""
    return Check(function.__name__, (function.__doc__ or "").split("\n\n")[0].strip(), function, is_blocking)


def files_match_manifest(artifact: Artifact, target: Target, root: Path) -> Verdict:
    """Check that files match their sealed size and sha256, and no other file exists."""
    labels = dict(_label_names(target))
    with forbid_replacement(artifact.folder):
        findings = list(verify(artifact, lambda kind: labels.get(kind, ())))
    damage = [item for item in findings if isinstance(item, Damage)]
    if damage:
        more = f", and {len(damage) - 1} more" if len(damage) > 1 else ""
        because = f"{damage[0].path}: {damage[0].what}{more}: remove the folder, and run its recipe again"
        return Verdict(False, because, {"damaged": len(damage)})
    size = sum(item.bytes for item in findings if not isinstance(item, Damage))
    message = f"{pluralize(len(findings), 'file')}, {size:,} bytes, as sealed"
    return Verdict(True, message, {"files": len(findings), "bytes": size})


def _label_names(target: Target) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield (kind name, `Kind.labels`) for a target's members and for the target."""
    for member in target.members:
        yield from _label_names(member)
    yield target.kind.name, target.kind.labels


def ledger_adds_up(artifact: Artifact) -> Verdict:
    """Check that rows in = out + merged + dropped + rejected.

    The reject file must have as many rows as the ledger counts as rejected.
    """
    ledger = artifact.manifest.identity.ledger
    reject_rows = sum(file.rows for file in artifact.manifest.identity.files if file.path.startswith("rejects"))
    dropped, rejected = ledger.total_dropped, ledger.total_rejected
    is_valid = ledger.adds_up and rejected == reject_rows
    message = str(ledger) if is_valid else f"mismatch: {ledger}; {pluralize(reject_rows, 'row')} in the reject file"
    numbers = {"in": ledger.rows_in, "out": ledger.out, "dropped": dropped, "rejected": rejected}
    return Verdict(is_valid, message, numbers)


FILES_CHECK = context_check(files_match_manifest)
LEDGER_CHECK = artifact_check(ledger_adds_up)


def run_checks(target: Target, root: Path) -> list[CheckResult]:
    """Run the checks of a sealed artifact, and store their results next to it.

    If the first check fails, the others are skipped. If the artifact cannot be opened, return only a failed file check.
    No result is stored if the artifact cannot be opened, if a verdict is not final, or if a non-blocking check cannot
    read a file; all checks then run again later.
    """
    try:
        artifact = open_artifact(root / target.folder)
    except InputError as damaged:
        return [CheckResult(FILES_CHECK.name, False, FILES_CHECK.is_blocking, str(damaged))]
    results: list[CheckResult] = []
    is_final = True
    for check in target.kind.checks:
        if results and not results[0].passed:
            break
        try:
            verdict = check.evaluate(artifact, target, root)
        except InputError as error:  # an unreadable file fails the check, not the run
            verdict = Verdict(False, str(error), is_final=check.is_blocking)
        is_final &= verdict.is_final
        results.append(CheckResult.from_verdict(check.name, check.is_blocking, verdict))
    if is_final:
        write_check_results(artifact.folder, artifact.manifest.digest, results)
    return results
