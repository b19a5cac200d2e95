"""Which side is wrong: what came out is held against the manifest, and so is what is sealed."""

import dataclasses
from collections.abc import Callable

import msgspec
import numpy as np
import pytest
import zstandard
from forgery import flip, forge, overwrite, reseal
from healing_set import HealingSet

from pipeline_assets.build.rows.comparison import compare
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.program_versions import current_versions
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.trust.differences import StepOutcome, changed_versions
from pipeline_assets.trust.rebuild import rebuild

Judge = Callable[[str], StepOutcome]


@pytest.fixture
def judged(made: HealingSet) -> Callable[[str], StepOutcome]:
    """The outcome of rebuilding one artifact of the set."""
    return lambda name: rebuild(made.folder(name), made.run, SYSTEMS.kinds).outcomes[-1]


def test_another_token_is_a_difference(made: HealingSet, judged: Judge) -> None:
    path = made.folder("train") / "tokens.bin"
    ids = np.frombuffer(path.read_bytes(), np.int32).copy()
    ids[1] = 12345
    forge(made.folder("train"), "tokens.bin", ids.tobytes())

    outcome = judged("train")

    [finding] = outcome.files
    assert outcome.verdict == "different"
    assert (finding.path, finding.damage, finding.matches_manifest) == ("tokens.bin", None, False)


def test_another_text_is_a_difference_of_which_diff_names_the_document(made: HealingSet, judged: Judge) -> None:
    path = made.folder("snapshot") / "shards" / "00001.jsonl.zst"
    lines = zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read().splitlines()
    document = msgspec.json.decode(lines[4])
    lines[4] = msgspec.json.encode(document | {"text": document["text"].replace("naïve", "naive")})
    forge(made.folder("snapshot"), "shards/00001.jsonl.zst", zstandard.compress(b"\n".join(lines) + b"\n"))

    done = rebuild(made.folder("snapshot"), made.run, SYSTEMS.kinds)

    [outcome] = done.outcomes
    [changes] = compare(
        open_artifact(made.folder("snapshot")), open_artifact(done.rebuilt_folder(outcome)), SYSTEMS.kinds
    ).documents
    assert [finding.path for finding in outcome.files] == ["shards/00001.jsonl.zst"]
    assert (changes.changed.documents, changes.changed.examples) == (1, [document["doc_id"]])
    assert (changes.only_in_a.documents, changes.only_in_b.documents) == (0, 0)


def test_a_file_that_only_one_side_has_is_a_difference(made: HealingSet, judged: Judge) -> None:
    manifest = made.manifest("valid")
    reseal(made.folder("valid"), manifest, files=manifest.identity.files[:-1])

    [finding] = judged("valid").files

    assert (finding.path, finding.sealed) == ("rejects.jsonl.zst", None)
    assert finding.rebuilt == manifest.identity.files[-1]


def test_what_differs_outside_of_files_is_named(made: HealingSet, judged: Judge) -> None:
    manifest = made.manifest("snapshot")
    [first, *rest] = manifest.identity.inputs
    counts = {**manifest.identity.counts, "documents": 99}
    decisions = {**manifest.identity.decisions, "doc_id": "by chance"}
    inputs = [{**first, "digest": "sha256:0"}, *rest]
    reseal(made.folder("snapshot"), manifest, counts=counts, decisions=decisions, inputs=inputs)

    outcome = judged("snapshot")

    assert (outcome.verdict, outcome.files) == ("different", [])
    assert outcome.other_differences == [
        "counts.documents: 99 → 38",
        "decisions.doc_id: by chance → column id",
        f"inputs.{first['name']}.digest: sha256:0 → {first['digest']}",
    ]


def test_a_sealed_file_that_was_damaged_is_the_wrong_one(made: HealingSet, judged: Judge) -> None:
    flip(made.folder("valid") / "documents.parquet")

    outcome = judged("valid")

    [finding] = outcome.files
    assert (outcome.verdict, outcome.other_differences, finding.matches_manifest) == ("damaged", [], True)
    assert outcome.rebuilt_manifest is not None and outcome.rebuilt_manifest.digest == made.manifest("valid").digest
    assert str(finding.damage).startswith("sha256 is ")


def test_a_file_can_be_damaged_and_come_out_different(made: HealingSet, judged: Judge) -> None:
    folder = made.folder("valid")
    forge(folder, "tokens.bin", bytes(len((folder / "tokens.bin").read_bytes())))
    overwrite(folder / "tokens.bin", b"\1" * len((folder / "tokens.bin").read_bytes()))

    outcome = judged("valid")

    [finding] = outcome.files
    assert outcome.verdict == "different"
    assert not finding.matches_manifest and finding.damage is not None


def test_versions_that_are_others_here_are_named(made: HealingSet) -> None:
    provenance = made.manifest("train").provenance
    libraries = {name: version for name, version in provenance["libraries"].items() if name != "tiktoken"}

    assert changed_versions(provenance, current_versions()) == []
    older = {**provenance, "python": "3.1", "libraries": {**libraries, "zstandard": "0.1"}}
    changed = changed_versions(older, current_versions())

    assert [(one.name, one.sealed) for one in changed] == [("python", "3.1"), ("tiktoken", None), ("zstandard", "0.1")]
    assert changed[2].current == current_versions()["zstandard"]
    assert {one.name for one in changed_versions({}, current_versions())} >= {"program", "python", "platform", "numpy"}


def test_the_provenance_of_the_sealed_one_has_no_part_in_the_verdict(made: HealingSet, judged: Judge) -> None:
    manifest = made.manifest("selection")
    reseal(made.folder("selection"), dataclasses.replace(manifest, provenance={"builder": 1}))

    outcome = judged("selection")

    assert outcome.verdict == "identical"
    assert [one.sealed for one in outcome.version_changes] == [None] * len(current_versions())
