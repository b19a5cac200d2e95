"""The folder of real samples, which only `make test-real` passes on."""

import os
from pathlib import Path

import pytest

VARIABLE = "CORPUSMILL_TEST_SAMPLES"


def sample(name: str) -> Path:
    """Return the path of a sample, such as `c4/c4_rows.jsonl`; fail if no folder is set."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.fail(f"{VARIABLE} is not set; run `make test-real SAMPLES=FOLDER`", pytrace=False)
    return Path(folder, name)
