"""The one line that says what is wrong."""

import subprocess


def only_line(result: subprocess.CompletedProcess[str]) -> str:
    """The one line that a wrong command leaves, besides progress and how to go on."""
    assert "Traceback" not in result.stderr, result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("corpusmill: ")]
    assert len(lines) == 1, result.stderr
    return lines[0].removeprefix("corpusmill: ")
