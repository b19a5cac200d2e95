"""Results of commands and examples in the docs."""

import itertools
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

Result = subprocess.CompletedProcess[str]
Corpusmill = Callable[..., Result]
Started = Callable[..., subprocess.Popen[str]]
Wrong = Callable[..., tuple[int, str]]
RecipeIn = Callable[..., Path]
Export = Callable[..., Path]
DOCS = Path(__file__).parents[2] / "docs"


def only_line(result: Result) -> str:
    """Return the only `corpusmill:` line of a failed command."""
    assert "Traceback" not in result.stderr, result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("corpusmill: ")]
    assert len(lines) == 1, result.stderr
    return lines[0].removeprefix("corpusmill: ")


def refused(result: Result, status: int = 2) -> str:
    """Return the only line of a command that refuses and prints nothing else."""
    assert (result.returncode, result.stdout) == (status, "")
    assert result.stderr.count("\n") == 1, result.stderr
    return only_line(result)


def read_table(answer: Result, title: str) -> dict[str, dict[str, str]]:
    """Parse a printed table of counts; return its cells by row and column."""
    lines = [re.split(" {2,}", line.strip()) for line in answer.stdout.splitlines()]
    head = next(number for number, cells in enumerate(lines) if cells[0] == title)
    rows = itertools.takewhile(lambda cells: len(cells) == len(lines[head]), lines[head + 1 :])
    return {name: dict(zip(lines[head][1:], cells, strict=True)) for name, *cells in rows}


def code_blocks(page: Path, language: str = "") -> list[str]:
    """Return the code blocks of a page in a language."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [block for block_language, block in blocks if block_language == language]


def read_commands(page: Path) -> list[list[str]]:
    """Return the arguments of each `corpusmill` command in a page's code blocks."""
    lines = "".join(code_blocks(page)).replace("\\\n", "").splitlines()
    commands = [shlex.split(line, comments=True) for line in lines if "corpusmill " in line.split("#")[0]]
    return [words[1:] for words in commands if words[0].endswith("corpusmill")]


def type_page(name: str, corpusmill: Corpusmill, doc_id: str = "", **options: object) -> list[tuple[list[str], Result]]:
    """Run every command of a page of docs/, with `doc_id` as DOC_ID; all succeed."""
    answers = []
    for command in read_commands(DOCS / name):
        words = [doc_id if word == "DOC_ID" else word for word in command]
        answers.append((words, corpusmill(*words, **options)))
        assert answers[-1][1].returncode == 0, f"{shlex.join(words)}\n{answers[-1][1].stderr}"
    return answers
