"""Notebooks of examples/ run from the first cell to the last."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def test_examples_are_two_notebooks() -> None:
    assert [path.name for path in NOTEBOOKS] == ["candidate_pools.ipynb", "own_folder.ipynb"]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_without_errors_and_shows_tables_and_plots(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    book = nbformat.read(path, as_version=4)

    NotebookClient(book, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()

    outputs = [
        output["data"].get("text/html", "")
        for cell in book.cells
        for output in cell.get("outputs", ())
        if "data" in output
    ]
    assert any("<table>" in text for text in outputs) and any("<svg" in text for text in outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_stored_without_outputs(path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells

    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in cells)
