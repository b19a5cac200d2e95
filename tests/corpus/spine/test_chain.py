"""The chain of an artifact: members and upstream, each once, whatever is missing on the way."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from word_artifact import build_words

from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.lineage import Chain, Finding, chain_of
from pipeline_assets.corpus.spine.manifest import Identity, StageVersion
from pipeline_assets.corpus.spine.staging import seal_in_place

HUB_FILE = {"name": f"maker/pages@{'0' * 40}:a.parquet", "digest": "sha256:aa", "bytes": 3}


def made_from(sources: list[Artifact], folder: Path, stage: str, **keys: str) -> Artifact:
    folder.mkdir(parents=True, exist_ok=True)
    inputs: list[dict[str, Any]] = [{"name": f"words/{stage}", "digest": source.manifest.digest} for source in sources]
    identity = Identity(StageVersion(stage, 1), {"stage": stage, **keys}, inputs, None, {}, {}, [])
    return seal_in_place(folder, f"words/{stage}", stage, identity, {})


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
    seal_in_place(dataset, "words/set", "set", Identity(StageVersion("join", 1), {}, inputs, None, {}, {}, []), {})
    return tmp_path


def folders(chain: Chain, root: Path) -> list[str]:
    return [artifact.folder.relative_to(root).as_posix() for artifact in chain.artifacts]


def test_members_come_first_then_upstream_and_each_once(root: Path) -> None:
    chain = chain_of(root / "megatron/set", root)

    assert folders(chain, root) == [
        "megatron/set",
        "megatron/set/train",
        "megatron/set/valid",
        "selections/chosen",
        "corpora/words",
    ]
    assert (chain.broken, chain.missing, chain.outside) == ([], [], {})


def test_without_a_root_it_is_the_artifact_and_its_members(root: Path) -> None:
    assert folders(chain_of(root / "megatron/set", None), root) == [
        "megatron/set",
        "megatron/set/train",
        "megatron/set/valid",
    ]


def test_an_artifact_that_was_moved_out_of_the_root_has_its_upstream_there(root: Path, tmp_path: Path) -> None:
    moved = shutil.move(root / "megatron/set/train", tmp_path / "train")

    chain = chain_of(moved, root)

    assert folders(chain, root)[1:] == ["selections/chosen", "corpora/words"]


def test_files_from_outside_are_listed_under_the_artifact_made_from_them(tmp_path: Path) -> None:
    identity = Identity(StageVersion("read", 1), {}, [HUB_FILE], None, {}, {}, [])
    (tmp_path / "corpora" / "pages").mkdir(parents=True)
    pages = seal_in_place(tmp_path / "corpora" / "pages", "words/pages", "pages", identity, {})

    assert chain_of(pages.folder, tmp_path).outside == {pages.manifest.digest: [HUB_FILE]}
    assert chain_of(pages.folder, None).outside == {}


def test_a_missing_upstream_is_found_once_with_its_digest_and_who_was_made_from_it(root: Path) -> None:
    digest = chain_of(root / "selections/chosen", None).artifacts[0].manifest.digest
    train = chain_of(root / "megatron/set/train", None).artifacts[0].manifest.digest
    shutil.rmtree(root / "selections/chosen")

    chain = chain_of(root / "megatron/set/train", root)

    what = (
        f"made from words/split {digest}, which is not below corpora, selections, megatron, stage_a, nemotron of {root}"
    )
    assert chain.missing == [Finding(root / "megatron/set/train", what, train)]
    assert len(chain_of(root / "megatron/set", root).missing) == 1


def test_others_go_on_where_one_upstream_is_missing(root: Path) -> None:
    shutil.rmtree(root / "corpora/words")

    chain = chain_of(root / "megatron/set", root)

    assert folders(chain, root)[-1] == "selections/chosen"
    assert [finding.where for finding in chain.missing] == [root / "selections/chosen"]


def test_a_manifest_that_cannot_be_read_is_found_where_upstream_is_missing(root: Path) -> None:
    manifest = root / "corpora/words/manifest.json"
    manifest.chmod(0o644)
    manifest.write_text("{")

    chain = chain_of(root / "megatron/set", root)

    assert [finding.where for finding in chain.missing] == [root / "selections/chosen"]
    assert [(finding.where, finding.artifact) for finding in chain.broken] == [(manifest, "")]
    assert chain.broken[0].what.startswith("this is no manifest: ")


def test_a_manifest_that_cannot_be_read_is_no_business_of_a_chain_that_is_whole(root: Path) -> None:
    other = root / "corpora" / "other" / "manifest.json"
    other.parent.mkdir()
    other.write_text("{")

    assert chain_of(root / "megatron/set", root).broken == []


@pytest.mark.parametrize(("spoil", "where"), [("remove", "valid"), ("edit", "valid/manifest.json")])
def test_a_member_that_is_gone_or_edited_is_a_finding(root: Path, spoil: str, where: str) -> None:
    member = root / "megatron/set/valid"
    if spoil == "remove":
        shutil.rmtree(member)
    else:
        (member / "manifest.json").write_text("{}")

    chain = chain_of(root / "megatron/set", root)

    assert [finding.where for finding in chain.broken] == [root / "megatron/set" / where]
    assert folders(chain, root)[1:] == ["megatron/set/train", "selections/chosen", "corpora/words"]


def test_the_artifact_itself_must_be_one(root: Path) -> None:
    with pytest.raises(InputError, match="nothing is sealed here"):
        chain_of(root / "megatron", root)
