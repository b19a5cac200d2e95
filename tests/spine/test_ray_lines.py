"""Lines of Ray's core on stderr are hidden while it connects."""

import os
from pathlib import Path

import pytest

from pipeline_assets.spine.ray_engine import _discard_stderr


def test_stderr_is_restored_after_the_block_and_no_descriptor_leaks(capfd: pytest.CaptureFixture[str]) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))

    with pytest.raises(ConnectionError), _discard_stderr():
        os.write(2, b"a try to connect\n")
        raise ConnectionError
    os.write(2, b"an error\n")

    assert capfd.readouterr().err == "an error\n"
    assert len(list(Path("/proc/self/fd").iterdir())) == before
