"""Fixtures for tests of exports for trainers: text, conversations and a command."""

from pathlib import Path

import pytest
from command_results import Corpusmill, Export
from subset_pools import build_subsets, scored, talk

from pipeline_assets.spine.artifact import Artifact


@pytest.fixture
def corpus(notes_root: Path) -> Path:
    return notes_root / "stage_a" / "mixed" / "filtered" / "notes"


@pytest.fixture
def subsets(tmp_path: Path) -> Artifact:
    """Build subsets of six conversations; `c` exceeds short rows."""
    rows = [
        talk(name, answer) for name, answer in zip("abcdef", ["4", "four", "4 " * 40, "5", "six", "7"], strict=True)
    ]
    splits = [scored(tmp_path / "scores", "chat/train", rows, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6])]
    return build_subsets(
        tmp_path / "nemotron", splits, {"all": {}, "easy": {"percentile": [0, 50]}}, tokens=True, disjoint=False
    )


@pytest.fixture
def export(corpusmill: Corpusmill, tmp_path: Path) -> Export:
    """Return a function that runs an export and returns its folder."""

    def run_export(source: Path, to: str, *options: object, **env: str) -> Path:
        out = tmp_path / f"out_{len([*tmp_path.glob('out_*')])}"
        data = () if "stage_a" in source.parts else ("--data", tmp_path)
        result = corpusmill("export", source, "--to", to, "--out", out, *data, *options, env=env)
        assert result.returncode == 0, result.stderr
        return out

    return run_export
