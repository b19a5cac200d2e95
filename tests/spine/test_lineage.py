"""Sealed artifacts are found by digest wherever below the data root they lie, and upstream through their inputs.

A chain has members and upstream, each once, whatever is missing on the way.
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
    """An artifact of stage `words` in the area `corpora`."""
    return build_words(tmp_path / "corpora", "english")


def made_from(sources: list[Artifact], folder: Path, stage: str, **keys: str) -> Artifact:
    folder.mkdir(parents=True, exist_ok=True)
    inputs: list[dict[str, Any]] = [{"name": f"words/{stage}", "digest": source.manifest.digest} for source in sources]
    identity = Identity(StageVersion(stage, 1), {"stage": stage, **keys}, inputs, None, {}, {}, [])
    return seal_in_place(folder, Manifest(f"words/{stage}", stage, identity, [], {}))


def test_an_artifact_is_found_by_its_digest_wherever_it_lies(words: Artifact, tmp_path: Path) -> None:
    moved = tmp_path / "megatron" / "elsewhere"
    moved.parent.mkdir()
    words.folder.rename(moved)

    assert Lineage(tmp_path).open_by_digest(words.manifest.digest).folder == moved
    assert list(Lineage(tmp_path).manifests) == [moved]


@pytest.mark.parametrize("ending", ["old.1", "building.1"])
def test_a_folder_that_is_on_its_way_in_or_out_is_not_found(words: Artifact, tmp_path: Path, ending: str) -> None:
    words.folder.rename(words.folder.with_name(f".words.{ending}"))

    assert not Lineage(tmp_path).manifests and not Lineage(tmp_path).manifest_errors
    assert refusal(lambda: Lineage(tmp_path).open_by_digest(words.manifest.digest)) == (
        f"{tmp_path}: no artifact with digest {words.manifest.digest} is below "
        "corpora, selections, megatron, stage_a, nemotron, stage2, parallel_text; "
        "use the data root that contains it, with --data or --out-dir, or build it again from its recipe"
    )


def test_a_manifest_that_cannot_be_read_is_mentioned_where_nothing_is_found(words: Artifact, tmp_path: Path) -> None:
    manifest = words.folder / "manifest.json"
    overwrite(manifest, b"{")

    told = refusal(lambda: Lineage(tmp_path).open_by_digest(words.manifest.digest))

    assert f"(1 cannot be read, the first is {manifest})" in told


def test_what_was_made_of_an_artifact_is_found_by_its_digest(words: Artifact, tmp_path: Path) -> None:
    chosen = made_from([words], tmp_path / "selections" / "chosen", "choose")
    joined = made_from([chosen], tmp_path / "megatron" / "joined", "join")
    lineage = Lineage(tmp_path)

    assert [folder for folder, _ in lineage.downstream(words.manifest.digest)] == [chosen.folder]
    assert [folder for folder, _ in lineage.downstream(chosen.manifest.digest)] == [joined.folder]
    assert lineage.downstream(joined.manifest.digest) == []
    assert [one.identity.stage.name for one in lineage.manifests.values()] == ["words", "join", "choose"]


def test_an_edited_manifest_is_not_sealed_though_its_seal_was_made_anew(words: Artifact, tmp_path: Path) -> None:
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
    assert list(forged.manifests) == [words.folder]  # a listing holds it against its seal alone
    assert forged.find_by_digest(words.manifest.digest) is None
    assert list(forged.manifest_errors) == [words.folder]


@pytest.mark.parametrize("place", ["megatron/pages/train", "corpora/pages/0f3a", "selections/pages"])
def test_the_data_root_of_an_artifact_is_the_folder_above_its_area(place: str, tmp_path: Path) -> None:
    assert find_data_root(tmp_path / place) == tmp_path.resolve()
    assert find_data_root(tmp_path / "corpora" / "data" / place) == (tmp_path / "corpora" / "data").resolve()


def test_the_data_root_is_told_as_the_folder_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data" / "megatron" / "pages" / "train").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)

    assert find_data_root(Path("data/megatron/pages/train")) == Path("data")
    monkeypatch.chdir(tmp_path / "data" / "megatron" / "pages")
    assert find_data_root(Path("train")) == tmp_path.resolve() / "data"
    assert find_data_root(tmp_path / "train") is None  # below no area


@pytest.mark.parametrize("recipes", ["recipes", "manifests"])
def test_a_recipe_named_like_an_area_is_no_root(recipes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, other = tmp_path / "data", tmp_path / "stage2"
    (root / recipes).mkdir(parents=True)
    (other / recipes).mkdir(parents=True)
    (root / "stage_a/nemotron/filtered").mkdir(parents=True)

    assert find_data_root(root / "stage_a/nemotron/filtered/notes") == root
    assert find_data_root(root / "nemotron/nemotron/deduplicated/chat/train") == root
    assert find_data_root(other / "nemotron/pools/deduplicated/chat/train") == other
    monkeypatch.chdir(root / "stage_a")
    assert find_data_root(Path("nemotron/filtered/notes")) == root


def test_a_copy_of_a_manifest_is_found_where_builds_keep_it(words: Artifact, tmp_path: Path) -> None:
    copies = tmp_path / "manifests"
    assert Lineage(tmp_path).read_manifest_copy(words.manifest.digest) is None

    copies.mkdir()
    (copies / "words.json").write_bytes((words.folder / "manifest.json").read_bytes())
    (copies / "torn.json").write_text("{")

    assert Lineage(tmp_path).read_manifest_copy(words.manifest.digest) == words.manifest


def test_of_several_artifacts_of_one_digest_the_one_of_the_name_is_taken(words: Artifact, tmp_path: Path) -> None:
    other = Artifact(tmp_path / "stage_a" / "other", words.manifest)
    shutil.copytree(words.folder, other.folder)
    overwrite(other.folder / "manifest.json", replace(words.manifest, name="other").to_bytes())

    assert other.manifest.digest == words.manifest.digest
    assert Lineage(tmp_path).open_by_digest(other.manifest.digest, "other").folder == other.folder
    assert Lineage(tmp_path).open_by_digest(other.manifest.digest, "nobody").folder == words.folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """words → choose → train and valid, members of a dataset that is made from choose too."""
    words = build_words(tmp_path / "corpora", "english")
    chosen = made_from([words], tmp_path / "selections" / "chosen", "choose")
    dataset = tmp_path / "megatron" / "set"
    members = [made_from([chosen], dataset / name, "split", split=name) for name in ("train", "valid")]
    inputs = [{"name": "words/choose", "digest": chosen.manifest.digest}]
    for member in members:
        inputs.append({"name": "words/split", "digest": member.manifest.digest, "member": member.folder.name})
    identity = Identity(StageVersion("join", 1), {}, inputs, None, {}, {}, [])
    seal_in_place(dataset, Manifest("words/set", "set", identity, [], {}))
    return tmp_path


def folders(chain: Chain, root: Path) -> list[str]:
    return [artifact.folder.relative_to(root).as_posix() for artifact in chain.artifacts]


def test_members_come_first_then_upstream_and_each_once_and_without_a_root_no_upstream(root: Path) -> None:
    chain, alone = (collect_chain(root / "megatron/set", one) for one in (root, None))

    of_the_artifact = ["megatron/set", "megatron/set/train", "megatron/set/valid"]
    assert folders(chain, root) == [*of_the_artifact, "selections/chosen", "corpora/words"]
    assert (chain.broken, chain.missing, chain.external_inputs) == ([], [], {})
    assert folders(alone, root) == of_the_artifact


def test_an_artifact_that_was_moved_out_of_the_root_has_its_upstream_there(root: Path, tmp_path: Path) -> None:
    moved = shutil.move(root / "megatron/set/train", tmp_path / "train")

    chain = collect_chain(moved, root)

    assert folders(chain, root)[1:] == ["selections/chosen", "corpora/words"]


def test_files_from_outside_are_listed_under_the_artifact_made_from_them(tmp_path: Path) -> None:
    identity = Identity(StageVersion("read", 1), {}, [HUB_FILE], None, {}, {}, [])
    (tmp_path / "corpora" / "pages").mkdir(parents=True)
    pages = seal_in_place(tmp_path / "corpora" / "pages", Manifest("words/pages", "pages", identity, [], {}))

    assert collect_chain(pages.folder, tmp_path).external_inputs == {pages.manifest.digest: [HUB_FILE]}
    assert collect_chain(pages.folder, None).external_inputs == {}


def test_a_missing_upstream_is_found_once_with_its_digest_and_who_was_made_from_it(root: Path) -> None:
    digest = collect_chain(root / "selections/chosen", None).artifacts[0].manifest.digest
    train = collect_chain(root / "megatron/set/train", None).artifacts[0].manifest.digest
    shutil.rmtree(root / "selections/chosen")

    chain = collect_chain(root / "megatron/set/train", root)

    what = (
        f"input words/split {digest} not found below "
        f"corpora, selections, megatron, stage_a, nemotron, stage2, parallel_text of {root}"
    )
    assert chain.missing == [Finding(root / "megatron/set/train", what, train)]
    assert len(collect_chain(root / "megatron/set", root).missing) == 1


def test_a_manifest_that_cannot_be_read_is_told_only_where_upstream_is_missing(root: Path) -> None:
    other = root / "corpora" / "other" / "manifest.json"
    other.parent.mkdir()
    other.write_text("{")
    of_the_whole = collect_chain(root / "megatron/set", root).broken
    manifest = root / "corpora/words/manifest.json"
    overwrite(manifest, b"{")

    chain = collect_chain(root / "megatron/set", root)

    assert of_the_whole == []
    assert folders(chain, root)[-1] == "selections/chosen"  # the others go on
    assert [finding.where for finding in chain.missing] == [root / "selections/chosen"]
    assert [(finding.where, finding.artifact_digest) for finding in chain.broken] == [(other, ""), (manifest, "")]
    assert chain.broken[0].what.startswith("not a valid manifest: ")


@pytest.mark.parametrize(
    ("spoil", "where"),
    [
        (shutil.rmtree, "valid"),
        (lambda member: (member / "manifest.json").write_text("{}"), "valid/manifest.json"),
    ],
    ids=["gone", "edited"],
)
def test_a_member_that_is_gone_or_edited_is_a_finding(root: Path, spoil: Callable[[Path], object], where: str) -> None:
    spoil(root / "megatron/set/valid")

    chain = collect_chain(root / "megatron/set", root)

    assert [finding.where for finding in chain.broken] == [root / "megatron/set" / where]
    assert folders(chain, root)[1:] == ["megatron/set/train", "selections/chosen", "corpora/words"]
