"""What the demo is made of, the same bytes each time: real English from the running Python in FineWeb-Edu's columns and
folders, and the five sources of stage A in the formats that their readers know.
"""

import bz2
import json
from collections import Counter
from itertools import combinations
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from samples import some

from pipeline_assets.demo.library import write_fineweb_edu, write_help_dataset
from pipeline_assets.demo.stage_a import SITE, paragraphs, place_name, write_sources


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


TextRow = dict[str, str | int | float]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fineweb_edu")
    write_fineweb_edu(folder)
    return folder


def files_of(corpus: Path) -> list[Path]:
    return sorted(corpus.glob("data/*/*.parquet"))


@pytest.fixture(scope="module")
def rows(corpus: Path) -> list[TextRow]:
    return [row for path in files_of(corpus) for row in pq.ParquetFile(path).read().to_pylist()]


def repeats(rows: list[TextRow], column: str) -> list[list[TextRow]]:
    counts = Counter(row[column] for row in rows)
    return [[row for row in rows if row[column] == value] for value, times in sorted(counts.items()) if times > 1]


def test_files_lie_in_dump_folders_named_as_on_the_hub(corpus: Path) -> None:
    dumps = ["CC-MAIN-2013-20", "CC-MAIN-2019-30", "CC-MAIN-2021-04", "CC-MAIN-2023-50"]
    names = ["train-00000-of-00002.parquet", "train-00001-of-00002.parquet"]
    assert [path.relative_to(corpus).as_posix() for path in files_of(corpus)] == [
        f"data/{dump}/{name}" for dump in dumps for name in names
    ]


def test_each_row_names_the_dump_of_its_folder(corpus: Path) -> None:
    for path in some(files_of(corpus)):
        assert pq.ParquetFile(path).read(columns=["dump"])["dump"].unique().to_pylist() == [path.parent.name]


def test_columns_are_those_of_fineweb_edu(corpus: Path) -> None:
    expected = pa.schema(
        [
            ("text", pa.string()),
            ("id", pa.string()),
            ("dump", pa.string()),
            ("url", pa.string()),
            ("file_path", pa.string()),
            ("language", pa.string()),
            ("language_score", pa.float64()),
            ("token_count", pa.int64()),
            ("score", pa.float64()),
            ("int_score", pa.int64()),
        ]
    )
    for path in some(files_of(corpus)):
        assert pq.read_schema(path).equals(expected, check_metadata=True)


def test_row_groups_hold_50_rows_in_zstd(corpus: Path) -> None:
    for path in some(files_of(corpus)):
        metadata = pq.read_metadata(path)
        groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
        assert [group.num_rows for group in groups[:-1]] == [50] * (len(groups) - 1)
        assert {group.column(0).compression for group in groups} == {"ZSTD"}


@pytest.mark.slow
def test_the_same_python_writes_the_same_bytes(corpus: Path, rows: list[TextRow], tmp_path: Path) -> None:
    text_bytes = write_fineweb_edu(tmp_path)

    assert text_bytes == text_bytes_of(rows)
    assert contents(tmp_path) == contents(corpus)


def text_bytes_of(rows: list[TextRow]) -> int:
    return sum(len(str(row["text"]).encode()) for row in rows)


def test_there_is_enough_text_for_a_real_run(rows: list[TextRow]) -> None:
    assert len(rows) >= 800
    assert 1_500_000 < text_bytes_of(rows) < 5_000_000


def test_every_text_reads_as_english(rows: list[TextRow]) -> None:
    for row in some(rows):
        text = str(row["text"])
        if text:
            assert sum(char.isascii() for char in text) > 0.95 * len(text), row["url"]
            assert {"the", "a", "to", "of", "is", "and", "in", "for", "with"} & set(text.lower().split()), row["url"]


def test_lengths_run_from_300_to_30_000_characters(rows: list[TextRow]) -> None:
    revised = {str(row["text"]) for group in repeats(rows, "id") for row in group}
    lengths = [len(str(row["text"])) for row in rows if row["text"] not in revised | {""}]

    assert min(lengths) >= 300
    assert max(lengths) <= 30_000


def test_the_filter_int_score_3_drops_about_15_percent(rows: list[TextRow]) -> None:
    assert all(1.5 <= float(row["score"]) < 5.0 and row["int_score"] == round(float(row["score"])) for row in rows)
    assert 0.10 < sum(int(row["int_score"]) < 3 for row in rows) / len(rows) < 0.20


def test_three_texts_come_again_in_another_dump_under_another_id(rows: list[TextRow]) -> None:
    groups = [group for group in repeats(rows, "text") if len({row["id"] for row in group}) > 1]

    assert [len(group) for group in groups] == [2, 2, 2]
    assert all(len({row["dump"] for row in group}) == 2 for group in groups)


def test_two_ids_come_again_once_with_the_same_text(rows: list[TextRow]) -> None:
    groups = repeats(rows, "id")

    assert [len(group) for group in groups] == [2, 2]
    assert sorted(len({row["text"] for row in group}) for group in groups) == [1, 2]


def test_one_text_holds_a_nul_and_is_otherwise_a_page(rows: list[TextRow]) -> None:
    texts = [str(row["text"]) for row in rows]
    with_nul = [text for text in texts if "\0" in text]

    assert [text.count("\0") for text in with_nul] == [1]
    assert with_nul[0].replace("\0", "") in texts


def test_one_text_is_empty_and_bad_rows_stay_within_one_in_a_thousand(rows: list[TextRow]) -> None:
    texts = [row["text"] for row in rows]

    assert None not in texts
    # A Python that ships less documentation falls below 1,000 rows; one bad row would then stop a build.
    assert texts.count("") == (1 if len(texts) >= 1000 else 0)


def test_ids_are_urns_and_scores_and_counts_are_plausible(rows: list[TextRow]) -> None:
    for row in some(rows):
        assert str(row["id"]).startswith("<urn:uuid:") and len(str(row["id"])) == 47
        assert str(row["url"]).startswith("https://docs.python.org/3/")
        assert str(row["file_path"]).startswith(f"s3://commoncrawl/crawl-data/{row['dump']}/")
        assert row["language"] == "en" and 0.65 < float(row["language_score"]) <= 1.0
        assert row["token_count"] == len(str(row["text"]).encode()) // 4


def test_the_card_says_that_it_is_a_stand_in_and_where_the_files_are(corpus: Path, rows: list[TextRow]) -> None:
    card = (corpus / "README.md").read_text(encoding="utf-8")

    assert card.startswith("---\nlicense: other\nlicense_name: psf-2.0\n")
    assert "path: data/*/*.parquet" in card
    assert "This is not FineWeb-Edu" in card
    assert f"{len(rows)} rows, {text_bytes_of(rows)} bytes of text" in card
