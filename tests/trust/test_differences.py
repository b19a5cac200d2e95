"""A rebuild compares its files and the sealed files with the manifest."""

import dataclasses
from collections.abc import Callable

import msgspec
import numpy as np
import pytest
import zstandard
from forgery import flip, forge, reseal
from healing_set import HealingSet

from pipeline_assets.build.rows.comparison import compare
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.program_versions import current_versions
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.trust.differences import StepOutcome, changed_versions
from pipeline_assets.trust.rebuild import rebuild

Rebuilder = Callable[[str], StepOutcome]


@pytest.fixture
def rebuilder(built: HealingSet) -> Callable[[str], StepOutcome]:
    """Return a function that rebuilds one artifact of the set."""
    return lambda name: rebuild(built.folder(name), built.run, SYSTEMS.kinds).outcomes[-1]


@pytest.mark.parametrize(
    ("is_forged", "is_damaged", "verdict"),
    [(True, False, "different"), (False, True, "damaged"), (True, True, "different")],
    ids=["another token", "damage only", "both"],
)
def test_another_token_is_a_difference_and_a_damaged_sealed_file_alone_is_not(
    built: HealingSet, rebuilder: Rebuilder, is_forged: bool, is_damaged: bool, verdict: str
) -> None:
    path, digest = built.folder("train") / "tokens.bin", built.manifest("train").digest
    if is_forged:
        ids = np.frombuffer(path.read_bytes(), np.int32).copy()
        ids[1] = 12345
        forge(path.parent, path.name, ids.tobytes())
    if is_damaged:
        flip(path)

    outcome = rebuilder("train")

    [finding] = outcome.file_findings
    assert (outcome.verdict, finding.path, finding.matches_manifest) == (verdict, "tokens.bin", not is_forged)
    assert outcome.rebuilt_manifest is not None and outcome.rebuilt_manifest.digest == digest
    assert str(finding.damage).startswith("sha256 is ") if is_damaged else finding.damage is None
    assert is_forged or outcome.other_differences == []


def test_diff_names_the_document_of_a_changed_text(built: HealingSet, rebuilder: Rebuilder) -> None:
    path = built.folder("snapshot") / "shards" / "00001.jsonl.zst"
    lines = zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read().splitlines()
    document = msgspec.json.decode(lines[4])
    lines[4] = msgspec.json.encode(document | {"text": document["text"].replace("naïve", "naive")})
    forge(built.folder("snapshot"), "shards/00001.jsonl.zst", zstandard.compress(b"\n".join(lines) + b"\n"))

    result = rebuild(built.folder("snapshot"), built.run, SYSTEMS.kinds)

    [outcome] = result.outcomes
    [changes] = compare(
        open_artifact(built.folder("snapshot")), open_artifact(result.rebuilt_folder(outcome)), SYSTEMS.kinds
    ).document_changes
    assert [finding.path for finding in outcome.file_findings] == ["shards/00001.jsonl.zst"]
    assert (changes.changed.documents, changes.changed.examples) == (1, [document["doc_id"]])
    assert (changes.only_in_a.documents, changes.only_in_b.documents) == (0, 0)


def test_a_file_that_only_one_side_has_is_a_difference(built: HealingSet, rebuilder: Rebuilder) -> None:
    manifest = built.manifest("valid")
    reseal(built.folder("valid"), manifest, files=manifest.identity.files[:-1])

    [finding] = rebuilder("valid").file_findings

    assert (finding.path, finding.sealed) == ("rejects.jsonl.zst", None)
    assert finding.rebuilt == manifest.identity.files[-1]


def test_differences_outside_of_files_are_named(built: HealingSet, rebuilder: Rebuilder) -> None:
    manifest = built.manifest("snapshot")
    [first, *rest] = manifest.identity.inputs
    counts = {**manifest.identity.counts, "documents": 99}
    decisions = {**manifest.identity.decisions, "doc_id": "by chance"}
    inputs = [{**first, "digest": "sha256:0"}, *rest]
    reseal(built.folder("snapshot"), manifest, counts=counts, decisions=decisions, inputs=inputs)

    outcome = rebuilder("snapshot")

    assert (outcome.verdict, outcome.file_findings) == ("different", [])
    assert outcome.other_differences == [
        "counts.documents: 99 → 38",
        "decisions.doc_id: by chance → column id",
        f"inputs.{first['name']}.digest: sha256:0 → {first['digest']}",
    ]


def test_changed_versions_are_named(built: HealingSet) -> None:
    provenance = built.manifest("train").provenance
    libraries = {name: version for name, version in provenance["libraries"].items() if name != "tiktoken"}

    assert changed_versions(provenance, current_versions()) == []
    older = {**provenance, "python": "3.1", "libraries": {**libraries, "zstandard": "0.1"}}
    diffs = changed_versions(older, current_versions())

    assert [(row.name, row.sealed) for row in diffs] == [("python", "3.1"), ("tiktoken", None), ("zstandard", "0.1")]
    assert diffs[2].current == current_versions()["zstandard"]
    assert {row.name for row in changed_versions({}, current_versions())} >= {"program", "python", "platform", "numpy"}


def test_provenance_does_not_affect_the_verdict(built: HealingSet, rebuilder: Rebuilder) -> None:
    manifest = built.manifest("selection")
    reseal(built.folder("selection"), dataclasses.replace(manifest, provenance={"builder": 1}))

    outcome = rebuilder("selection")

    assert outcome.verdict == "identical"
    assert [version.sealed for version in outcome.version_changes] == [None] * len(current_versions())
