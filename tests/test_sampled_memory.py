"""Process trees keep their memory limit, sampled twenty times a second.

`make test-slow` runs these tests alone: on a busy machine, samples are late, and pages that other processes share count
in part only.
"""

from pathlib import Path

import pytest
from corpus import write_shards
from dedup import write_editions
from measure import measure
from stage2 import prepare

PROJECT = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.parametrize(("flow", "limit_mib"), [("corpusmill", 450), ("corpusmill, 2 workers", 700)])
def test_deduplication_keeps_its_memory_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flow: str, limit_mib: int
) -> None:
    monkeypatch.setenv("CORPUSMILL_MEMORY_MIB", str(limit_mib))
    source, peaks = tmp_path / "source", {}
    source.mkdir()
    paths, _, _ = write_shards(source, 200)

    for editions in (4, 16):  # of a sixteenth: about 50 MB, and four times that
        write_editions(paths, tmp_path / f"{editions}", editions)
        script = PROJECT / "benchmarks" / "dedup_flows.py"
        peaks[editions] = measure(script, [flow, str(tmp_path / f"{editions}")], 1).peak_mb

    assert max(peaks.values()) <= limit_mib, peaks


@pytest.mark.slow
def test_a_mixture_of_four_times_the_text_keeps_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_mib, peaks, source = 400, dict[int, float](), tmp_path / "source"
    monkeypatch.setenv("CORPUSMILL_MEMORY_MIB", str(limit_mib))
    source.mkdir()
    paths, _, _ = write_shards(source, 200)

    for editions in (2, 8):  # of a sixteenth: about 25 MB, and four times that
        write_editions(paths, tmp_path / f"{editions}", editions)
        prepare(tmp_path / f"root{editions}", tmp_path / f"{editions}")
        script = PROJECT / "benchmarks" / "stage2_flows.py"
        peaks[editions] = measure(script, ["mixture", str(tmp_path / f"root{editions}")], 1).peak_mb

    assert max(peaks.values()) <= limit_mib, peaks
