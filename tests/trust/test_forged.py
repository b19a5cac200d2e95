"""Forged content under an honest digest: storage is checked against the identity.

No digest covers the storage of a manifest.
"""

import dataclasses
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from forgery import overwrite, reseal
from healing_set import verify
from refusals import refusal

from pipeline_assets.build.checks import files_match_manifest
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.corpus.formats.parquet_tables import write_table
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.manifest import Manifest, StoredFile
from pipeline_assets.spine.sealed_folder import require_manifest
from pipeline_assets.systems.healing import MEGATRON_SPLIT

TRAIN = Path("megatron", "pages_v1", "train")
Forge = Callable[[Manifest], list[StoredFile]]


def replace_storage(folder: Path, forge: Forge) -> str:
    """Reseal a manifest with another storage; return the digest, which is unchanged."""
    manifest = require_manifest(folder)
    reseal(folder, dataclasses.replace(manifest, storage=forge(manifest)))
    assert require_manifest(folder).digest == manifest.digest
    return manifest.digest


def forge_file(folder: Path, name: str, data: bytes) -> None:
    """Overwrite a file, and its size and hash in the storage."""
    overwrite(folder / name, data)
    stored = StoredFile(name, len(data), hashlib.sha256(data).hexdigest())
    replace_storage(folder, lambda manifest: [stored if file.path == name else file for file in manifest.storage])


def find_snapshot_and_shard(root: Path) -> tuple[Path, Path]:
    [manifest] = (root / "corpora").rglob("manifest.json")
    return manifest.parent, min((manifest.parent / "shards").iterdir())


def test_a_raw_file_is_compared_with_its_content_hash(chain_root: Path) -> None:
    tokens = bytearray((chain_root / TRAIN / "tokens.bin").read_bytes())
    honest = hashlib.sha256(tokens).hexdigest()
    tokens[0] ^= 1
    forge_file(chain_root / TRAIN, "tokens.bin", bytes(tokens))

    result = verify(chain_root / TRAIN)

    forged = hashlib.sha256(tokens).hexdigest()
    assert result.verdict == "damaged"
    assert [finding.what for finding in result.findings] == [
        f"tokens.bin is stored with sha256 {forged}, and its content has {honest}"
    ]
    with pytest.raises(InputError, match=r"tokens\.bin is stored with sha256"):
        open_artifact(chain_root / TRAIN)


def test_an_empty_storage_is_damage(chain_root: Path) -> None:
    names = [file.path for file in require_manifest(chain_root / TRAIN).storage]
    replace_storage(chain_root / TRAIN, lambda manifest: [])
    for name in names:
        (chain_root / TRAIN / name).unlink()

    result = verify(chain_root / TRAIN)

    assert result.verdict == "damaged"
    assert [finding.what for finding in result.findings] == [
        f"the storage lacks {name}, which is content" for name in sorted(names)
    ]
    with pytest.raises(InputError, match="the storage lacks"):
        open_artifact(chain_root / TRAIN)


@pytest.mark.parametrize("name", ["../../../pages", "/etc/passwd", "a/../../b", ".", "a//b", "./a"])
def test_a_storage_path_outside_the_folder_is_refused_unread(chain_root: Path, name: str) -> None:
    manifest = require_manifest(chain_root / TRAIN)
    reseal(chain_root / TRAIN, dataclasses.replace(manifest, storage=[*manifest.storage, StoredFile(name, 1, "aa")]))

    assert f": the path {name!r} leads out of the folder; " in refusal(lambda: verify(chain_root / TRAIN))


def test_a_member_outside_the_folder_is_refused(chain_root: Path) -> None:
    folder = chain_root / TRAIN.parent
    inputs = [
        {**entry, **({"member": "../pages_v1/train"} if "member" in entry else {})}
        for entry in require_manifest(folder).identity.inputs
    ]
    reseal(folder, require_manifest(folder), inputs=inputs)

    with pytest.raises(InputError, match="not a valid manifest"):
        verify(folder)


def test_a_file_that_is_neither_content_nor_label_is_damage(chain_root: Path) -> None:
    data = b"read me"
    (chain_root / TRAIN / "README.md").write_bytes(data)
    label = StoredFile("README.md", len(data), hashlib.sha256(data).hexdigest())
    replace_storage(chain_root / TRAIN, lambda manifest: [*manifest.storage, label])

    [finding] = verify(chain_root / TRAIN).findings
    artifact = Artifact(chain_root / TRAIN, require_manifest(chain_root / TRAIN))
    verdict = files_match_manifest(artifact, Target(MEGATRON_SPLIT, "train", TRAIN, {}), chain_root)

    assert finding.what == (
        "the storage lists README.md, which is neither content nor a label of healing/megatron_split"
    )
    assert (verdict.passed, verdict.because) == (
        False,
        f"manifest.json: {finding.what}: remove the folder, and run its recipe again",
    )


def test_content_of_a_compressed_file_is_hashed_on_request(chain_root: Path) -> None:
    folder, shard = find_snapshot_and_shard(chain_root)
    lines = zstandard.ZstdDecompressor().stream_reader(shard.read_bytes()).read()
    honest, forged = lines, lines.replace(b"page", b"pagf", 1)
    forge_file(folder, f"shards/{shard.name}", zstandard.compress(forged))

    as_stored, by_content, by_sample = verify(folder), verify(folder, content=True), verify(folder, sample="100%")

    hashes = [hashlib.sha256(data).hexdigest() for data in (forged, honest)]
    assert (as_stored.verdict, as_stored.unread_content_count, as_stored.content_results) == ("intact", 5, [])
    for result in (by_content, by_sample):
        assert (result.verdict, len(result.content_results), result.unread_content_count) == ("damaged", 5, 0)
        assert [(finding.where, finding.what) for finding in result.findings] == [
            (shard, f"content hash is {hashes[0]}, sealed with {hashes[1]}")
        ]


def test_content_of_a_parquet_file_is_hashed_on_request(chain_root: Path, tmp_path: Path) -> None:
    path = chain_root / TRAIN / "documents.parquet"
    with open_parquet(path) as file:
        table = file.read()
    write_table(tmp_path / "other.parquet", "other.parquet", [table.slice(1)], table.schema)
    forge_file(chain_root / TRAIN, "documents.parquet", (tmp_path / "other.parquet").read_bytes())

    result = verify(chain_root / TRAIN, content=True)

    assert verify(chain_root / TRAIN).verdict == "intact"
    assert [finding.where for finding in result.findings] == [path]


def test_links_pipes_and_unlisted_files_in_a_sealed_folder_are_findings(chain_root: Path, tmp_path: Path) -> None:
    folder = chain_root / TRAIN
    (folder / "tokens.bin").rename(tmp_path / "tokens.bin")
    (folder / "tokens.bin").symlink_to(tmp_path / "tokens.bin")  # the right bytes, but stored in another folder
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to(tmp_path)
    (folder / "stranger").write_bytes(b"")

    result = verify(folder)

    assert {finding.where.name: finding.what for finding in result.findings} == {
        "tokens.bin": "expected a plain file, got a link",
        "pipe": "expected a plain file, got a device, pipe or socket",
        "link": "expected a plain file, got a link",
        "stranger": "the manifest does not list this file",
    }
    with pytest.raises(InputError, match="expected a plain file, got a link"):
        open_artifact(folder)


def test_a_manifest_with_a_broken_seal_is_not_opened(chain_root: Path) -> None:
    path = chain_root / TRAIN / "manifest.json"
    overwrite(path, path.read_bytes().replace(b'"host"', b'"hosu"'))

    with pytest.raises(InputError, match="bytes differ from the sealed ones, though the identity is equal"):
        open_artifact(chain_root / TRAIN)
