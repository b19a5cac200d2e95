"""Rows are written from complete token runs only."""

import os
from pathlib import Path

import pytest
from pack_build import pack_documents, sized_documents

from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import RetryableError
from pipeline_assets.spine.staging import WORK_FOLDER


def test_a_truncated_token_run_gives_no_rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_a_run(kind: durable.Operation, path: Path) -> None:  # before the row file exists
        if kind == "create" and path.name.startswith(".input_ids.mmap."):
            run = min((path.parent / WORK_FOLDER / "encoded").glob("*/*.tokens"))
            os.truncate(run, run.stat().st_size - 4)

    monkeypatch.setattr(durable, "failpoint", cut_a_run)

    with pytest.raises(RetryableError, match=r"\.tokens: the file of token ids ends early; run the same command again"):
        pack_documents(folder, [*sized_documents("a", [3, 5]), *sized_documents("b", [8])], 2)
