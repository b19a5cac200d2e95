"""What a build reads is held against its hash: as it is read, before it is looked into, or in the end."""

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

HONEST = b"one two three"
PROMISE = ExpectedHash(hashlib.sha256(HONEST).hexdigest(), "sealed with", "build it again")
OTHER = hashlib.sha256(b"one twp three").hexdigest()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shard.zst"
    path.write_bytes(HONEST)
    return path


def read_through(path: Path, block_bytes: int = 4) -> None:
    with open(path, "rb") as opened:
        source = hash_while_reading(opened, path)
        while source.read(block_bytes):
            pass


def test_a_file_that_is_looked_into_anywhere_is_hashed_before(file: Path) -> None:
    file.write_bytes(b"one twp three")

    with pytest.raises(InputError) as refused, verify_reads():
        expect_hash(file, PROMISE, is_streamed=False)
        pytest.fail("it is looked into")

    assert str(refused.value) == f"{file}: sha256 is {OTHER}, sealed with {PROMISE.sha256}; build it again"


def test_a_streamed_file_is_hashed_as_it_is_read_to_its_end(file: Path) -> None:
    with verify_reads():
        expect_hash(file, PROMISE, is_streamed=True)
        read_through(file)
        file.unlink()  # nothing is left to be hashed


def test_a_streamed_file_with_another_hash_is_refused_at_its_end(file: Path) -> None:
    file.write_bytes(b"one twp three")

    with pytest.raises(InputError) as refused, verify_reads():
        expect_hash(file, PROMISE, is_streamed=True)
        read_through(file)
        pytest.fail("it was read")

    assert refused.value.where == str(file)


def test_a_file_that_was_read_in_part_is_hashed_whole_in_the_end(file: Path) -> None:
    file.write_bytes(b"one twp three")

    with pytest.raises(InputError, match=OTHER), verify_reads():
        expect_hash(file, PROMISE, is_streamed=True)
        with open(file, "rb") as opened:
            hash_while_reading(opened, file).read(3)


def test_a_file_that_is_gone_in_the_end_is_one_line(file: Path) -> None:
    with pytest.raises(InputError) as refused, verify_reads():
        expect_hash(file, PROMISE, is_streamed=True)
        file.unlink()

    assert str(refused.value) == (
        f"{file}: cannot be read (No such file or directory); restore the file, then run the same command"
    )


def test_a_worker_tells_what_it_read_whole(file: Path) -> None:
    with collect_hashes() as found:
        read_through(file)
        with open(file, "rb") as opened:
            hash_while_reading(opened, file.with_name("begun")).read(3)

    assert found == {str(file): PROMISE.sha256}


def test_nothing_is_hashed_where_nothing_is_built(file: Path) -> None:
    with open(file, "rb") as opened:
        assert hash_while_reading(opened, file) is opened


def test_a_shard_that_read_a_changed_file_is_refused_even_if_the_file_is_whole_again(
    building: StagingDir, tmp_path: Path
) -> None:
    file, changed = tmp_path / "input", hashlib.sha256(b"changed").hexdigest()
    file.write_bytes(b"whole")

    def read_while_it_is_changed(*run: object) -> Generator[Receipt]:
        yield Receipt([], {}, reads={str(file): changed})

    with pytest.raises(ChangedFileError, match=f"sha256 is {changed}, sealed with"), verify_reads():
        expect_hash(file, ExpectedHash(hashlib.sha256(b"whole").hexdigest(), "sealed with", "build it"), True)
        list(run_unfinished_shards("write", ENGLISH[:1], building, INLINE, read_while_it_is_changed))


def test_a_finished_shard_that_read_another_version_of_a_file_is_run_again(
    building: StagingDir, tmp_path: Path
) -> None:
    file, runs = tmp_path / "input", list[str]()
    versions = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("before", "after")}

    def read(name: str, stage: str, shards: Sequence[Words], folder: StagingView) -> Generator[Receipt]:
        for shard in shards:
            runs.append(name)
            receipt = Receipt([], {}, reads={str(file): versions[name]})
            folder.commit(stage, shard.name, receipt)
            yield receipt

    for name in ("before", "before", "after", "after"):
        file.write_text(name)
        with verify_reads():
            expect_hash(file, ExpectedHash(versions[name], "sealed with", "build it"), True)
            list(run_unfinished_shards("write", ENGLISH[:1], building, INLINE, partial(read, name)))

    assert runs == ["before", "after"]
