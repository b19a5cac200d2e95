"""`corpusmill run` of several splits of which one can't be built."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from one_line import only_line

pytestmark = pytest.mark.slow
Corpusmill = Callable[..., subprocess.CompletedProcess[str]]
SPLITS = ("good", "poor", "right")


def test_a_split_that_fails_keeps_none_of_the_others_from_being_built(corpusmill: Corpusmill, tmp_path: Path) -> None:
    chats = tmp_path / "chats"
    chats.mkdir()
    for split in SPLITS:
        (chats / f"{split}.jsonl").write_text(json.dumps({"messages": [{"role": "user", "content": split}]}) + "\n")
    (chats / "poor.jsonl").write_text('{"messages": []}\n')
    written = corpusmill(
        "nemotron", "normalize", "--dataset", chats, "--domain", "math", "--out-dir", tmp_path / "made"
    )
    [recipe] = (tmp_path / "made" / "recipes").glob("*.yaml")

    result = corpusmill("run", recipe, "--data", tmp_path / "again")

    role, why = "nemotron/normalized_shards/chats/poor", "1 of 1 rows are rejected (1 no_messages)"
    assert written.returncode == result.returncode == 1
    [failed] = [line for line in result.stderr.splitlines() if line.startswith("FAILED ")]
    assert failed.startswith(f"FAILED {role}: ") and why in failed
    assert only_line(result) == (
        f"{recipe}: 1 of 6 artifacts failed: {role}; the lines that begin with FAILED say why; "
        "what isn't made from them is built"
    )
    built = tmp_path / "again" / "nemotron" / "normalize-chats" / "normalized_shards" / "chats"
    assert sorted(path.parent.name for path in built.glob("*/manifest.json")) == ["good", "right"]

    again = corpusmill("run", recipe, "--data", tmp_path / "again")
    assert why in only_line(again)
