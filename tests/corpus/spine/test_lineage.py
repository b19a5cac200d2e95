"""Sealed artifacts are found by digest wherever below the data root they lie, and upstream through their inputs."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from word_artifact import build_words

from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.building import seal_in_place
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.lineage import kept_manifests, locate, root_of, sealed_manifests, upstream
from pipeline_assets.corpus.spine.manifest import Identity, StageVersion


@pytest.fixture
def words(tmp_path: Path) -> Artifact:
    """An artifact of stage `words` in the area `corpora`."""
    return build_words(tmp_path / "corpora", "english")


def made_from(source: Artifact, folder: Path, stage: str) -> Artifact:
    folder.mkdir(parents=True)
    inputs = [{"name": source.manifest.name, "digest": source.manifest.digest}]
    identity = Identity(StageVersion(stage, 1), {}, inputs, None, {}, {}, [])
    return seal_in_place(folder, f"words/{stage}", stage, identity, {})


def test_an_artifact_is_found_by_its_digest_wherever_it_lies(words: Artifact, tmp_path: Path) -> None:
    moved = tmp_path / "megatron" / "elsewhere"
    moved.parent.mkdir()
    words.folder.rename(moved)

    assert locate(tmp_path, words.manifest.digest).folder == moved
    assert list(sealed_manifests(tmp_path)[0]) == [moved]


@pytest.mark.parametrize("ending", ["old.1", "building.1"])
def test_a_folder_that_is_on_its_way_in_or_out_is_not_found(words: Artifact, tmp_path: Path, ending: str) -> None:
    words.folder.rename(words.folder.with_name(f".words.{ending}"))

    assert sealed_manifests(tmp_path) == ({}, [])
    with pytest.raises(InputError) as refused:
        locate(tmp_path, words.manifest.digest)
    assert str(refused.value) == (
        f"{tmp_path}: no artifact with digest {words.manifest.digest} is below "
        "corpora, selections, megatron, stage_a, nemotron; "
        "give the data root that has it with --data, or build it again from its recipe"
    )


def test_a_manifest_that_cannot_be_read_is_mentioned_where_nothing_is_found(words: Artifact, tmp_path: Path) -> None:
    manifest = words.folder / "manifest.json"
    manifest.chmod(0o644)
    manifest.write_text("{")

    with pytest.raises(InputError) as refused:
        locate(tmp_path, words.manifest.digest)

    assert f"(1 can't be read, the first is {manifest})" in refused.value.what


def test_upstream_is_followed_through_inputs_to_the_stage(words: Artifact, tmp_path: Path) -> None:
    chosen = made_from(words, tmp_path / "selections" / "chosen", "choose")
    joined = made_from(chosen, tmp_path / "megatron" / "joined", "join")

    assert upstream(tmp_path, joined, "words").folder == words.folder
    assert upstream(tmp_path, joined, "choose").folder == chosen.folder
    assert upstream(tmp_path, joined, "join") is joined
    with pytest.raises(InputError, match="it is words/parts, made from nothing, and not from pages"):
        upstream(tmp_path, joined, "pages")


@pytest.mark.parametrize("place", ["megatron/pages/train", "corpora/pages/0f3a", "selections/pages"])
def test_the_data_root_of_an_artifact_is_the_folder_above_its_area(place: str, tmp_path: Path) -> None:
    assert root_of(tmp_path / place) == tmp_path.resolve()
    assert root_of(tmp_path / "corpora" / "data" / place) == (tmp_path / "corpora" / "data").resolve()


def test_the_data_root_is_told_as_the_folder_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data" / "megatron" / "pages" / "train").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)

    assert root_of(Path("data/megatron/pages/train")) == Path("data")
    monkeypatch.chdir(tmp_path / "data" / "megatron" / "pages")
    assert root_of(Path("train")) == tmp_path.resolve() / "data"


def test_what_is_below_no_area_has_no_data_root(tmp_path: Path) -> None:
    assert root_of(tmp_path / "train") is None


def test_copies_of_manifests_are_read_where_builds_keep_them(words: Artifact, tmp_path: Path) -> None:
    copies = tmp_path / "manifests"
    assert kept_manifests(tmp_path) == []

    copies.mkdir()
    (copies / "words.json").write_bytes((words.folder / "manifest.json").read_bytes())
    (copies / "torn.json").write_text("{")

    assert kept_manifests(tmp_path) == [words.manifest]


def test_of_several_artifacts_of_one_digest_the_one_of_the_name_is_taken(words: Artifact, tmp_path: Path) -> None:
    other = Artifact(tmp_path / "stage_a" / "other", words.manifest)
    shutil.copytree(words.folder, other.folder)
    manifest = replace(words.manifest, name="other")
    (other.folder / "manifest.json").chmod(0o644)
    (other.folder / "manifest.json").write_bytes(manifest.to_bytes())

    assert other.manifest.digest == words.manifest.digest
    assert locate(tmp_path, other.manifest.digest, "other").folder == other.folder
    assert locate(tmp_path, other.manifest.digest, "nobody").folder == words.folder
