"""Guards against tests that pass by accident, without rows or samples."""

import re
import tomllib
from pathlib import Path

import pytest
from real_samples import VARIABLE, sample, some

PROJECT = Path(__file__).parents[1]


def test_a_loop_over_no_rows_fails() -> None:
    assert some(iter("ab")) == ["a", "b"]

    with pytest.raises(AssertionError, match="at least one item"):
        some([])


def test_a_sample_fails_without_a_configured_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(pytest.fail.Exception, match="run `make test-real SAMPLES=FOLDER`"):
        sample("c4/c4_rows.jsonl")

    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert sample("c4/c4_rows.jsonl") == tmp_path / "c4" / "c4_rows.jsonl"


def test_no_test_looks_for_samples_next_to_the_checkout() -> None:
    tests = {path: path.read_text(encoding="utf-8") for path in (PROJECT / "tests").rglob("*.py")}

    assert [path.name for path, text in tests.items() if VARIABLE in text] == ["real_samples.py"]
    assert [
        path.name for path, text in tests.items() if re.search(r'parents?(?:\[\d\])?(?:\.\w+)* / "shared"', text)
    ] == []


def test_pytest_runs_the_quick_tests_by_default() -> None:
    options = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]

    assert options["addopts"].endswith("-m 'not slow and not proof and not real'")
    assert options["empty_parameter_set_mark"] == "fail_at_collect"
