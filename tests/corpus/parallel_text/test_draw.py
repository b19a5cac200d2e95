"""Drawing a sample: equal for every file form, filtered, every row counted."""

import json
from collections import Counter
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusal
from sentence_pairs import NOON, SOURCE, lines_file, real_or_synthetic_rows, translation_lines, translation_parquet

from pipeline_assets.corpus.formats.jsonl_zst import read_structs
from pipeline_assets.corpus.parallel_text.draw import materialize, write_sample
from pipeline_assets.corpus.parallel_text.pairs import Languages, Pair, canonical_text, pair_uid
from pipeline_assets.corpus.parallel_text.sample import (
    Sample,
    SampleRecipe,
    SplitShares,
    assign_splits,
    read_sample,
)
from pipeline_assets.corpus.parallel_text.translation_files import TranslationFile
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.opening import open_staging_dir
from pipeline_assets.spine.rejects import Reject

FR_EN = Languages(src="fr", tgt="en")
ANY_REJECTS = {"max_reject_fraction": "1"}


def sample(files: list[TranslationFile], folder: Path, **options: object) -> Sample:
    options = {"k": 20, **options}
    return read_sample(materialize(files=files, languages=("fr", "en"), source=SOURCE, folder=folder, **options))


def read_translation(path: Path, position: int) -> dict[str, str]:
    """Read a translation at a row number in Parquet or a byte offset in lines."""
    if path.suffix == ".parquet":
        row = pq.read_table(path).slice(position, 1).to_pylist()[0]
    else:
        row = json.loads(path.read_bytes()[position:].partition(b"\n")[0])
    return dict(row["translation"])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, real: bool) -> list[TranslationFile]:
    """300 rows in three files, one of them Parquet."""
    folder, rows = tmp_path_factory.mktemp("rows"), real_or_synthetic_rows(300, real)
    return [
        translation_lines(folder / "a.jsonl", rows[:100]),
        translation_parquet(folder / "b.parquet", rows[100:220], 50),
        translation_lines(folder / "c.jsonl", rows[220:]),
    ]


def test_a_sample_is_k_unchanged_rows_of_its_files(files: list[TranslationFile], tmp_path: Path) -> None:
    drawn = sample(files, tmp_path, k=120, seed=42)

    local = {file.name: file.fetch() for file in files}
    assert len({pair.uid for pair in drawn.pairs}) == 120
    for pair in drawn.pairs:
        assert {"fr": pair.src_text, "en": pair.tgt_text} == read_translation(local[pair.file], pair.row)
        assert pair.uid == pair_uid(FR_EN, canonical_text(pair.src_text), canonical_text(pair.tgt_text))
        assert (pair.revision, pair.seed, pair.k) == (SOURCE.revision, 42, 120)
    assert Counter(pair.split for pair in drawn.pairs) == {"train": 96, "val": 12, "test": 12}
    order = [("train", "val", "test").index(pair.split) for pair in drawn.pairs]
    assert order == sorted(order)
    assert drawn.meta.ledger.adds_up
    assert (drawn.meta.rows_seen, drawn.meta.ledger.out) == (300, 120)


def to_row(fr: object, en: object) -> dict[str, object]:
    return {"translation": {"fr": fr, "en": en}}


def test_dropped_and_rejected_rows_are_counted_by_reason(tmp_path: Path) -> None:
    rows = [
        *(to_row(f"phrase {number}", f"sentence {number}") for number in range(5)),
        to_row("phrase 1", "sentence 1"),
        to_row(" phrase 1", "sentence\u00a01"),  # equal after NFKC and strip
        to_row(None, "only one"),
        {"translation": {"fr": "seule"}},
        to_row("", "empty"),
        to_row("  ", "blank"),
        to_row("a", "too short"),
        to_row("ﬁ", "two letters by NFKC"),
        to_row("trop long", "x" * 257),
        to_row("juste assez", "x" * 256),
        to_row("?!…", "punctuation"),
        to_row("日本", "other letters"),
        {"translation": "no object"},
    ]

    file = lines_file(tmp_path / "a.jsonl", rows)
    with open(file.fetch(), "a") as lines:
        lines.write("{broken\n")

    drawn = sample([file], tmp_path / "s", k=8, **ANY_REJECTS)

    assert [*drawn.meta.ledger.dropped.items()] == [
        ("duplicate", 2),
        ("empty", 2),
        ("missing_language", 2),
        ("only_punctuation", 1),
        ("too_long", 1),
        ("too_short", 1),
    ]
    assert [*drawn.meta.ledger.rejected.items()] == [("not_json", 1), ("wrong_type", 1)]
    assert drawn.meta.ledger.adds_up
    drawn_rows = [read_translation(tmp_path / "a.jsonl", pair.row) for pair in drawn.pairs]
    assert sorted(str(row) for row in drawn_rows) == sorted(
        str(rows[number]["translation"]) for number in (0, 1, 2, 3, 4, 12, 14, 16)
    )


@pytest.mark.parametrize("wrong", [["un", "deux"], 7, True, {"text": "un"}])
def test_a_side_that_is_not_text_is_rejected_with_its_type(tmp_path: Path, wrong: object) -> None:
    rows = [*(to_row(f"phrase {number}", f"sentence {number}") for number in range(5)), to_row(wrong, "one")]
    file = lines_file(tmp_path / "a.jsonl", rows)

    message = refusal(lambda: sample([file], tmp_path / "refused", k=5))
    accepted = sample([file], tmp_path / "accepted", k=5, **ANY_REJECTS)

    assert "1 of 6 rows is rejected (1 wrong_type)" in message
    assert f"wrong_type (its fr is {type(wrong).__name__})" in message
    assert (accepted.meta.ledger.rejected, accepted.meta.ledger.dropped) == ({"wrong_type": 1}, {})


def test_more_rejects_than_the_recipe_allows_stop_the_draw(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [to_row(f"phrase {number}", f"sentence {number}") for number in range(998)]
    file = lines_file(tmp_path / "a.jsonl", [*rows, {"translation": 7}, {"translation": "x"}])

    message = refusal(lambda: sample([file], tmp_path / "s"))
    assert message.startswith(
        f"{tmp_path / 's'}: 2 of 1,000 rows are rejected (2 wrong_type), above `max_reject_fraction`"
    )
    assert not (tmp_path / "s").exists()
    sample([lines_file(tmp_path / "b.jsonl", [*rows, *rows[:1], {"translation": 7}])], tmp_path / "s")


def test_rejects_are_stored_with_their_positions(tmp_path: Path) -> None:
    rows = [to_row(f"phrase {number}", f"sentence {number}") for number in range(5)]
    file = lines_file(tmp_path / "a.jsonl", [*rows, {"translation": 7}])
    recipe = SampleRecipe(languages=FR_EN, k=5, **ANY_REJECTS)

    with open_staging_dir(tmp_path / "s", {}) as staging:
        content = write_sample(staging, [file], recipe, SOURCE, NOON)
        [reject] = read_structs(staging.path(content.files[1].path), Reject)

    before = file.fetch().read_bytes().index(b'{"translation": 7}')
    assert reject == Reject("a.jsonl", before, "wrong_type", "its translation is int")
    assert content.counts["ledger"]["rejected"] == {"wrong_type": 1}


def test_a_weight_may_be_a_column(tmp_path: Path) -> None:
    rows = [
        to_row(f"phrase {number}", f"sentence {number}") | {"score": 1e6 if number < 10 else 1e-6}
        for number in range(200)
    ]
    rows += [to_row("sans poids", "no weight") | {"score": weight} for weight in (0, -1, None, "3", 1e10, True, False)]

    drawn = sample(
        [lines_file(tmp_path / "a.jsonl", rows)], tmp_path / "s", algorithm="es_weighted", weight="column:score", k=10
    )

    assert {pair.src_text for pair in drawn.pairs} == {f"phrase {number}" for number in range(10)}
    assert drawn.meta.ledger.dropped["no_weight"] == 7


def test_a_weight_may_be_a_parquet_decimal(tmp_path: Path) -> None:
    weights = [Decimal("1000000.5")] * 10 + [Decimal("0.000001")] * 190
    rows = [to_row(f"phrase {row}", f"sentence {row}") | {"score": weight} for row, weight in enumerate(weights)]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    file = TranslationFile(path.name, lambda: path)

    drawn = sample([file], tmp_path / "s", algorithm="es_weighted", weight="column:score", k=10)

    assert {pair.src_text for pair in drawn.pairs} == {f"phrase {number}" for number in range(10)}
    assert drawn.meta.ledger.dropped == {"not_drawn": 190}


@given(st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)), min_size=1, max_size=60), st.integers(0, 99))
def test_no_text_is_in_two_splits(texts: list[tuple[int, int]], seed: int) -> None:
    pairs = [
        Pair(f"{row:032x}", f"Texte {src}", f" ﹤Texte {tgt}"[2 * (tgt % 2) :], "a", row)
        for row, (src, tgt) in enumerate(texts)
    ]
    splits = assign_splits(pairs, SplitShares(), seed)

    splits_by_text: dict[str, set[str]] = {}
    for pair, split in zip(pairs, splits, strict=True):
        for text in (pair.src_text, pair.tgt_text):
            splits_by_text.setdefault(canonical_text(text), set()).add(split)
    assert all(len(text_splits) == 1 for text_splits in splits_by_text.values())
    shuffled = assign_splits(pairs[::-1], SplitShares(), seed)
    assert shuffled == splits[::-1]


@pytest.mark.parametrize(
    ("pairs", "sizes"),
    [(120, (96, 12, 12)), (60, (48, 6, 6)), (10, (8, 1, 1)), (17, (13, 2, 2)), (3, (3, 0, 0)), (1, (1, 0, 0))],
)
def test_splits_have_their_shares_by_largest_remainder(pairs: int, sizes: tuple[int, int, int]) -> None:
    assert tuple(SplitShares().sizes(pairs).values()) == sizes
    different = [Pair(f"{row:032x}", f"s{row}", f"t{row}", "a", row) for row in range(pairs)]
    counted = Counter(assign_splits(different, SplitShares(), 42))
    assert tuple(counted[split] for split in ("train", "val", "test")) == sizes


@pytest.mark.parametrize("weight", ["1", 0, -1, None, 10**10, True, False])
def test_the_range_of_weights_is_named_if_rows_have_no_usable_weight(tmp_path: Path, weight: object) -> None:
    rows = [to_row(f"phrase {number}", f"sentence {number}") | {"w": weight} for number in range(5)]
    file = lines_file(tmp_path / "a.jsonl", rows)

    message = refusal(lambda: sample([file], tmp_path / "s", algorithm="es_weighted", weight="column:w"), UsageError)

    assert message == (
        "source: no pair among 5 rows (5 no_weight); "
        "write weights from 1e-9 to 1e9, as numbers, loosen the filters, or add files"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "materialize: `k` must be >= 1, got 0; correct the value"),
        (
            {"k": 301},
            "k: must be at most 300, the pairs among 300 rows (none dropped), got 301; "
            "request fewer, loosen the filters, or add files",
        ),
        (
            {"filters": {"min_chars": 1_000, "max_chars": 2_000}},
            "source: no pair among 300 rows (300 too_short); loosen the filters, or add files",
        ),
        (
            {"weight": "chars"},
            "materialize: `es_weighted` needs `weight`, and other algorithms do not allow it; correct it",
        ),
        (
            {"algorithm": "l"},
            "materialize: `algorithm` is 'l': l was removed; write classic",
        ),
        (
            {"duplicates": "stream"},
            "materialize: `duplicates` is 'stream': stream was removed; write within",
        ),
    ],
)
def test_an_impossible_request_is_refused(
    options: dict[str, object], message: str, files: list[TranslationFile], tmp_path: Path
) -> None:
    options = {"filters": None, "duplicates": "keep", **options}
    assert refusal(lambda: sample(files, tmp_path / "s", **options), UsageError) == message
    assert not (tmp_path / "s").exists()


def test_wrong_files_and_folders_are_refused(files: list[TranslationFile], tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for wrong in ([str(path)], str(path), [path]):
        line = refusal(lambda wrong=wrong: sample(wrong, tmp_path / "s"), UsageError)
        assert line == f"files: must have items of TranslationFile, got {wrong!r}; correct it"
    assert refusal(lambda: sample([TranslationFile("x.jsonl", lambda: tmp_path / "no")], tmp_path / "s")) == (
        f"{tmp_path / 'no'}: file not found; correct the path of x.jsonl"
    )
    path.write_text("")
    assert refusal(lambda: sample(files, path), UsageError) == (
        f"{path}: expected a folder, got a file; choose another folder"
    )
    numbers = {"k": np.int64(120), "seed": np.int8(42), "splits": (np.int64(96), 12, np.int16(12))}
    assert sample(files, tmp_path / "a", **numbers).pairs == sample(files, tmp_path / "b", k=120).pairs


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_the_error_without_translations_names_the_columns(suffix: str, tmp_path: Path) -> None:
    fix = "choose one of these, or another set or file"
    write = translation_parquet if suffix == "parquet" else translation_lines
    german = write(tmp_path / f"de.{suffix}", [{"de": "Hallo", "en": "Hello"}])
    assert refusal(lambda: sample([german], tmp_path / "s")) == (
        f"de.{suffix}: language fr not found in its translations (present: de, en); {fix}"
    )
    path = tmp_path / f"text.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.table({"text": ["a"], "id": [1]}), path)
    else:
        lines_file(path, [{"text": "a", "id": 1}])
    assert refusal(lambda: sample([TranslationFile(path.name, lambda: path)], tmp_path / "s")) == (
        f"text.{suffix}: column `translation` of texts by language not found (present: id, text); "
        'write rows such as {"translation": {"fr": "…", "en": "…"}}, or choose another set or file'
    )
    flat = write(tmp_path / f"flat.{suffix}", ["bonjour", "salut"])
    assert refusal(lambda: sample([flat], tmp_path / "s")) == (
        f"flat.{suffix}: values of column `translation` are not objects with a text for each language; "
        "convert them, or choose another set or file"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{broken\n" * 3, "a.jsonl: none of the first rows can be read; the first: not_json"),
        ('[\n{"translation": {"fr": "a", "en": "b"}}\n]\n', "the file is a JSON array, not JSON lines"),
    ],
)
def test_a_file_without_readable_rows_is_an_error_with_the_reason(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text)

    assert message in refusal(lambda: sample([TranslationFile("a.jsonl", lambda: path)], tmp_path / "s"))
