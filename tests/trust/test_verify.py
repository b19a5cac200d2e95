"""Verification of an artifact and its chain against their manifests.

One changed bit anywhere is found, and unread files get no verdict. An artifact that is replaced during the verification
is intact or reported as replaced, never damaged.
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
from pipeline_assets.spine import artifact
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.errors import InputError, RetryableError
from pipeline_assets.spine.folder_exchange import exchange
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.systems.stage_a import PACKED
from pipeline_assets.trust import verify as reader
from pipeline_assets.trust.result import FileSample, Verification, VerificationScope, verification_json
from pipeline_assets.trust.verify import read_and_check, scan_chain

SET = Path("megatron", "pages_v1")
READERS = (reader, artifact)
pytestmark = pytest.mark.usefixtures("without_fsync")


def finding_paths(result: Verification, root: Path) -> set[str]:
    return {finding.where.relative_to(root).as_posix() for finding in result.findings}


def test_an_untouched_chain_is_intact_in_every_scope(pristine: Path) -> None:
    result = verify(pristine / SET, pristine)
    alone = verify(pristine / SET)

    assert verify(pristine / SET, pristine, "100%").verdict == "intact"
    assert (alone.verdict, alone.hub_check, len(alone.tasks)) == ("intact", None, 8)
    assert (result.verdict, result.findings, result.unread_tasks) == ("intact", [], [])
    assert [artifact.manifest.kind for artifact in result.chain.artifacts] == [
        "healing/megatron_dataset",
        "healing/megatron_split",
        "healing/megatron_split",
        "healing/healing_text_manifest",
        "healing/fineweb_edu_snapshot",
    ]
    assert len(result.tasks) == 4 + 4 + 5
    assert [name.rpartition(":")[2] for name in result.hub_check.whole_files] == ["a.parquet"]
    assert [name.rpartition(":")[2] for name in result.hub_check.partial_files] == ["b.parquet"]


def test_one_flipped_bit_anywhere_in_the_chain_is_located(chain_root: Path) -> None:
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
                result = verify(chain_root / SET, chain_root)
            except InputError as refused:
                assert refused.where == str(path)
                continue
            assert result.verdict == "damaged", (where, position)
            text = " ".join([*finding_paths(result, chain_root), *(finding.what for finding in result.findings)])
            assert where in text or where.split("/")[0] == "hub_cache", (where, text)
        path.write_bytes(sealed)
    assert verify(chain_root / SET, chain_root).verdict == "intact"


def test_a_damaged_cached_file_is_reported_with_a_fix(chain_root: Path) -> None:
    for path in chain_root.glob("hub_cache/*/bytes/*/*"):
        path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])

    result = verify(chain_root / SET, chain_root)

    assert len(result.findings) == 5
    assert all(finding.what.endswith(f"; {CACHE_FIX}") for finding in result.findings)
    assert sum("the hub lists" in finding.what for finding in result.findings) == 1


def test_an_empty_cache_is_reported_as_unavailable_without_finding(chain_root: Path) -> None:
    shutil.rmtree(chain_root / "hub_cache")

    result = verify(chain_root / SET, chain_root)

    assert result.verdict == "intact"
    assert result.hub_check is not None and len(result.hub_check.unavailable) == 2


def test_a_missing_upstream_is_a_finding_and_others_are_checked(chain_root: Path) -> None:
    shutil.rmtree(chain_root / "selections" / "pages_v1")
    tokens = chain_root / SET / "valid" / "tokens.bin"
    tokens.write_bytes(bytes(tokens.stat().st_size))

    result = verify(chain_root / SET, chain_root, "100%")

    assert finding_paths(result, chain_root) == {"megatron/pages_v1", "megatron/pages_v1/valid/tokens.bin"}
    # Only the missing selection names the snapshot.
    assert len(result.chain.artifacts) == 3
    assert result.verdict == "damaged"
    assert [result.is_damaged(artifact) for artifact in result.chain.artifacts] == [False, False, True]


@pytest.mark.parametrize("share", ["1%", "10%", "50%"])
def test_a_sample_has_its_own_verdict_and_reads_no_more_than_its_share(pristine: Path, share: str) -> None:
    result = verify(pristine / SET, pristine, share)

    sample = FileSample.parse(share)
    assert result.verdict == "intact of a sample"
    assert 100 * sample.share >= result.percent_read
    assert result.unread_tasks and len(result.unread_tasks) < len(result.all_tasks)
    assert {result.task_state(task) for task in result.unread_tasks} == {"not_read"}


def test_files_outside_a_sample_must_exist_with_their_size(chain_root: Path) -> None:
    (chain_root / SET / "train" / "tokens.bin").unlink()
    (chain_root / SET / "valid" / "tokens.bin").write_bytes(b"short")

    result = verify(chain_root / SET, None, "1%")

    assert finding_paths(result, chain_root) == {
        "megatron/pages_v1/train/tokens.bin",
        "megatron/pages_v1/valid/tokens.bin",
    }


def test_the_report_has_the_state_of_every_file(chain_root: Path) -> None:
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


def verdict_or_error(folder: Path) -> str:
    """Return the verdict of `verify`, or the line of its error."""
    try:
        return verify(folder).verdict
    except InputError as error:
        return str(error)


def test_a_folder_replaced_at_any_line_is_not_called_damaged(tmp_path: Path) -> None:
    folder = seal_set(tmp_path, "a")
    outcome, lines = interrupted(lambda: verdict_or_error(folder), READERS, {})
    outcomes = {outcome}

    for line in range(1, lines + 1):
        seal_set(tmp_path, "a")
        outcomes.add(interrupted(lambda: verdict_or_error(folder), READERS, {line: lambda: seal_set(tmp_path, "b")})[0])

    assert outcomes == {"intact", f"{folder}: the folder was replaced while it was read; run the same command again"}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no system call exchanges folders there")
def test_folders_swapped_twice_are_not_called_damaged(tmp_path: Path) -> None:
    folder, other = seal_set(tmp_path, "a"), seal_set(tmp_path / "other", "b")
    outcome, lines = interrupted(lambda: verdict_or_error(folder), READERS, {})
    outcomes = {outcome}

    def swap_folders() -> None:
        assert exchange(other, folder)

    for first in range(1, lines + 1, 4):
        for second in range(first + 1, lines + 60, 13):
            swaps = {first: swap_folders, second: swap_folders}
            outcomes.add(interrupted(lambda: verdict_or_error(folder), READERS, swaps)[0])

    assert outcomes == {"intact", f"{folder}: the folder was replaced while it was read; run the same command again"}


def test_a_folder_removed_during_verification_is_reported_as_replaced(tmp_path: Path) -> None:
    folder = seal_set(tmp_path, "a")
    result = scan_chain(folder, VerificationScope(), SYSTEMS.label_names)
    shutil.rmtree(folder)

    with pytest.raises(RetryableError, match="the folder was replaced while it was read; run the same command again"):
        read_and_check(result)


def test_a_check_of_an_artifact_replaced_during_it_has_no_verdict(tmp_path: Path) -> None:
    sealed = open_artifact(seal_set(tmp_path, "a"))
    target = Target(PACKED, "letters", sealed.folder.relative_to(tmp_path), {})
    check = functools.partial(files_match_manifest, sealed, target, tmp_path)
    (_, lines), outcomes = interrupted(check, (artifact,), {}), set()

    for line in range(1, lines + 1, 3):
        seal_set(tmp_path, "a")
        try:
            verdict, _ = interrupted(check, (artifact,), {line: lambda: seal_set(tmp_path, "b")})
            outcomes.add(verdict.because)
        except RetryableError as error:
            outcomes.add(error.what)

    assert outcomes == {"the folder was replaced while it was read"}


def test_the_state_of_an_artifact_being_replaced_is_the_old_or_the_new_one(tmp_path: Path) -> None:
    digests = {open_artifact(seal_set(tmp_path, letter)).manifest.digest for letter in "ba"}
    target = Target(PACKED, "letters", Path("stage_a/packed/letters"), {}, is_external=True)
    (_, lines), states = interrupted(lambda: target.state(tmp_path), (artifact,), {}), set()

    for line in range(1, lines + 1):
        seal_set(tmp_path, "a")
        states.add(interrupted(lambda: target.state(tmp_path), (artifact,), {line: lambda: seal_set(tmp_path, "b")})[0])

    assert states == {("current", digest) for digest in digests}
