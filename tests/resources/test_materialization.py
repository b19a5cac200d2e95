"""What the UI shows of an artifact."""

from pathlib import Path

from nemotron_build import build, offline, write_nemotron

from pipeline_assets.corpus.spine.artifact import open_artifact
from pipeline_assets.corpus.spine.engine import RunSettings
from resources.store import metadata_of, table_of


def test_a_report_on_pools_has_its_path_and_figures_of_each_pool(tmp_path: Path) -> None:
    build(write_nemotron(tmp_path), tmp_path / "out", offline(tmp_path / "cache"), RunSettings())
    report = open_artifact(tmp_path / "out" / "nemotron" / "nemotron_v1" / "pool_report")

    metadata = metadata_of(report, was_current=False)

    counts = report.manifest.identity.counts
    assert metadata["report"].value == str(report.path("report.html"))
    assert counts["pools"]["missing_correctness_meta"] > 0
    for pool, rows in counts["pools"].items():
        assert metadata[f"pools_{pool}"].value == rows
    figures = [metadata[name].value for name in ("documents", "tokens", "completion_tokens")]
    assert figures == [counts["documents"], counts["tokens"], counts["completion_tokens"]]
    assert f"| missing_correctness_meta | {counts['pools']['missing_correctness_meta']:,} |" in str(
        metadata["preview"].value
    )


def test_what_a_document_says_is_shown_as_text() -> None:
    rows = [{"doc_id": "<urn:uuid:1>", "characters": "1,200", "text": "![x](http://evil.example/p.png) | a"}]

    assert table_of(rows).splitlines() == [
        "| doc_id | characters | text |",
        "| --- | --- | --- |",
        "| \\<urn:uuid:1\\> | 1,200 | `![x](http://evil.example/p.png) \\| a` |",
    ]
    assert table_of([]) == "(none)"
