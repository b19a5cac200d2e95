"""Memory of the machine, or of a container with less."""

from pathlib import Path

import pytest

from pipeline_assets.spine.machine_memory import memory_bytes


@pytest.mark.parametrize("text", ["max\n", "9223372036854771712\n", "", None])
def test_memory_of_the_machine_counts_without_a_lower_limit(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "memory.max"
    if text is not None:
        file.write_text(text)

    assert memory_bytes([file]) == memory_bytes([]) > 1 << 20


def test_lowest_limit_of_a_container_counts(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("2000000\n")
    (tmp_path / "memory.limit_in_bytes").write_text("1000000\n")

    assert memory_bytes([tmp_path / "memory.max", tmp_path / "memory.limit_in_bytes"]) == 1_000_000
