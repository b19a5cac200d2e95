"""Data roots that an earlier version sealed, one per system: they can still be listed, verified and traced."""

import tarfile
from pathlib import Path

import pytest
from command_results import Corpusmill

ROOTS = Path(__file__).with_name("golden") / "roots"
ARTIFACTS = {"healing": 5, "stage_a": 15, "nemotron": 25, "stage2": 12, "parallel_text": 3}
TRACES = {
    "healing": (
        "megatron/pages_v1/train --token 100",
        ["source    maker/leaves@6b78669d5c60306215ced997013432636ad93a75:a.parquet#8", "licence   cc0 (recipe)"],
    ),
    "stage_a": (
        "stage_a/mixed/packed/mixed --token 50",
        ["document  leaf-18", "maker/leaves@6b78669d5c60306215ced997013432636ad93a75:a.parquet#18"],
    ),
    "nemotron": (
        "nemotron/nemotron_v1/training_subsets --row 0",
        ["nemotron/high_part01.jsonl#610", "licence   cc-by-4.0 (row: license)", "asked     1 + 2?"],
    ),
    "stage2": (
        "stage2/local/shards/first --token 10",
        ["mixture/first/rows.jsonl#0", "licence   cc0-1.0 (recipe)", "text      The late cana»l«sheltered"],
    ),
    "parallel_text": (
        "parallel_text/pairs/token_cache --row 0",
        ["pair      03a812032d87add7e6c047aa8f41e4a6", "pairs/validation-0.jsonl#842"],
    ),
}


@pytest.fixture(params=ARTIFACTS)
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(ROOTS / f"{request.param}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / request.param


def folders_of(root: Path) -> list[Path]:
    return sorted(manifest.parent for manifest in root.rglob("manifest.json"))


def test_status_lists_every_artifact_of_an_earlier_version(corpusmill: Corpusmill, root: Path) -> None:
    result = corpusmill("status", "--data", root)

    assert result.stderr == ""
    assert [folder for folder in folders_of(root) if str(folder.relative_to(root)) not in result.stdout] == []


def test_every_artifact_of_an_earlier_version_is_intact(corpusmill: Corpusmill, root: Path) -> None:
    assert len(folders_of(root)) == ARTIFACTS[root.name]
    for folder in folders_of(root):
        result = corpusmill("verify", folder, "--data", root)
        assert (result.returncode, result.stdout[:7]) == (0, "intact:"), result.stderr


def test_a_token_or_row_of_an_earlier_version_is_traced_to_its_source(corpusmill: Corpusmill, root: Path) -> None:
    place, parts = TRACES[root.name]

    result = corpusmill("trace", *f"{root}/{place}".split())

    assert result.returncode == 0, result.stderr
    for part in parts:
        assert part in result.stdout
