"""Sealed artifacts are checked by size when opened and by hash when verified."""

import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
from crash_points import list_steps
from forgery import overwrite
from refusals import refusal
from word_artifact import build_words

from pipeline_assets.spine.artifact import Artifact, Damage, copy_manifest, open_artifact, read_manifest, verify
from pipeline_assets.spine.errors import InputError, RetryableError
from pipeline_assets.spine.lock import lock_path
from pipeline_assets.spine.manifest import Identity, Manifest, StageVersion, StoredFile
from pipeline_assets.spine.opening import seal_in_place
from pipeline_assets.spine.sealed_folder import require_manifest
from pipeline_assets.spine.verified_reads import verify_reads


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Seal an artifact of parts/a.txt, parts/b.txt and parts/c.txt."""
    return build_words(tmp_path, "english").folder


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Seal an artifact that contains two members, train and valid."""
    inputs = []
    for member, language in (("train", "english"), ("valid", "french")):
        sealed = build_words(tmp_path / member, language)
        (tmp_path / "dataset").mkdir(exist_ok=True)
        sealed.folder.rename(tmp_path / "dataset" / member)
        inputs.append({"name": f"words/{member}", "digest": sealed.manifest.digest, "member": member})
    identity = Identity(StageVersion("join", 1), {}, inputs, None, {}, {}, [])
    return seal_in_place(tmp_path / "dataset", Manifest("words/dataset", "words", identity, [], {})).folder


def find_damages(folder: Path) -> list[Damage]:
    artifact = Artifact(folder, require_manifest(folder))
    return [item for item in verify(artifact) if isinstance(item, Damage)]


def list_paths(items: Iterable[StoredFile | Damage]) -> list[str]:
    return [item.path for item in items]


def test_intact_artifact_yields_every_file_as_sealed(folder: Path) -> None:
    results = list(verify(open_artifact(folder)))

    texts = {"parts/a.txt": b"ONE\nTWO\n", "parts/b.txt": b"THREE\nFOUR\nFIVE\n", "parts/c.txt": b"SIX\n"}
    assert results == [StoredFile(name, len(text), hashlib.sha256(text).hexdigest()) for name, text in texts.items()]


@pytest.mark.parametrize("name", ["parts/a.txt", "parts/b.txt", "parts/c.txt"])
def test_one_flipped_bit_in_any_file_is_found(folder: Path, name: str) -> None:
    sealed = (folder / name).read_bytes()

    for position in range(len(sealed)):
        for bit in range(8):
            overwrite(folder / name, sealed[:position] + bytes([sealed[position] ^ 1 << bit]) + sealed[position + 1 :])
            assert list_paths(find_damages(folder)) == [name]


def test_link_in_place_of_a_file_is_damage_and_hides_no_other_damage(folder: Path) -> None:
    (folder / "parts/a.txt").unlink()
    (folder / "parts/a.txt").symlink_to("a.txt")
    overwrite(folder / "parts/c.txt", b"SEX\n")

    damages = find_damages(folder)

    actual, sealed = (hashlib.sha256(text).hexdigest() for text in (b"SEX\n", b"SIX\n"))
    assert damages == [
        Damage("parts/a.txt", "expected a plain file, got a link"),
        Damage("parts/c.txt", f"sha256 is {actual}, sealed with {sealed}"),
    ]


@pytest.mark.parametrize(
    ("name", "data", "what"),
    [
        ("parts/b.txt", b"THREE\n", "has 6 bytes, sealed with 16"),
        ("parts/b.txt", b"", "has 0 bytes, sealed with 16"),
        ("parts/a.txt", None, "the file is missing"),
    ],
)
def test_missing_file_or_another_size_prevents_opening(folder: Path, name: str, data: bytes | None, what: str) -> None:
    (folder / name).unlink() if data is None else overwrite(folder / name, data)

    assert find_damages(folder) == [Damage(name, what)]
    assert refusal(lambda: open_artifact(folder)) == (
        f"{folder / name}: {what}; run `corpusmill verify` on the folder, then rebuild it"
    )


def test_changed_file_is_refused_when_a_build_reads_it(folder: Path) -> None:
    overwrite(folder / "parts/a.txt", b"ONE\nTWP\n")
    artifact, actual = open_artifact(folder), hashlib.sha256(b"ONE\nTWP\n").hexdigest()

    with pytest.raises(InputError) as refused, verify_reads():
        artifact.path("parts/b.txt")
        artifact.path("parts/a.txt")
        pytest.fail("the changed file was opened")

    assert str(refused.value).startswith(f"{folder}/parts/a.txt: sha256 is {actual}, sealed with ")


def test_files_missing_in_the_manifest_are_found_in_order_of_name(folder: Path) -> None:
    paths = [*(f"{letter}.txt" for letter in "qjzbtkmxw"), "parts/d.txt", "parts/a.txt.tmp", "parts/.hidden"]
    for name in paths:
        (folder / name).write_text("")

    assert find_damages(folder) == [Damage(name, "the manifest does not list this file") for name in sorted(paths)]


def test_edited_manifest_is_refused(folder: Path) -> None:
    manifest = folder / "manifest.json"
    overwrite(manifest, manifest.read_bytes().replace(b'"documents": 6', b'"documents": 7'))

    message = refusal(lambda: require_manifest(folder))

    assert message.startswith(f"{manifest}: digest is sha256:")
    assert message.endswith("; the manifest was edited; restore it, or run its recipe with --replace")


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("nowhere", "folder not found"),
        ("words/manifest.json", "expected a folder, got a file"),
        ("words/parts", "nothing is sealed here (no manifest.json)"),
    ],
)
def test_path_without_an_artifact_is_refused(folder: Path, name: str, what: str) -> None:
    missing = folder.parent / name

    assert read_manifest(missing) is None
    assert refusal(lambda: require_manifest(missing)) == f"{missing}: {what}; pass the folder of a finished artifact"


def test_artifact_with_another_digest_does_not_open(folder: Path) -> None:
    digest = open_artifact(folder).manifest.digest

    assert open_artifact(folder, digest).folder == folder
    assert refusal(lambda: open_artifact(folder, "sha256:00")) == (
        f"{folder}: digest is {digest}, expected sha256:00; the artifact was replaced; run the same command again"
    )


def test_unknown_file_is_an_error_that_lists_the_files(folder: Path) -> None:
    assert open_artifact(folder).path("parts/a.txt").read_text() == "ONE\nTWO\n"
    assert refusal(lambda: open_artifact(folder).path("parts/z.txt")) == (
        f"{folder}: no file 'parts/z.txt' in the manifest; its files are parts/a.txt, parts/b.txt, parts/c.txt"
    )


def test_files_of_members_are_verified_with_their_artifact(dataset: Path) -> None:
    overwrite(dataset / "valid/parts/c.txt", b"SEX\n")

    results = list(verify(open_artifact(dataset)))

    assert open_artifact(dataset / "train").members() == []
    assert open_artifact(dataset).members() == [open_artifact(dataset / name).manifest for name in ("train", "valid")]
    assert list_paths(results) == [f"{member}/parts/{part}.txt" for member in ("train", "valid") for part in "abc"]
    assert [item.path for item in results if isinstance(item, Damage)] == ["valid/parts/c.txt"]


def test_missing_or_replaced_member_is_found(dataset: Path) -> None:
    sealed, actual = (open_artifact(dataset / member).manifest.digest for member in ("valid", "train"))
    shutil.rmtree(dataset / "valid")
    missing = find_damages(dataset)
    shutil.copytree(dataset / "train", dataset / "valid")

    assert missing == [Damage("valid", f"digest is missing, sealed with {sealed}")]
    assert find_damages(dataset) == [Damage("valid", f"digest is {actual}, sealed with {sealed}")]


def test_edited_manifest_of_a_member_is_damage_and_hides_no_other_damage(dataset: Path) -> None:
    manifest = dataset / "train" / "manifest.json"
    overwrite(manifest, manifest.read_bytes().replace(b'"documents": 6', b'"documents": 7'))
    overwrite(dataset / "valid/parts/c.txt", b"SEX\n")

    damages = find_damages(dataset)

    assert list_paths(damages) == ["train/manifest.json", "valid/parts/c.txt"]
    assert damages[0].what.startswith("digest is sha256:")


def test_manifest_sealed_by_another_builder_is_not_written_again(tmp_path: Path) -> None:
    identity = Identity(StageVersion("join", 1), {}, [], None, {}, {}, [])
    first_manifest, second_manifest = (
        Manifest("words/set", "words", identity, [], {"said": value}) for value in ("first", "second")
    )
    first = seal_in_place(tmp_path / "words", first_manifest)
    before = (first.folder / "manifest.json").stat().st_ino

    second = seal_in_place(tmp_path / "words", second_manifest, lambda: True)

    assert (second.manifest.provenance["said"], (second.folder / "manifest.json").stat().st_ino) == ("first", before)


def test_builder_without_its_lock_replaces_no_manifest(tmp_path: Path) -> None:
    """The builder was suspended, and its lock file was removed."""
    identities = (Identity(StageVersion("words", version), {}, [], None, {}, {}, []) for version in (1, 2))
    slow, fast = (Manifest("words/words", "words", identity, [], {}) for identity in identities)
    folder = tmp_path / "words"

    def lose_the_lock() -> bool:
        lock_path(folder).unlink()
        seal_in_place(folder, fast)
        return False

    with pytest.raises(RetryableError, match="this builder lost its lock"):
        seal_in_place(folder, slow, lose_the_lock)

    assert open_artifact(folder).manifest.digest == fast.digest


def test_manifest_copy_has_equal_bytes_and_is_written_once(tmp_path: Path) -> None:
    artifact, copy = build_words(tmp_path, "english"), tmp_path / "manifests" / "words.json"

    first, again = (list_steps(lambda: copy_manifest(artifact, copy)) for _ in range(2))

    assert copy.read_bytes() == (artifact.folder / "manifest.json").read_bytes()
    assert first != [] and again == []


@pytest.mark.parametrize("read", ["former", "first half", "other builder"])
def test_manifest_changed_since_opening_is_not_copied(tmp_path: Path, read: str) -> None:
    artifact, former = build_words(tmp_path, "english"), build_words(tmp_path / "former", "french")
    file, copy = artifact.folder / "manifest.json", tmp_path / "copy.json"
    data = file.read_bytes()
    half, edited = data[: len(data) // 2], data.replace(b'"builder": 1', b'"builder": 2')
    assert edited != data
    contents = {"former": (former.folder / "manifest.json").read_bytes(), "first half": half, "other builder": edited}
    overwrite(file, contents[read])

    with pytest.raises(InputError) as refused:
        copy_manifest(artifact, copy)

    assert (refused.value.where, copy.exists()) == (str(file), False)
    assert isinstance(refused.value, RetryableError) == (read == "former")
