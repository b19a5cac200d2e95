"""Files that a build reads are checked against their hashes."""

import hashlib
from collections.abc import Generator, Sequence
from functools import partial
from pathlib import Path

import pytest
from word_artifact import ENGLISH, Words
from word_stage import INLINE

from pipeline_assets.spine.engine import run_unfinished_shards
from pipeline_assets.spine.errors import ChangedFileError, InputError
from pipeline_assets.spine.staging import Receipt, StagingDir, StagingView
from pipeline_assets.spine.verified_reads import (
    ExpectedHash,
    collect_hashes,
    expect_hash,
    hash_while_reading,
    verify_reads,
)

CONTENT = b"one two three"
EXPECTED = ExpectedHash(hashlib.sha256(CONTENT).hexdigest(), "sealed with", "build it again")
OTHER_SHA256 = hashlib.sha256(b"one twp three").hexdigest()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shard.zst"
    path.write_bytes(CONTENT)
    return path


def read_file(path: Path, block_bytes: int = 4) -> None:
    with open(path, "rb") as opened:
        source = hash_while_reading(opened, path)
        while source.read(block_bytes):
            pass


def test_file_with_random_access_is_hashed_before_reading(file: Path) -> None:
    file.write_bytes(b"one twp three")

    with pytest.raises(InputError) as refused, verify_reads():
        expect_hash(file, EXPECTED, is_streamed=False)
        pytest.fail("the file was opened")

    assert str(refused.value) == f"{file}: sha256 is {OTHER_SHA256}, sealed with {EXPECTED.sha256}; build it again"


def test_streamed_file_is_hashed_while_it_is_read(file: Path) -> None:
    with verify_reads():
        expect_hash(file, EXPECTED, is_streamed=True)
        read_file(file)
        file.unlink()  # the end of the block has no file to hash


def test_streamed_file_with_another_hash_is_refused_at_its_end(file: Path) -> None:
    file.write_bytes(b"one twp three")

    with pytest.raises(InputError) as refused, verify_reads():
        expect_hash(file, EXPECTED, is_streamed=True)
        read_file(file)
        pytest.fail("the file was read")

    assert refused.value.where == str(file)


def test_partly_read_file_is_hashed_completely_at_the_end(file: Path) -> None:
    file.write_bytes(b"one twp three")

    with pytest.raises(InputError, match=OTHER_SHA256), verify_reads():
        expect_hash(file, EXPECTED, is_streamed=True)
        with open(file, "rb") as opened:
            hash_while_reading(opened, file).read(3)


def test_file_missing_at_the_end_is_one_line(file: Path) -> None:
    with pytest.raises(InputError) as refused, verify_reads():
        expect_hash(file, EXPECTED, is_streamed=True)
        file.unlink()

    assert str(refused.value) == (
        f"{file}: cannot be read (No such file or directory); restore the file, then run the same command"
    )


def test_worker_collects_hashes_of_completely_read_files(file: Path) -> None:
    with collect_hashes() as hashes:
        read_file(file)
        with open(file, "rb") as opened:
            hash_while_reading(opened, file.with_name("begun")).read(3)

    assert hashes == {str(file): EXPECTED.sha256}


def test_no_file_is_hashed_outside_of_a_build(file: Path) -> None:
    with open(file, "rb") as opened:
        assert hash_while_reading(opened, file) is opened


def test_shard_that_read_a_changed_file_is_refused_after_its_repair(building: StagingDir, tmp_path: Path) -> None:
    file, changed = tmp_path / "input", hashlib.sha256(b"changed").hexdigest()
    file.write_bytes(b"whole")

    def read_changed_file(*run: object) -> Generator[Receipt]:
        yield Receipt([], {}, reads={str(file): changed})

    with pytest.raises(ChangedFileError, match=f"sha256 is {changed}, sealed with"), verify_reads():
        expect_hash(file, ExpectedHash(hashlib.sha256(b"whole").hexdigest(), "sealed with", "build it"), True)
        list(run_unfinished_shards("write", ENGLISH[:1], building, INLINE, read_changed_file))


def test_finished_shard_that_read_another_version_of_a_file_is_rerun(building: StagingDir, tmp_path: Path) -> None:
    file, runs = tmp_path / "input", list[str]()
    versions = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("before", "after")}

    def run_shards(name: str, stage: str, shards: Sequence[Words], folder: StagingView) -> Generator[Receipt]:
        for shard in shards:
            runs.append(name)
            receipt = Receipt([], {}, reads={str(file): versions[name]})
            folder.commit(stage, shard.name, receipt)
            yield receipt

    for name in ("before", "before", "after", "after"):
        file.write_text(name)
        with verify_reads():
            expect_hash(file, ExpectedHash(versions[name], "sealed with", "build it"), True)
            list(run_unfinished_shards("write", ENGLISH[:1], building, INLINE, partial(run_shards, name)))

    assert runs == ["before", "after"]
