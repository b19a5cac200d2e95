"""An artifact and its chain held against their manifests: one changed bit anywhere is found, and nothing is claimed of
what was not read. One that is replaced meanwhile is intact, or was replaced, as is said; never damaged.
"""

import functools
import random
import shutil
from pathlib import Path

import pytest
from healing_set import verify
from interrupted import interrupted
from packed_sets import seal_set

from pipeline_assets.build.checks import files_match_manifest
from pipeline_assets.build.pins.files_check import CACHE_FIX
from pipeline_assets.build.target import Target
from pipeline_assets.spine import artifact, folder_exchange
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.errors import InputError, RetryableError
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.systems.stage_a import PACKED
from pipeline_assets.trust import verify as reader
from pipeline_assets.trust.result import FileSample, Verification, VerificationScope, verification_json
from pipeline_assets.trust.verify import read_and_check, scan_chain

SET = Path("megatron", "pages_v1")
READERS = (reader, artifact)
pytestmark = pytest.mark.usefixtures("nothing_waits_for_the_disk")


def found_at(found: Verification, root: Path) -> set[str]:
    return {finding.where.relative_to(root).as_posix() for finding in found.findings}


def test_the_whole_chain_a_sample_of_everything_and_the_artifact_with_its_members_are_intact(pristine: Path) -> None:
    found = verify(pristine / SET, pristine)
    alone = verify(pristine / SET)

    assert verify(pristine / SET, pristine, "100%").verdict == "intact"
    assert (alone.verdict, alone.hub_check, len(alone.tasks)) == ("intact", None, 8)
    assert (found.verdict, found.findings, found.unread_tasks) == ("intact", [], [])
    assert [artifact.manifest.kind for artifact in found.chain.artifacts] == [
        "healing/megatron_dataset",
        "healing/megatron_split",
        "healing/megatron_split",
        "healing/healing_text_manifest",
        "healing/fineweb_edu_snapshot",
    ]
    assert len(found.tasks) == 4 + 4 + 5
    assert [name.rpartition(":")[2] for name in found.hub_check.whole_files] == ["a.parquet"]
    assert [name.rpartition(":")[2] for name in found.hub_check.partial_files] == ["b.parquet"]


def test_one_flipped_bit_anywhere_in_the_chain_is_found_where_it_is(chain_root: Path) -> None:
    bits = random.Random("bits")
    files = (path for path in sorted(chain_root.rglob("*")) if path.is_file() and path.suffix != ".lock")
    for path in (path for path in files if path.stat().st_size):
        sealed = path.read_bytes()
        for position in [0, len(sealed) - 1, *(bits.randrange(len(sealed)) for _ in range(4))]:
            flipped = bytearray(sealed)
            flipped[position] ^= 1 << bits.randrange(8)
            path.write_bytes(flipped)
            where = path.relative_to(chain_root).as_posix()
            try:
                found = verify(chain_root / SET, chain_root)
            except InputError as refused:
                assert refused.where == str(path)
                continue
            assert found.verdict == "damaged", (where, position)
            words = " ".join([*found_at(found, chain_root), *(finding.what for finding in found.findings)])
            assert where in words or where.split("/")[0] == "hub_cache", (where, words)
        path.write_bytes(sealed)
    assert verify(chain_root / SET, chain_root).verdict == "intact"


def test_a_damaged_file_of_the_cache_says_what_to_do(chain_root: Path) -> None:
    for path in chain_root.glob("hub_cache/*/bytes/*/*"):
        path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])

    found = verify(chain_root / SET, chain_root)

    assert len(found.findings) == 5
    assert all(finding.what.endswith(f"; {CACHE_FIX}") for finding in found.findings)
    assert sum("the hub lists" in finding.what for finding in found.findings) == 1


def test_a_cache_that_was_emptied_is_no_finding_and_is_said(chain_root: Path) -> None:
    shutil.rmtree(chain_root / "hub_cache")

    found = verify(chain_root / SET, chain_root)

    assert found.verdict == "intact"
    assert found.hub_check is not None and len(found.hub_check.unavailable) == 2


def test_a_missing_upstream_is_a_finding_and_the_others_go_on(chain_root: Path) -> None:
    shutil.rmtree(chain_root / "selections" / "pages_v1")
    tokens = chain_root / SET / "valid" / "tokens.bin"
    tokens.write_bytes(bytes(tokens.stat().st_size))

    found = verify(chain_root / SET, chain_root, "100%")

    assert found_at(found, chain_root) == {"megatron/pages_v1", "megatron/pages_v1/valid/tokens.bin"}
    # Nothing says any more that the snapshot is part of the chain.
    assert len(found.chain.artifacts) == 3
    assert found.verdict == "damaged"
    assert [found.is_damaged(artifact) for artifact in found.chain.artifacts] == [False, False, True]


@pytest.mark.parametrize("share", ["1%", "10%", "50%"])
def test_of_a_sample_every_name_and_size_is_checked_and_nothing_more_is_claimed(pristine: Path, share: str) -> None:
    found = verify(pristine / SET, pristine, share)

    sample = FileSample.parse(share)
    assert found.verdict == "intact of a sample"
    assert 100 * sample.share >= found.percent_read
    assert found.unread_tasks and len(found.unread_tasks) < len(found.all_tasks)
    assert {found.task_state(task) for task in found.unread_tasks} == {"not_read"}


def test_a_file_that_a_sample_leaves_out_must_still_be_there_in_its_size(chain_root: Path) -> None:
    (chain_root / SET / "train" / "tokens.bin").unlink()
    (chain_root / SET / "valid" / "tokens.bin").write_bytes(b"short")

    found = verify(chain_root / SET, None, "1%")

    assert found_at(found, chain_root) == {
        "megatron/pages_v1/train/tokens.bin",
        "megatron/pages_v1/valid/tokens.bin",
    }


def test_the_report_says_what_was_checked_and_what_was_not(chain_root: Path) -> None:
    tokens = chain_root / SET / "train" / "tokens.bin"
    tokens.write_bytes(bytes(tokens.stat().st_size))
    (chain_root / SET / "valid" / "extra").write_text("")

    report = verification_json(verify(chain_root / SET, chain_root, "60%"), {"corpusmill": "1"})

    states = {
        (artifact["name"], file["path"]): file["state"]
        for artifact in report["artifacts"]
        for file in artifact["files"]
    }
    assert report["verdict"] == "damaged"
    assert report["scope"] == {
        "upstream": True,
        "content": True,
        "data": str(chain_root),
        "sample": "60%",
        "seed": "0",
        "threads": 2,
    }
    assert len(states) == report["files"] == 13
    assert sum(state == "as_sealed" for state in states.values()) == report["files_as_sealed"]
    assert {"as_sealed", "not_read"} <= set(states.values()) <= {"as_sealed", "not_read", "damaged"}
    assert f"{chain_root / SET}/valid/extra" in [finding["path"] for finding in report["findings"]]
    assert [artifact["findings"] > 0 for artifact in report["artifacts"]][2] is True
    assert {file["state"] for file in report["hub"]["files"]} <= {"as_sealed", "not_read"}
    assert 0 < report["percent_of_bytes_read"] <= 60
    assert report["program"] == {"corpusmill": "1"}


def verified(folder: Path) -> str:
    """The verdict, or the error's line."""
    try:
        return verify(folder).verdict
    except InputError as error:
        return str(error)


def test_what_is_replaced_before_any_line_of_the_verification_is_not_called_damaged(tmp_path: Path) -> None:
    folder = seal_set(tmp_path, "a")
    answer, lines = interrupted(lambda: verified(folder), READERS, {})
    answers = {answer}

    for line in range(1, lines + 1):
        seal_set(tmp_path, "a")
        answers.add(interrupted(lambda: verified(folder), READERS, {line: lambda: seal_set(tmp_path, "b")})[0])

    assert answers == {"intact", f"{folder}: the folder was replaced while it was read; run the same command again"}


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no system call exchanges folders there")
def test_folders_that_change_places_and_back_are_not_called_damaged(tmp_path: Path) -> None:
    folder, other = seal_set(tmp_path, "a"), seal_set(tmp_path / "other", "b")
    answer, lines = interrupted(lambda: verified(folder), READERS, {})
    answers = {answer}

    def change_places() -> None:
        assert folder_exchange.exchange(other, folder)

    for first in range(1, lines + 1, 4):
        for second in range(first + 1, lines + 60, 13):
            swaps = {first: change_places, second: change_places}
            answers.add(interrupted(lambda: verified(folder), READERS, swaps)[0])

    assert answers == {"intact", f"{folder}: the folder was replaced while it was read; run the same command again"}


def test_a_folder_that_is_gone_at_the_end_is_said_to_be_replaced(tmp_path: Path) -> None:
    folder = seal_set(tmp_path, "a")
    found = scan_chain(folder, VerificationScope(), SYSTEMS.label_names)
    shutil.rmtree(folder)

    with pytest.raises(RetryableError, match="the folder was replaced while it was read; run the same command again"):
        read_and_check(found)


def test_a_check_of_an_artifact_that_is_replaced_meanwhile_has_no_verdict(tmp_path: Path) -> None:
    sealed = open_artifact(seal_set(tmp_path, "a"))
    target = Target(PACKED, "letters", sealed.folder.relative_to(tmp_path), {})
    check = functools.partial(files_match_manifest, sealed, target, tmp_path)
    (_, lines), answers = interrupted(check, (artifact,), {}), set()

    for line in range(1, lines + 1, 3):
        seal_set(tmp_path, "a")
        try:
            verdict, _ = interrupted(check, (artifact,), {line: lambda: seal_set(tmp_path, "b")})
            answers.add(verdict.because)
        except RetryableError as error:
            answers.add(error.what)

    assert answers == {"the folder was replaced while it was read"}


def test_the_state_of_an_artifact_that_is_replaced_meanwhile_is_that_of_one_of_the_two(tmp_path: Path) -> None:
    digests = {open_artifact(seal_set(tmp_path, letter)).manifest.digest for letter in "ba"}
    target = Target(PACKED, "letters", Path("stage_a/packed/letters"), {}, is_external=True)
    (_, lines), states = interrupted(lambda: target.state(tmp_path), (artifact,), {}), set()

    for line in range(1, lines + 1):
        seal_set(tmp_path, "a")
        states.add(interrupted(lambda: target.state(tmp_path), (artifact,), {line: lambda: seal_set(tmp_path, "b")})[0])

    assert states == {("current", digest) for digest in digests}
