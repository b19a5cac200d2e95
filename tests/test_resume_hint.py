"""Whether a failure carries the command that goes on: only where that command could end otherwise."""

from pathlib import Path

import pytest

from pipeline_assets.commands.terminal import resume_hint
from pipeline_assets.corpus.spine.errors import InputError, RetryableError, UsageError
from pipeline_assets.corpus.spine.lock import BuilderBusy


@pytest.mark.parametrize(
    ("error", "is_told"),
    [
        (RetryableError("rate limited", "hub", "run the same command later"), True),
        (BuilderBusy("process 1 is building this", "folder", "wait for it"), True),
        (OSError(28, "No space left on device"), True),
        (InputError("its last line is cut off", Path("notes.jsonl"), "write the file again"), False),
        (UsageError("unknown key `fils`", Path("notes.yaml"), "did you mean `files`?"), False),
    ],
)
def test_the_same_command_is_told_where_it_may_go_on(error: Exception, is_told: bool) -> None:
    with pytest.raises(type(error)) as raised, resume_hint("corpusmill run notes"):
        raise error

    assert getattr(raised.value, "__notes__", []) == ["to go on: corpusmill run notes"] * is_told
