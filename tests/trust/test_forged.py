"""Forged content under an honest digest: the storage of a manifest is in no digest, so it is held against what is."""

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


def restore(folder: Path, forge: Forge) -> str:
    """The manifest written again with another storage; the digest, which is still the same."""
    manifest = require_manifest(folder)
    reseal(folder, dataclasses.replace(manifest, storage=forge(manifest)))
    assert require_manifest(folder).digest == manifest.digest
    return manifest.digest


def put(folder: Path, name: str, data: bytes) -> None:
    """Other bytes in a file, and their size and hash in the storage."""
    overwrite(folder / name, data)
    stored = StoredFile(name, len(data), hashlib.sha256(data).hexdigest())
    restore(folder, lambda manifest: [stored if file.path == name else file for file in manifest.storage])


def snapshot_and_shard(root: Path) -> tuple[Path, Path]:
    [manifest] = (root / "corpora").rglob("manifest.json")
    return manifest.parent, min((manifest.parent / "shards").iterdir())


def test_a_raw_file_is_held_against_the_hash_that_the_digest_names(chain_root: Path) -> None:
    tokens = bytearray((chain_root / TRAIN / "tokens.bin").read_bytes())
    honest = hashlib.sha256(tokens).hexdigest()
    tokens[0] ^= 1
    put(chain_root / TRAIN, "tokens.bin", bytes(tokens))

    found = verify(chain_root / TRAIN)

    forged = hashlib.sha256(tokens).hexdigest()
    assert found.verdict == "damaged"
    assert [finding.what for finding in found.findings] == [
        f"tokens.bin is stored with sha256 {forged}, and its content has {honest}"
    ]
    with pytest.raises(InputError, match=r"tokens\.bin is stored with sha256"):
        open_artifact(chain_root / TRAIN)


def test_a_storage_that_lists_nothing_is_damage(chain_root: Path) -> None:
    names = [file.path for file in require_manifest(chain_root / TRAIN).storage]
    restore(chain_root / TRAIN, lambda manifest: [])
    for name in names:
        (chain_root / TRAIN / name).unlink()

    found = verify(chain_root / TRAIN)

    assert found.verdict == "damaged"
    assert [finding.what for finding in found.findings] == [
        f"the storage lacks {name}, which is content" for name in sorted(names)
    ]
    with pytest.raises(InputError, match="the storage lacks"):
        open_artifact(chain_root / TRAIN)


@pytest.mark.parametrize("name", ["../../../pages", "/etc/passwd", "a/../../b", ".", "a//b", "./a"])
def test_a_storage_that_leads_out_of_the_folder_is_refused_unread(chain_root: Path, name: str) -> None:
    manifest = require_manifest(chain_root / TRAIN)
    reseal(chain_root / TRAIN, dataclasses.replace(manifest, storage=[*manifest.storage, StoredFile(name, 1, "aa")]))

    assert f": the path {name!r} leads out of the folder; " in refusal(lambda: verify(chain_root / TRAIN))


def test_a_member_that_leads_out_of_the_folder_is_refused(chain_root: Path) -> None:
    folder = chain_root / TRAIN.parent
    inputs = [
        {**entry, **({"member": "../pages_v1/train"} if "member" in entry else {})}
        for entry in require_manifest(folder).identity.inputs
    ]
    reseal(folder, require_manifest(folder), inputs=inputs)

    with pytest.raises(InputError, match="not a valid manifest"):
        verify(folder)


def test_a_file_that_is_no_content_and_no_label_of_the_kind_is_damage(chain_root: Path) -> None:
    data = b"read me"
    (chain_root / TRAIN / "README.md").write_bytes(data)
    label = StoredFile("README.md", len(data), hashlib.sha256(data).hexdigest())
    restore(chain_root / TRAIN, lambda manifest: [*manifest.storage, label])

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


def test_what_a_compressed_file_says_is_worked_out_where_it_is_asked_for(chain_root: Path) -> None:
    folder, shard = snapshot_and_shard(chain_root)
    lines = zstandard.ZstdDecompressor().stream_reader(shard.read_bytes()).read()
    honest, forged = lines, lines.replace(b"page", b"pagf", 1)
    put(folder, f"shards/{shard.name}", zstandard.compress(forged))

    as_stored, by_content, by_sample = verify(folder), verify(folder, content=True), verify(folder, sample="100%")

    hashes = [hashlib.sha256(data).hexdigest() for data in (forged, honest)]
    assert (as_stored.verdict, as_stored.unread_contents, as_stored.content_errors) == ("intact", 5, [])
    for found in (by_content, by_sample):
        assert (found.verdict, len(found.content_errors), found.unread_contents) == ("damaged", 5, 0)
        assert [(finding.where, finding.what) for finding in found.findings] == [
            (shard, f"content hash is {hashes[0]}, sealed with {hashes[1]}")
        ]


def test_what_a_parquet_file_says_is_worked_out_where_it_is_asked_for(chain_root: Path, tmp_path: Path) -> None:
    path = chain_root / TRAIN / "documents.parquet"
    with open_parquet(path) as file:
        table = file.read()
    write_table(tmp_path / "other.parquet", "other.parquet", [table.slice(1)], table.schema)
    put(chain_root / TRAIN, "documents.parquet", (tmp_path / "other.parquet").read_bytes())

    found = verify(chain_root / TRAIN, content=True)

    assert verify(chain_root / TRAIN).verdict == "intact"
    assert [finding.where for finding in found.findings] == [path]


def test_a_sealed_folder_holds_plain_files_and_folders_alone(chain_root: Path, tmp_path: Path) -> None:
    folder = chain_root / TRAIN
    (folder / "tokens.bin").rename(tmp_path / "tokens.bin")
    (folder / "tokens.bin").symlink_to(tmp_path / "tokens.bin")  # the right bytes, which somebody else keeps
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to(tmp_path)
    (folder / "stranger").write_bytes(b"")

    found = verify(folder)

    assert {finding.where.name: finding.what for finding in found.findings} == {
        "tokens.bin": "expected a plain file, got a link",
        "pipe": "expected a plain file, got a device, pipe or socket",
        "link": "expected a plain file, got a link",
        "stranger": "the manifest doesn't name this file",
    }
    with pytest.raises(InputError, match="expected a plain file, got a link"):
        open_artifact(folder)


def test_a_manifest_whose_seal_does_not_hold_is_not_built_from(chain_root: Path) -> None:
    path = chain_root / TRAIN / "manifest.json"
    overwrite(path, path.read_bytes().replace(b'"host"', b'"hosu"'))

    with pytest.raises(InputError, match="bytes differ from the sealed ones, though the identity is equal"):
        open_artifact(chain_root / TRAIN)
