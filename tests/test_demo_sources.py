"""Generated files of the demo have the same bytes everywhere.

Digests cover every byte; the other tests describe the cases that the texts are generated for.
"""

import gzip
import hashlib
import io
import json
from collections import Counter
from collections.abc import Callable
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
import zstandard

from pipeline_assets.corpus.licences import licence_table
from pipeline_assets.demo.corpora import EDU_DATASET, FILE_GENERATORS, write_inputs
from pipeline_assets.demo.texts import pages, place_name, python_module, translate, unwanted_pages

Rows = dict[str, list[dict[str, Any]]]
FINEWEB, WIKIPEDIA, C4 = "HuggingFaceFW/fineweb", "wikimedia/wikipedia", "allenai/c4"
REDPAJAMA, SLIMPAJAMA = "togethercomputer/RedPajama-Data-1T-Sample", "cerebras/SlimPajama-627B"
CODEPARROT, STARCODER = "codeparrot/codeparrot-clean", "bigcode/starcoderdata"
DOCUMENTATION = (FINEWEB, WIKIPEDIA, C4, REDPAJAMA, SLIMPAJAMA)


def json_lines(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


READERS: dict[str, Callable[[bytes], list[dict[str, Any]]]] = {
    ".parquet": lambda data: pq.read_table(io.BytesIO(data)).to_pylist(),
    ".gz": lambda data: json_lines(gzip.decompress(data)),
    ".zst": lambda data: json_lines(zstandard.ZstdDecompressor().stream_reader(data).read()),
    ".jsonl": json_lines,
}


def read_rows(system: str) -> Rows:
    """Return the rows of each dataset."""
    rows: Rows = {}
    for path, data in sorted(FILE_GENERATORS[system]()):
        if path.startswith("hub/datasets/") and Path(path).suffix in READERS:
            rows.setdefault("/".join(path.split("/")[2:4]), []).extend(READERS[Path(path).suffix](data))
    return rows


@pytest.fixture(scope="module")
def mixture() -> Rows:
    return read_rows("stage2")


def texts(rows: list[dict[str, Any]]) -> list[str]:
    return [row["content"] if "content" in row else row["text"] for row in rows]


def test_texts_are_equal_on_every_machine_and_python() -> None:
    texts = [page.text for page in pages("edu", 80) + unwanted_pages("web", 0)]
    texts += [*map(python_module, range(20)), translate(texts[0]), *map(place_name, range(96))]

    assert (
        hashlib.sha256("\n".join(texts).encode()).hexdigest()
        == "7571dc1abc21c5005b2c0b60a5081153ef9f0f10ce1904c72638653d6f0697b7"
    )


@pytest.mark.parametrize(
    ("system", "sha256"),
    [
        ("healing", "1b2ff895ec9b371ad930d4ac904775d86713962c6f220f0a3eed087a30f3485a"),
        ("stage_a", "84c16663e6255a99436004c9fca0918366b1a6db42ffcb5a9eed427b043d44b4"),
        ("nemotron", "e9710b6ab6b754e4a6a202574d453fc08a00b086f75303a9638ff0698673bab6"),
        ("stage2", "08abf0a0f41189a4484d5f2a30a723f4335a56f33b20293f039d61a13eae19a5"),
        ("parallel_text", "caa2cbcd1c7bc760534ae01e42838e28d214a27771f32beecae0ded3c1ef7a36"),
    ],
)
def test_files_are_equal_with_the_pinned_library_versions(system: str, sha256: str) -> None:
    content = hashlib.sha256()
    for path, data in FILE_GENERATORS[system]():
        content.update(path.encode() + b"\0" + data)

    assert content.hexdigest() == sha256


def test_existing_files_keep_their_times_and_others_are_rewritten(tmp_path: Path) -> None:
    write_inputs(tmp_path, "parallel_text")
    [card] = tmp_path.rglob("README.md")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    text = card.read_text()
    card.write_text("cut off")

    write_inputs(tmp_path, "parallel_text")

    assert before and {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")} == before
    assert card.read_text() == text


@pytest.mark.parametrize("system", FILE_GENERATORS)
def test_cards_state_that_the_datasets_are_stand_ins(system: str) -> None:
    files = dict(FILE_GENERATORS[system]())
    cards = {path: data.decode() for path, data in files.items() if path.endswith("README.md")}

    assert cards
    for path, card in cards.items():
        name = "/".join(path.split("/")[2:4])
        _, head, text = card.split("---\n")
        assert f"This is not {name} and holds none of its text." in text
        assert "licence" not in head and yaml.safe_load(head)["pretty_name"] == name.split("/")[1]


def test_pages_of_fineweb_edu_have_repeats_a_nul_an_empty_text_and_low_scores() -> None:
    rows = read_rows("healing")[EDU_DATASET]

    texts = [row["text"] for row in rows]
    same_text, same_id = (
        [[row for row in rows if row[column] == value] for value, times in counts.items() if times > 1]
        for column, counts in ((name, Counter(row[name] for row in rows)) for name in ("text", "id"))
    )
    across_ids = [group for group in same_text if len({row["id"] for row in group}) > 1]
    assert [len({row["dump"] for row in group}) for group in across_ids] == [2, 2, 2]
    assert sorted((len(group), len({row["text"] for row in group})) for group in same_id) == [(2, 1), (2, 2)]
    [with_nul] = [text for text in texts if "\0" in text]
    assert with_nul.replace("\0", "") in texts and texts.count("") == 1
    assert len(rows) >= 1000 and 0.10 < sum(row["int_score"] < 3 for row in rows) / len(rows) < 0.20


@pytest.mark.parametrize("name", DOCUMENTATION)
def test_each_corpus_has_a_short_a_long_and_three_foreign_texts(mixture: Rows, name: str) -> None:
    corpus = texts(mixture[name])

    assert [len(text) < 200 for text in corpus].count(True) == 1
    assert any(len(text) > 8_000 for text in corpus)
    for word in (" wusste", " marché ", " biblioteca "):
        assert [word in text for text in corpus].count(True) == 1


def test_c4_has_quotes_and_a_page_with_one_changed_word(mixture: Rows) -> None:
    corpus = texts(mixture[C4])
    quoted = {
        name: [text for text in texts(mixture[name]) if any(text in other and text != other for other in corpus)]
        for name in DOCUMENTATION
    }
    [again] = [text for text in corpus if text.endswith("\n\nSo they say.")]
    words = again.removesuffix("\n\nSo they say.").split()
    alike = [text.split() for text in corpus if len(text.split()) == len(words)]

    assert {name: len(quotes) for name, quotes in quoted.items() if quotes} == {FINEWEB: 3, C4: 1}
    assert all(len(text) >= 1_500 for text in quoted[FINEWEB])
    assert min(sum(a != b for a, b in zip(words, candidate, strict=True)) for candidate in alike) == 1


def test_no_text_of_the_mixture_is_repeated_except_two_modules(mixture: Rows) -> None:
    shared = {
        (first, second): len(set(texts(mixture[first])) & set(texts(mixture[second])))
        for first, second in combinations(mixture, 2)
    }

    assert {pair: count for pair, count in shared.items() if count} == {(STARCODER, CODEPARROT): 1}
    modules = texts(mixture[CODEPARROT])
    assert len(modules) - len(set(modules)) == 1


def test_modules_state_their_licence(mixture: Rows) -> None:
    licences = Counter(row["license"] for row in mixture[CODEPARROT])

    assert licences == {"mit": 76, "apache-2.0": 1, "gpl-3.0": 1}
    assert all(tag in licence_table() for tag in licences)


def test_places_have_different_names_and_foreign_texts_another_order() -> None:
    assert len({place_name(number) for number in range(96)}) == 96
    for earlier, later in pairwise(unwanted_pages("web", order) for order in range(5)):
        assert all(a.text != b.text for a, b in zip(earlier[:3], later[:3], strict=True))
