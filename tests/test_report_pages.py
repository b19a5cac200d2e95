"""Reports as pages: links in the UI lead to `report.html` and nothing else."""

import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from nemotron_build import build, offline, write_nemotron

from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.ui import serve_reports
from resources.artifact_metadata import REPORTS_VARIABLE, artifact_metadata

FOLDER = "stage_a/mixed/report/mixed"


@pytest.fixture
def address(built_notes: Path) -> Iterator[str]:
    with serve_reports(built_notes, 0) as variables:
        yield variables[REPORTS_VARIABLE]


def test_the_link_of_a_materialization_leads_to_the_report(
    built_notes: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REPORTS_VARIABLE, address)

    link = str(artifact_metadata(open_artifact(built_notes / FOLDER), SYSTEMS.kinds, was_current=False)["report"].value)
    with urllib.request.urlopen(link) as response:
        page, policy = response.read(), response.headers["Content-Security-Policy"]

    assert page == (built_notes / FOLDER / "report.html").read_bytes()
    assert policy.startswith("default-src 'none'")


def test_a_report_on_pools_has_the_figures_of_each_pool(tmp_path: Path) -> None:
    root = tmp_path / "out"
    build(write_nemotron(tmp_path), root, offline(tmp_path / "cache"), RunSettings())
    report = open_artifact(root / "nemotron" / "nemotron_v1" / "pool_report")

    metadata = artifact_metadata(report, SYSTEMS.kinds, was_current=False)

    counts = report.manifest.identity.counts
    assert counts["pools"]["missing_correctness_meta"] > 0
    for pool, rows in counts["pools"].items():
        assert metadata[f"pools_{pool}"].value == rows
    figures = [metadata[name].value for name in ("documents", "tokens", "completion_tokens")]
    assert figures == [counts["documents"], counts["tokens"], counts["completion_tokens"]]
    assert f"| missing_correctness_meta | {counts['pools']['missing_correctness_meta']:,} |" in str(
        metadata["preview"].value
    )


def test_reports_have_no_link_without_a_server(built_notes: Path) -> None:
    assert "report" not in artifact_metadata(open_artifact(built_notes / FOLDER), SYSTEMS.kinds, was_current=False)


@pytest.mark.parametrize(
    "path",
    [
        f"{FOLDER}/report.json",
        f"{FOLDER}/../mixed/report.html",
        "stage_a/mixed/packed/mixed/report.html",
        "recipes/mixed.yaml",
        "../../etc/passwd",
        "%00/report.html",
        "report.html",
        "",
    ],
)
def test_other_files_are_not_served(path: str, address: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{address}/{path}")


def test_a_used_or_invalid_port_is_replaced_by_a_free_one(built_notes: Path, address: str) -> None:
    used = int(address.rpartition(":")[2])

    for port in (used, 65536):
        with serve_reports(built_notes, port) as variables:
            assert variables[REPORTS_VARIABLE] != address
