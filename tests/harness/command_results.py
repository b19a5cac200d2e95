"""Results of typed commands, and the commands that the docs show."""

import itertools
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

Typed = subprocess.CompletedProcess[str]
Corpusmill = Callable[..., Typed]
Started = Callable[..., subprocess.Popen[str]]
Wrong = Callable[..., tuple[int, str]]
RecipeIn = Callable[..., Path]
DOCS = Path(__file__).parents[2] / "docs"


def only_line(result: Typed) -> str:
    """The one line that a wrong command leaves, besides progress and how to go on."""
    assert "Traceback" not in result.stderr, result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("corpusmill: ")]
    assert len(lines) == 1, result.stderr
    return lines[0].removeprefix("corpusmill: ")


def refused(result: Typed, status: int = 2) -> str:
    """The one line that a command leaves which does nothing, and says nothing else."""
    assert (result.returncode, result.stdout) == (status, "")
    assert result.stderr.count("\n") == 1, result.stderr
    return only_line(result)


def table_of(answer: Typed, title: str) -> dict[str, dict[str, str]]:
    """A table of counts that a command printed, by the names of its rows; columns of zeros alone aren't in it."""
    lines = [re.split(" {2,}", line.strip()) for line in answer.stdout.splitlines()]
    head = next(number for number, cells in enumerate(lines) if cells[0] == title)
    rows = itertools.takewhile(lambda cells: len(cells) == len(lines[head]), lines[head + 1 :])
    return {name: dict(zip(lines[head][1:], cells, strict=True)) for name, *cells in rows}


def blocks_of(page: Path, language: str = "") -> list[str]:
    """The code blocks of a page that say this language; those that say none."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [block for said, block in blocks if said == language]


def commands_of(page: Path) -> list[list[str]]:
    """The words after every `corpusmill` of a page's code blocks, without comments."""
    lines = "".join(blocks_of(page)).replace("\\\n", "").splitlines()
    commands = [shlex.split(line, comments=True) for line in lines if "corpusmill " in line.split("#")[0]]
    return [words[1:] for words in commands if words[0].endswith("corpusmill")]


def type_page(name: str, corpusmill: Corpusmill, doc_id: str = "", **options: object) -> list[tuple[list[str], Typed]]:
    """Types every command of a page of docs/, which all succeed; `doc_id` stands for DOC_ID."""
    answers = []
    for command in commands_of(DOCS / name):
        words = [doc_id if word == "DOC_ID" else word for word in command]
        answers.append((words, corpusmill(*words, **options)))
        assert answers[-1][1].returncode == 0, f"{shlex.join(words)}\n{answers[-1][1].stderr}"
    return answers
