"""The five sources of the demo's stage A: the same bytes each time, in the formats that their readers know."""

import bz2
import json
from itertools import combinations
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest

from pipeline_assets.demo_library import write_help_dataset
from pipeline_assets.demo_sources import SITE, paragraphs, place_name, write_sources


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    write_help_dataset(folder / "help")
    write_sources(folder / "files")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def shingles(text: str) -> set[tuple[str, ...]]:
    words = text.split()
    return {tuple(words[place : place + 5]) for place in range(len(words) - 4)}


def test_the_same_bytes_are_written_elsewhere(folder: Path, tmp_path: Path) -> None:
    write_help_dataset(tmp_path / "help")
    write_sources(tmp_path / "files")

    assert contents(tmp_path) == contents(folder)


def test_files_that_are_there_keep_their_times(folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}

    write_help_dataset(folder / "help")
    write_sources(folder / "files")

    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_each_source_is_in_its_own_format(folder: Path) -> None:
    assert sorted(contents(folder / "files")) == [
        f"{SITE}/Posts.xml",
        "notes/notes.jsonl",
        *(f"notes/texts/{number}.txt" for number in range(4)),
        "papers/papers.parquet",
        "quiz/quiz.jsonl",
        "wikipedia/AA/wiki_00.bz2",
        "wikipedia/AA/wiki_01.bz2",
    ]
    page = bz2.decompress((folder / "files/wikipedia/AA/wiki_00.bz2").read_bytes()).decode()
    assert page.startswith(
        '<doc id="1" url="https://en.wikipedia.org/wiki?curid=1" title="Ashmere">\nAshmere\n\nAshmere is'
    )


def test_the_dataset_repeats_one_id_of_a_row_that_is_read(folder: Path) -> None:
    rows = [row for path in sorted((folder / "help/data").iterdir()) for row in pq.read_table(path).to_pylist()]

    repeated = [row for row in rows if sum(other["id"] == row["id"] for other in rows) > 1]
    assert len(repeated) == 2 and all(row["int_score"] >= 3 for row in repeated)


def test_the_quiz_asks_what_a_page_and_a_paper_say(folder: Path) -> None:
    questions = [json.loads(line)["question"] for line in (folder / "files/quiz/quiz.jsonl").read_text().splitlines()]
    pages = "".join(bz2.decompress(path.read_bytes()).decode() for path in (folder / "files/wikipedia/AA").iterdir())
    papers = [body["text"] for body in pq.read_table(folder / "files/papers/papers.parquet")["body"].to_pylist()]

    assert questions[0] in pages and any(questions[1] in paper for paper in papers)
    assert not any(question in pages or any(question in paper for paper in papers) for question in questions[2:])


def test_made_up_texts_are_nothing_like_each_other() -> None:
    texts = [shingles(" ".join(paragraphs(Random(f"text {number}"), 3))) for number in range(30)]

    alike = [len(one & other) / len(one | other) for one, other in combinations(texts, 2)]
    assert max(alike) < 0.2


def test_places_have_different_names() -> None:
    assert len({place_name(number) for number in range(96)}) == 96
