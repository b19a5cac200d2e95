"""The documented backup contains all sources and artifacts of a data root."""

import subprocess
from pathlib import Path

import pytest
from command_results import code_blocks

PAGE = Path(__file__).parents[1] / "docs" / "operations.md"
KEPT = (
    "sources/app/poetry.lock",
    "sources/app/plan.building.md",
    "sources/rebuilds/page.md",
    "sources/dagster/hub_cache/page.md",
    "stage_a/notes/raw/web/manifest.json",
    "stage_a/notes/raw/.web.checks.json",
    "stage_a/notes/raw/.web.old.3/manifest.json",
)
LEFT_OUT = (
    "hub_cache/file",
    "rebuilds/copy",
    "dagster/history/runs.db",
    "stage_a/notes/raw/.web.lock",
    "stage_a/notes/raw/.web.building.2/shards/00000.parquet",
)


@pytest.mark.skipif("GNU" not in subprocess.getoutput("tar --version"), reason="the patterns are those of GNU tar")
def test_a_restored_backup_lacks_only_what_is_fetched_or_built_again(tmp_path: Path) -> None:
    [command] = [block for block in code_blocks(PAGE) if block.startswith("tar ")]
    both_tars = command.partition("\ncorpusmill")[0]
    for name in (*KEPT, *LEFT_OUT):
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).touch()

    restored = tmp_path / "restored"
    restored.mkdir()

    subprocess.run(both_tars, shell=True, check=True, cwd=tmp_path)

    files = {path.relative_to(restored).as_posix() for path in restored.rglob("*") if path.is_file()}
    assert files == {*KEPT}
