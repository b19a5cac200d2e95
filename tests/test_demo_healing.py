"""The made FineWeb-Edu of the demo: columns and folders of the real one, and planted defects."""

import io
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from samples import some

from pipeline_assets.demo.corpora import EDU_DATASET, FILES, HUB_FOLDER

TextRow = dict[str, str | int | float]
Corpus = dict[str, bytes]


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    """Parquet files by path below the dataset."""
    below = f"{HUB_FOLDER}/datasets/{EDU_DATASET}/"
    return {path.removeprefix(below): data for path, data in FILES["healing"]() if path.endswith(".parquet")}


@pytest.fixture(scope="module")
def rows(corpus: Corpus) -> list[TextRow]:
    return [row for data in corpus.values() for row in pq.read_table(io.BytesIO(data)).to_pylist()]


def repeats(rows: list[TextRow], column: str) -> list[list[TextRow]]:
    counts = Counter(row[column] for row in rows)
    return [[row for row in rows if row[column] == value] for value, times in sorted(counts.items()) if times > 1]


def text_bytes_of(rows: list[TextRow]) -> int:
    return sum(len(str(row["text"]).encode()) for row in rows)


def test_files_lie_in_dump_folders_named_as_on_the_hub(corpus: Corpus) -> None:
    dumps = ["CC-MAIN-2013-20", "CC-MAIN-2019-30", "CC-MAIN-2021-04", "CC-MAIN-2023-50"]
    names = ["train-00000-of-00002.parquet", "train-00001-of-00002.parquet"]
    assert sorted(corpus) == [f"data/{dump}/{name}" for dump in dumps for name in names]


def test_each_row_names_the_dump_of_its_folder(corpus: Corpus) -> None:
    for path, data in some(corpus.items()):
        assert set(pq.read_table(io.BytesIO(data))["dump"].to_pylist()) == {path.split("/")[1]}


def test_columns_are_those_of_fineweb_edu(corpus: Corpus) -> None:
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
    for data in some(corpus.values()):
        assert pq.read_schema(io.BytesIO(data)).equals(expected, check_metadata=True)


def test_row_groups_hold_50_rows_in_zstd(corpus: Corpus) -> None:
    for data in some(corpus.values()):
        metadata = pq.read_metadata(io.BytesIO(data))
        groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
        assert [group.num_rows for group in groups[:-1]] == [50] * (len(groups) - 1)
        assert {group.column(0).compression for group in groups} == {"ZSTD"}


def test_there_is_enough_text_for_a_real_run(rows: list[TextRow]) -> None:
    assert len(rows) >= 1000
    assert 2_400_000 < text_bytes_of(rows) < 5_000_000


def test_every_text_is_english_with_some_letters_beyond_ascii(rows: list[TextRow]) -> None:
    for text in some(str(row["text"]) for row in rows if row["text"]):
        assert 0.95 * len(text) < sum(char.isascii() for char in text) < len(text)
        assert " the " in text


def test_lengths_run_from_300_to_30_000_characters(rows: list[TextRow]) -> None:
    lengths = [len(str(row["text"])) for row in rows if row["text"]]

    assert min(lengths) >= 300
    assert 20_000 < max(lengths) <= 30_000


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


def test_one_text_in_a_thousand_is_empty(rows: list[TextRow]) -> None:
    texts = [row["text"] for row in rows]

    assert None not in texts
    assert texts.count("") == 1


def test_ids_are_urns_and_scores_and_counts_are_plausible(rows: list[TextRow]) -> None:
    for row in some(rows):
        assert str(row["id"]).startswith("<urn:uuid:") and len(str(row["id"])) == 47
        assert str(row["url"]).startswith("https://edu.example/")
        assert str(row["file_path"]).startswith(f"s3://commoncrawl/crawl-data/{row['dump']}/")
        assert row["language"] == "en" and 0.65 < float(row["language_score"]) <= 1.0
        assert row["token_count"] == len(str(row["text"]).encode()) // 4
