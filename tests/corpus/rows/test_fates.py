"""Why a document is in or out: every place of its id, and what each filter saw in it."""

import json
from pathlib import Path
from typing import Any

from stage_a_build import build, only, recipe_with
from stage_a_sources import with_decontamination, with_dedup, write_quiz

from pipeline_assets.corpus.rows.fates import Followed, follow_document
from pipeline_assets.corpus.rows.store import Fate, Source
from pipeline_assets.corpus.spine.lineage import Lineage


def write_notes_of(root: Path, rows: list[dict[str, object]]) -> None:
    path = root / "sources" / "notes" / "a.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def fates(root: Path, rows: list[dict[str, object]], doc_id: str, **changes: object) -> list[Followed]:
    """What becomes of an id in one file of notes whose filters want five words and mask addresses."""
    write_notes_of(root, rows)
    columns = {"text": "text", "id": "id", "created_at": None, "license": "license"}
    filters = {"length": {"min_words": 5}, "masking": {"emails": True, "public_ips": True}}
    keys = {"columns": columns, "filters": filters, "max_reject_fraction": "0.9"}
    build(recipe_with(root, only("notes", **keys, **changes)), root)
    return list(follow_document(Lineage(root), doc_id))


def below(found: Followed, group: str) -> list[Fate]:
    return [fate for store, fate in found.below if store.labels.group == group]


KEPT = {"id": "kept", "text": "five words are in here", "license": "MIT"}


def test_a_kept_document_is_shown_with_its_place_licence_and_measurements(tmp_path: Path) -> None:
    [fate] = fates(tmp_path, [{"id": "other", "text": "other words that are five"}, KEPT], "kept")

    assert fate.part is not None
    assert (fate.part.shard, fate.part.shard_row) == ("shards/00000.jsonl.zst", 1)
    source = fate.store.origin(fate.part)
    assert isinstance(source, Source)
    assert (source.license_tag, source.license_evidence) == ("mit", "row: license")
    [filtered] = below(fate, "filtered")
    assert (filtered.outcome, filtered.told["reason"]) == ("kept", None)
    assert "few_words 5 = 5" in filtered.told["measurements"]


def test_a_dropped_one_says_for_what(tmp_path: Path) -> None:
    [fate] = fates(tmp_path, [KEPT, {"id": "short", "text": "too short"}], "short")

    [filtered] = below(fate, "filtered")
    assert (filtered.outcome, filtered.told["reason"]) == ("dropped", "few_words")
    assert "few_words 2 < 5" in filtered.told["measurements"]


def test_one_of_a_refused_licence_says_so_before_any_filter(tmp_path: Path) -> None:
    rows = [KEPT, {"id": "secret", "text": "five words are in here too", "license": "proprietary"}]

    [fate] = fates(tmp_path, rows, "secret")

    [filtered] = below(fate, "filtered")
    assert (filtered.outcome, filtered.told["reason"]) == ("dropped", "refused_licence")
    assert filtered.told["measurements"][0] == "refused_licence proprietary"


def test_what_is_masked_in_a_kept_one_is_counted(tmp_path: Path) -> None:
    rows = [{"id": "mail", "text": "write to me at somebody@company.com or call me soon"}]

    [fate] = fates(tmp_path, rows, "mail")

    assert below(fate, "filtered")[0].told["changes"] == {"masked/email": 1}


def test_rows_whose_id_came_before_are_named_beside_the_first(tmp_path: Path) -> None:
    rows = [KEPT, KEPT | {"text": "the same id with another text"}]

    [fate] = fates(tmp_path, rows, "kept")

    assert fate.part is not None
    assert fate.part.text == "five words are in here"
    assert [(reject.reason, reject.row) for reject in fate.rejects] == [("duplicate_doc_id", len(json.dumps(KEPT)) + 1)]


def test_an_id_that_is_part_of_another_or_stands_in_a_text_is_not_found(tmp_path: Path) -> None:
    rows = [KEPT, {"id": "other", "text": 'the id "kept-2" is only spoken of here'}]

    assert fates(tmp_path, rows, "kept-2") == []


def test_what_decontamination_found_is_told_where_it_had_the_document(tmp_path: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        only("notes", columns={"text": "text", "id": "id", "created_at": None, "license": None})(content)
        with_dedup(content)
        with_decontamination(content)

    texts = {"leak": "first of all the river drinks water", "copy": "First of all: the river drinks water!"}
    write_notes_of(tmp_path, [KEPT, *({"id": doc_id, "text": text} for doc_id, text in texts.items())])
    write_quiz(tmp_path / "sources" / "quiz", ["The river drinks water, first of all?", "All the river drinks water"])

    build(recipe_with(tmp_path, change), tmp_path)
    found = {doc_id: list(follow_document(Lineage(tmp_path), doc_id)) for doc_id in ("kept", "leak", "copy")}

    places = {
        doc_id: [one.told["evidence"] and one.told["evidence"]["item"] for one in below(fate, "decontaminated")]
        for doc_id, [fate] in found.items()
    }
    assert places == {"kept": [None], "leak": ["q-1"], "copy": []}
