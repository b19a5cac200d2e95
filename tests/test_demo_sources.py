"""The made files of the demo: the same bytes everywhere, and the sources of stage A in the formats of their readers."""

import bz2
import hashlib
import io
import json
from itertools import combinations, pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from pipeline_assets.demo.corpora import FILES, SITE, write_inputs
from pipeline_assets.demo.texts import Draw, foreign_texts, module, page, paragraphs, place_name, translated

SOURCES = "sources"


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    """Files of stage A by path below the data root."""
    return dict(FILES["stage_a"]())


def rows_of_handbook(files: dict[str, bytes]) -> list[dict[str, object]]:
    tables = [pq.read_table(io.BytesIO(data)) for path, data in files.items() if "/handbook/data/" in path]
    return [row for table in tables for row in table.to_pylist()]


def test_splitmix64_is_that_of_its_paper() -> None:
    draw = Draw(1234567)

    assert [draw.bits() for _ in range(3)] == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_texts_are_the_same_on_every_machine_and_python() -> None:
    texts = [page("edu", number).text for number in range(80)] + [module(number) for number in range(20)]
    texts += [*foreign_texts(0), translated(texts[0]), *map(place_name, range(96))]

    assert (
        hashlib.sha256("\n".join(texts).encode()).hexdigest()
        == "b2195b8d07f734cc4a4a5ecc619953b3deddf63f3f4a0678755b2336b002bf2c"
    )


@pytest.mark.parametrize(
    ("system", "sha256"),
    [
        ("healing", "48db9d9dbd107162037a84e1b93288ede3b7a2af866dbb1c3c150a842cef22d2"),
        ("stage_a", "01ccd24a2323857dc41e4288de445efa613998b4af7daefc827ffffa243aad53"),
        ("nemotron", "228d83b2544c069c7e6539bd185a52873bd35d9bf7f8cbca0432fec29e94c080"),
        ("stage2", "56dc6317f6887d2b9bfeb4fde60661a0df4ac64d42de3f59b92a4cbeb648f4de"),
        ("parallel_text", "f204f88fa0254f628eca58884d0b526f3a0c74234bb553d72b0ba1bee795bbe9"),
    ],
)
def test_files_are_the_same_where_libraries_have_the_pinned_versions(system: str, sha256: str) -> None:
    content = hashlib.sha256()
    for path, data in FILES[system]():
        content.update(path.encode() + b"\0" + data)

    assert content.hexdigest() == sha256


def test_files_that_are_there_keep_their_times_and_others_are_written_again(tmp_path: Path) -> None:
    write_inputs(tmp_path, "parallel_text")
    [card] = tmp_path.rglob("README.md")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    text = card.read_text()
    card.write_text("cut off")

    write_inputs(tmp_path, "parallel_text")

    assert before and {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")} == before
    assert card.read_text() == text


@pytest.mark.parametrize("system", FILES)
def test_cards_say_that_they_are_stand_ins_and_where_the_files_are(system: str) -> None:
    files = dict(FILES[system]())
    cards = {path: data.decode() for path, data in files.items() if path.endswith("README.md")}

    assert cards
    for path, card in cards.items():
        name = "/".join(path.split("/")[2:4])
        _, head, text = card.split("---\n")
        assert f"This is not {name} and holds none of its text." in text
        assert "licence" not in head and yaml.safe_load(head)["pretty_name"] == name.split("/")[1]


def test_each_source_is_in_its_own_format(files: dict[str, bytes]) -> None:
    assert sorted(path for path in files if path.startswith(SOURCES)) == [
        f"{SOURCES}/{SITE}/Posts.xml",
        f"{SOURCES}/notes/notes.jsonl",
        *(f"{SOURCES}/notes/texts/{number}.txt" for number in range(4)),
        f"{SOURCES}/papers/papers.parquet",
        f"{SOURCES}/quiz/quiz.jsonl",
        f"{SOURCES}/wikipedia/AA/wiki_00.bz2",
        f"{SOURCES}/wikipedia/AA/wiki_01.bz2",
    ]
    text = bz2.decompress(files[f"{SOURCES}/wikipedia/AA/wiki_00.bz2"]).decode()
    assert text.startswith(
        '<doc id="1" url="https://en.wikipedia.org/wiki?curid=1" title="Ashmere">\nAshmere\n\nAshmere is'
    )


def test_the_dataset_repeats_one_id_of_a_row_that_is_read(files: dict[str, bytes]) -> None:
    rows = rows_of_handbook(files)

    repeated = [row for row in rows if sum(other["id"] == row["id"] for other in rows) > 1]
    assert len(repeated) == 2 and all(row["int_score"] >= 3 for row in repeated)


def test_the_quiz_asks_what_an_article_and_a_paper_say(files: dict[str, bytes]) -> None:
    questions = [json.loads(line)["question"] for line in files[f"{SOURCES}/quiz/quiz.jsonl"].splitlines()]
    articles = "".join(bz2.decompress(data).decode() for path, data in files.items() if path.endswith(".bz2"))
    bodies = pq.read_table(io.BytesIO(files[f"{SOURCES}/papers/papers.parquet"]))["body"].to_pylist()
    papers = [body["text"] for body in bodies]

    assert questions[0] in articles and any(questions[1] in paper for paper in papers)
    assert not any(question in articles or any(question in paper for paper in papers) for question in questions[2:])


def shingles(text: str) -> set[tuple[str, ...]]:
    words = text.split()
    return {tuple(words[place : place + 5]) for place in range(len(words) - 4)}


def test_made_up_texts_are_nothing_like_each_other() -> None:
    texts = [shingles(" ".join(paragraphs(Draw.named(f"text {number}"), 3))) for number in range(30)]

    alike = [len(one & other) / len(one | other) for one, other in combinations(texts, 2)]
    assert max(alike) < 0.2


def test_places_have_different_names() -> None:
    assert len({place_name(number) for number in range(96)}) == 96


def test_foreign_texts_differ_by_the_order_of_their_sentences() -> None:
    for one, other in pairwise(foreign_texts(order) for order in range(5)):
        assert all(a != b and sorted(a.split()) != [] for a, b in zip(one, other, strict=True))
