"""Artifacts in a data root are found by digest, and upstream by their inputs.

A chain lists members and upstream artifacts once, also if some of them are missing.
"""

import hashlib
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from forgery import overwrite
from refusals import refusal
from word_artifact import build_words

from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.data_root import find_data_root
from pipeline_assets.spine.lineage import Chain, Finding, Lineage, collect_chain
from pipeline_assets.spine.manifest import Identity, Manifest, StageVersion
from pipeline_assets.spine.opening import seal_in_place

HUB_FILE = {"name": f"maker/pages@{'0' * 40}:a.parquet", "digest": "sha256:aa", "bytes": 3}


@pytest.fixture
def words(tmp_path: Path) -> Artifact:
    """Build an artifact of stage `words` in the area `corpora`."""
    return build_words(tmp_path / "corpora", "english")


def seal_from(sources: list[Artifact], folder: Path, stage: str, **keys: str) -> Artifact:
    folder.mkdir(parents=True, exist_ok=True)
    inputs: list[dict[str, Any]] = [{"name": f"words/{stage}", "digest": source.manifest.digest} for source in sources]
    identity = Identity(StageVersion(stage, 1), {"stage": stage, **keys}, inputs, None, {}, {}, [])
    return seal_in_place(folder, Manifest(f"words/{stage}", stage, identity, [], {}))


def test_artifact_is_found_by_its_digest_in_any_folder(words: Artifact, tmp_path: Path) -> None:
    moved = tmp_path / "megatron" / "elsewhere"
    moved.parent.mkdir()
    words.folder.rename(moved)

    assert Lineage(tmp_path).open_by_digest(words.manifest.digest).folder == moved
    assert list(Lineage(tmp_path).manifests) == [moved]


@pytest.mark.parametrize("ending", ["old.1", "building.1"])
def test_staging_and_replaced_folders_are_not_found(words: Artifact, tmp_path: Path, ending: str) -> None:
    words.folder.rename(words.folder.with_name(f".words.{ending}"))

    assert not Lineage(tmp_path).manifests and not Lineage(tmp_path).manifest_errors
    assert refusal(lambda: Lineage(tmp_path).open_by_digest(words.manifest.digest)) == (
        f"{tmp_path}: no artifact with digest {words.manifest.digest} is below "
        "corpora, selections, megatron, stage_a, nemotron, stage2, parallel_text; "
        "use the data root that contains it, with --data or --out-dir, or build it again from its recipe"
    )


def test_unreadable_manifest_is_named_if_no_artifact_is_found(words: Artifact, tmp_path: Path) -> None:
    manifest = words.folder / "manifest.json"
    overwrite(manifest, b"{")

    message = refusal(lambda: Lineage(tmp_path).open_by_digest(words.manifest.digest))

    assert f"(1 cannot be read, the first is {manifest})" in message


def test_downstream_artifacts_are_found_by_digest(words: Artifact, tmp_path: Path) -> None:
    chosen = seal_from([words], tmp_path / "selections" / "chosen", "choose")
    joined = seal_from([chosen], tmp_path / "megatron" / "joined", "join")
    lineage = Lineage(tmp_path)

    assert [folder for folder, _ in lineage.downstream(words.manifest.digest)] == [chosen.folder]
    assert [folder for folder, _ in lineage.downstream(chosen.manifest.digest)] == [joined.folder]
    assert lineage.downstream(joined.manifest.digest) == []
    assert [manifest.identity.stage.name for manifest in lineage.manifests.values()] == ["words", "join", "choose"]


def test_edited_manifest_with_a_forged_seal_is_not_sealed(words: Artifact, tmp_path: Path) -> None:
    path = words.folder / "manifest.json"
    overwrite(path, path.read_bytes().replace(b'"documents": 6', b'"documents": 7'))
    edited = Lineage(tmp_path)

    assert (list(edited.manifests), [str(error.where) for error in edited.manifest_errors.values()]) == (
        [],
        [str(path)],
    )
    unsealed = re.sub(rb'\n "seal": "[^"]*",', b"", path.read_bytes())
    seal = f'\n "seal": "sha256:{hashlib.sha256(unsealed).hexdigest()}",'.encode()
    path.write_bytes(unsealed.replace(b'\n "storage"', seal + b'\n "storage"'))
    forged = Lineage(tmp_path)
    assert list(forged.manifests) == [words.folder]  # a listing checks only the seal
    assert forged.find_by_digest(words.manifest.digest) is None
    assert list(forged.manifest_errors) == [words.folder]


@pytest.mark.parametrize("place", ["megatron/pages/train", "corpora/pages/0f3a", "selections/pages"])
def test_data_root_of_an_artifact_is_the_folder_above_its_area(place: str, tmp_path: Path) -> None:
    assert find_data_root(tmp_path / place) == tmp_path.resolve()
    assert find_data_root(tmp_path / "corpora" / "data" / place) == (tmp_path / "corpora" / "data").resolve()


def test_data_root_is_relative_if_the_folder_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data" / "megatron" / "pages" / "train").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)

    assert find_data_root(Path("data/megatron/pages/train")) == Path("data")
    monkeypatch.chdir(tmp_path / "data" / "megatron" / "pages")
    assert find_data_root(Path("train")) == tmp_path.resolve() / "data"
    assert find_data_root(tmp_path / "train") is None  # below no area


@pytest.mark.parametrize("recipes", ["recipes", "manifests"])
def test_recipe_named_like_an_area_is_not_a_root(recipes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, other = tmp_path / "data", tmp_path / "stage2"
    (root / recipes).mkdir(parents=True)
    (other / recipes).mkdir(parents=True)
    (root / "stage_a/nemotron/filtered").mkdir(parents=True)

    assert find_data_root(root / "stage_a/nemotron/filtered/notes") == root
    assert find_data_root(root / "nemotron/nemotron/deduplicated/chat/train") == root
    assert find_data_root(other / "nemotron/pools/deduplicated/chat/train") == other
    monkeypatch.chdir(root / "stage_a")
    assert find_data_root(Path("nemotron/filtered/notes")) == root


def test_manifest_copy_is_found_in_the_manifests_folder(words: Artifact, tmp_path: Path) -> None:
    copies = tmp_path / "manifests"
    assert Lineage(tmp_path).read_manifest_copy(words.manifest.digest) is None

    copies.mkdir()
    (copies / "words.json").write_bytes((words.folder / "manifest.json").read_bytes())
    (copies / "torn.json").write_text("{")

    assert Lineage(tmp_path).read_manifest_copy(words.manifest.digest) == words.manifest


def test_artifact_is_chosen_by_name_among_equal_digests(words: Artifact, tmp_path: Path) -> None:
    other = Artifact(tmp_path / "stage_a" / "other", words.manifest)
    shutil.copytree(words.folder, other.folder)
    overwrite(other.folder / "manifest.json", replace(words.manifest, name="other").to_bytes())

    assert other.manifest.digest == words.manifest.digest
    assert Lineage(tmp_path).open_by_digest(other.manifest.digest, "other").folder == other.folder
    assert Lineage(tmp_path).open_by_digest(other.manifest.digest, "nobody").folder == words.folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Seal words → choose → train and valid, which are members of a dataset."""
    words = build_words(tmp_path / "corpora", "english")
    chosen = seal_from([words], tmp_path / "selections" / "chosen", "choose")
    dataset = tmp_path / "megatron" / "set"
    members = [seal_from([chosen], dataset / name, "split", split=name) for name in ("train", "valid")]
    inputs = [{"name": "words/choose", "digest": chosen.manifest.digest}]
    for member in members:
        inputs.append({"name": "words/split", "digest": member.manifest.digest, "member": member.folder.name})
    identity = Identity(StageVersion("join", 1), {}, inputs, None, {}, {}, [])
    seal_in_place(dataset, Manifest("words/set", "set", identity, [], {}))
    return tmp_path


def list_folders(chain: Chain, root: Path) -> list[str]:
    return [artifact.folder.relative_to(root).as_posix() for artifact in chain.artifacts]


def test_chain_lists_members_then_upstream_once_each(root: Path) -> None:
    chain, alone = (collect_chain(root / "megatron/set", data_root) for data_root in (root, None))

    own_folders = ["megatron/set", "megatron/set/train", "megatron/set/valid"]
    assert list_folders(chain, root) == [*own_folders, "selections/chosen", "corpora/words"]
    assert (chain.broken_members, chain.missing_inputs, chain.external_inputs) == ([], [], {})
    assert list_folders(alone, root) == own_folders


def test_chain_has_the_inputs_of_its_own_recipe_among_equal_ones(words: Artifact, tmp_path: Path) -> None:
    def seal_named(inputs: list[Artifact], folder: Path, stage: str) -> Artifact:
        sealed = seal_from(inputs, folder, stage)
        overwrite(folder / "manifest.json", replace(sealed.manifest, name=f"{folder.name}/en").to_bytes())
        return sealed

    for recipe in ("alpha", "beta"):
        chosen = seal_named([words], tmp_path / "selections" / recipe, "choose")
        seal_named([chosen], tmp_path / "megatron" / recipe, "pack")

    for recipe in ("alpha", "beta"):
        chain = collect_chain(tmp_path / "megatron" / recipe, tmp_path)

        assert list_folders(chain, tmp_path) == [f"megatron/{recipe}", f"selections/{recipe}", "corpora/words"]


def test_artifact_moved_out_of_the_root_has_its_upstream_in_the_root(root: Path, tmp_path: Path) -> None:
    moved = shutil.move(root / "megatron/set/train", tmp_path / "train")

    chain = collect_chain(moved, root)

    assert list_folders(chain, root)[1:] == ["selections/chosen", "corpora/words"]


def test_external_inputs_are_listed_by_artifact(tmp_path: Path) -> None:
    identity = Identity(StageVersion("read", 1), {}, [HUB_FILE], None, {}, {}, [])
    (tmp_path / "corpora" / "pages").mkdir(parents=True)
    pages = seal_in_place(tmp_path / "corpora" / "pages", Manifest("words/pages", "pages", identity, [], {}))

    assert collect_chain(pages.folder, tmp_path).external_inputs == {pages.manifest.digest: [HUB_FILE]}
    assert collect_chain(pages.folder, None).external_inputs == {}


def test_missing_upstream_is_reported_once_with_its_downstream_artifact(root: Path) -> None:
    digest = collect_chain(root / "selections/chosen", None).artifacts[0].manifest.digest
    train = collect_chain(root / "megatron/set/train", None).artifacts[0].manifest.digest
    shutil.rmtree(root / "selections/chosen")

    chain = collect_chain(root / "megatron/set/train", root)

    what = (
        f"input words/split {digest} not found below "
        f"corpora, selections, megatron, stage_a, nemotron, stage2, parallel_text of {root}"
    )
    assert chain.missing_inputs == [Finding(root / "megatron/set/train", what, train)]
    assert len(collect_chain(root / "megatron/set", root).missing_inputs) == 1


def test_unreadable_manifest_is_reported_only_if_upstream_is_missing(root: Path) -> None:
    other = root / "corpora" / "other" / "manifest.json"
    other.parent.mkdir()
    other.write_text("{")
    broken_before = collect_chain(root / "megatron/set", root).broken_members
    manifest = root / "corpora/words/manifest.json"
    overwrite(manifest, b"{")

    chain = collect_chain(root / "megatron/set", root)

    assert broken_before == []
    assert list_folders(chain, root)[-1] == "selections/chosen"  # other branches continue
    assert [finding.where for finding in chain.missing_inputs] == [root / "selections/chosen"]
    assert [(entry.where, entry.artifact_digest) for entry in chain.broken_members] == [(other, ""), (manifest, "")]
    assert chain.broken_members[0].what.startswith("not a valid manifest: ")


@pytest.mark.parametrize(
    ("spoil", "where"),
    [
        (shutil.rmtree, "valid"),
        (lambda member: (member / "manifest.json").write_text("{}"), "valid/manifest.json"),
    ],
    ids=["gone", "edited"],
)
def test_missing_or_edited_member_is_a_finding(root: Path, spoil: Callable[[Path], object], where: str) -> None:
    spoil(root / "megatron/set/valid")

    chain = collect_chain(root / "megatron/set", root)

    assert [finding.where for finding in chain.broken_members] == [root / "megatron/set" / where]
    assert list_folders(chain, root)[1:] == ["megatron/set/train", "selections/chosen", "corpora/words"]
