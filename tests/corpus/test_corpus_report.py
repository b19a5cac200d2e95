"""Figures, examples and attribution in the report on a stage A corpus."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from corpus_reports import PAGES, Rows, read_figures, read_page
from refusals import refusal
from stage_a_build import build, ledger, local_source, parse_recipe

from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import InputError

Build = Callable[..., dict[str, Artifact]]
# A source of three licences, with a bad row and two short ones.
LETTERS: Rows = [
    {"text": "Dear friend, the river is high today.", "key": "l-0", "license": "CC BY 4.0"},
    {"text": "Short.", "key": "l-1"},
    {"text": None, "key": "l-2"},
    {"text": "<script>alert('x')</script> & so on", "key": "l-3", "license": "my own"},
    {"text": "Too.", "key": "l-4"},
    {"text": "Nothing is kept of this one here.", "key": "l-5", "license": "proprietary"},
]


@pytest.fixture
def build_artifacts(tmp_path: Path) -> Build:
    """Return a function that builds a recipe over rows by source, filtered by length."""

    def run(sources: Mapping[str, Rows]) -> dict[str, Artifact]:
        changes = {"filters": {"length": {"min_words": 3}}, "max_reject_fraction": "0.5"}
        sections = [local_source(tmp_path, name, rows, **changes) for name, rows in sources.items()]
        return build(parse_recipe(*sections, refuse_licences=["proprietary"]), tmp_path / "data")

    return run


@pytest.fixture
def report(build_artifacts: Build) -> Artifact:
    return build_artifacts({"letters": LETTERS, "pages": PAGES})["stage_a/report"]


def test_totals_are_those_of_kept_documents(report: Artifact) -> None:
    assert read_figures(report)["totals"] == {"documents": 3, "characters": 111, "utf8_bytes": 117, "tokens": 33}
    assert report.manifest.identity.counts == {"documents": 3, "tokens": 33, "text_bytes": 117}
    assert [file.path for file in report.manifest.identity.files] == ["report.json", "ATTRIBUTION"]


def test_documents_are_counted_by_source_domain_and_licence(report: Artifact) -> None:
    values = read_figures(report)

    by_group = {
        name: {key: row["documents"] for key, row in values[name].items()}
        for name in ("sources", "domains", "licences")
    }
    assert by_group == {
        "sources": {"letters": 2, "pages": 1},
        "domains": {"books": 3},
        "licences": {"cc0-1.0": 1, "unknown": 1, "cc-by-4.0": 1},
    }
    assert sum(values["sources"]["letters"]["lengths"]) == 2
    assert values["licences"]["cc-by-4.0"]["licence"]["attribution"] is True


def test_the_ledgers_of_a_source_add_up_over_its_stages(build_artifacts: Build) -> None:
    artifacts = build_artifacts({"letters": LETTERS, "pages": PAGES})

    entries = read_figures(artifacts["stage_a/report"])["ledgers"]

    ledgers = {(entry["source"], entry["step"]): entry for entry in entries}
    for (source, step), entry in ledgers.items():
        stage_ledger = ledger(artifacts[f"stage_a/{step}/{source}"])
        assert (entry["rows_in"], entry["documents_out"]) == (stage_ledger["in"], stage_ledger["out"])
        lost = sum(entry["dropped"].values()) + sum(entry["rejected"].values())
        assert entry["rows_in"] == entry["documents_out"] + entry["merged"] + lost
    assert ledgers["letters", "normalized"]["documents_out"] == ledgers["letters", "filtered"]["rows_in"] == 5
    assert ledgers["letters", "filtered"]["dropped"] == {"few_words": 2, "refused_licence": 1}


def test_examples_of_rejects_and_drops_have_their_reasons(report: Artifact) -> None:
    normalized, filtered, *_ = read_figures(report)["ledgers"]

    rejected = {"doc_id": "", "measured": "null", "text": "", "place": "rows.jsonl byte 121"}
    assert normalized["examples"] == {"no_text": [rejected]}
    by_id = {example["doc_id"]: example for examples in filtered["examples"].values() for example in examples}
    assert {reason: len(examples) for reason, examples in filtered["examples"].items()} == {
        "few_words": 2,
        "refused_licence": 1,
    }
    few = {"measured": "few_words 1 < 3"}
    assert by_id == {
        "l-1": {"doc_id": "l-1", **few, "text": "Short.", "place": "rows.jsonl byte 88"},
        "l-4": {"doc_id": "l-4", **few, "text": "Too.", "place": "rows.jsonl byte 233"},
        "l-5": {
            "doc_id": "l-5",
            "measured": "refused_licence proprietary",
            "text": "Nothing is kept of this one here.",
            "place": "rows.jsonl byte 264",
        },
    }


def test_a_reason_has_three_examples_with_the_beginning_of_their_texts(build_artifacts: Build) -> None:
    rows: Rows = [{"text": f"{number}" + "x" * 1000, "key": str(number)} for number in range(9)]
    kept: Rows = [{"text": "one two three", "key": "kept"}]

    artifacts = build_artifacts({"letters": rows + kept})

    _, filtered = read_figures(artifacts["stage_a/report"])["ledgers"]
    ids = [example["doc_id"] for example in filtered["examples"]["few_words"]]
    assert len({*ids}) == 3 and {*ids} < {*"012345678"} and ids != ["0", "1", "2"], "drawn, not the first"
    assert [len(example["text"]) for example in filtered["examples"]["few_words"]] == [400, 400, 400]


def test_unknown_licences_are_marked_and_attribution_is_written(report: Artifact) -> None:
    page = read_page(report)

    assert "<span class='unknown'>unknown</span>" in page
    assert report.path("ATTRIBUTION").read_text(encoding="utf-8").splitlines()[2::4] == [
        "letters: Creative Commons Attribution 4.0 International (https://creativecommons.org/licenses/by/4.0/)",
        "letters: unknown licence",
    ]


def test_a_doc_id_in_two_sources_is_an_error_that_names_both(build_artifacts: Build, tmp_path: Path) -> None:
    other: Rows = [{"text": "A text of its own.", "key": "o-0"}, {"text": "Another text with that id.", "key": "l-0"}]

    assert refusal(lambda: build_artifacts({"letters": LETTERS, "others": other})) == (
        f"{tmp_path / 'data/stage_a/mixed/filtered/others'}: doc_id 'l-0' is in letters and in others "
        "(shards/00000.jsonl.zst row 1); remove one of these sources, "
        "or set `columns.id` to another column, or to null for ids that are derived from the texts"
    )
    assert not (tmp_path / "data/stage_a/mixed/report/mixed").exists()


def test_many_doc_ids_in_two_sources_are_counted(build_artifacts: Build) -> None:
    rows: Rows = [{"text": f"The text number {number}.", "key": str(number)} for number in range(5)]

    with pytest.raises(InputError, match=r"'0' is in a and in b .*; 4 more ids are in two sources;"):
        build_artifacts({"a": rows, "b": rows})


def test_an_id_dropped_from_one_source_may_be_in_another(build_artifacts: Build) -> None:
    rows = [{"text": "Short.", "key": "1"}, {"text": "One two three.", "key": "2"}]
    artifacts = build_artifacts({"a": rows, "b": [{"text": "Long enough, this one.", "key": "1"}]})

    assert read_figures(artifacts["stage_a/report"])["totals"]["documents"] == 2
