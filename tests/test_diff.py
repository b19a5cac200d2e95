"""`corpusmill diff` on artifacts of the demo and their variants."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from command_results import Corpusmill, Result, refused
from demo_variants import V1, find_snapshot
from demo_variants import build as build_healing
from demo_variants import write_recipe as write_healing_recipe
from stage_a_build import build, local_source, notes_recipe, parse_recipe, step
from stage_a_sources import sentence


def test_artifact_and_its_copy_are_identical_and_kinds_must_be_equal(
    corpusmill: Corpusmill, demo_root: Path, root: Path
) -> None:
    result = corpusmill("diff", demo_root / V1, root / V1)
    wrong = corpusmill("diff", demo_root / V1, demo_root / V1 / "train")

    digest = json.loads((root / V1 / "manifest.json").read_text())["digest"]
    assert result.returncode == 0
    assert result.stdout.splitlines() == [
        f"A  {demo_root / V1}  {digest}",
        f"B  {root / V1}  {digest}",
        "identical according to their manifests; no file was read (`corpusmill verify` reads them)",
    ]
    assert refused(wrong) == (
        f"{demo_root / V1}/train: this is a healing/megatron_split, but "
        f"{demo_root / V1} is a healing/megatron_dataset; choose two artifacts of one kind"
    )


def test_stricter_rule_keeps_fewer_of_the_same_rows(corpusmill: Corpusmill, demo_root: Path, tmp_path: Path) -> None:
    shutil.copytree(demo_root / "recipes", tmp_path / "recipes")
    path = write_healing_recipe(tmp_path, {"snapshot": {"rules": ["int_score >= 4"]}}, "healing_text_v4")
    build_healing(path, tmp_path, demo_root / "hub_cache")

    result = corpusmill("diff", find_snapshot(demo_root), find_snapshot(tmp_path))
    sets = json.loads(corpusmill("diff", demo_root / V1, tmp_path / "megatron/healing_text_v4", "--json").stdout)

    lines = result.stdout.splitlines()
    assert result.returncode == 1
    assert lines[2:5] == ["different", "recipe", "  rules: ['int_score >= 3'] → ['int_score >= 4']"]
    assert lines[5] == "counts"  # files and row groups are the same
    assert any(line.split() == ["rows", "read", "1,050", "1,050"] for line in lines)
    assert any(line.startswith("  dropped: int_score >= 3 ") for line in lines)
    assert any(line.startswith("  0 documents only in B") for line in lines)
    assert lines[-1] == "  0 documents in both, with different texts"
    assert [entry["part"] for entry in sets["documents"]] == ["train", "valid"]


# Corpora of stage A and their inputs.


@pytest.fixture
def build_other(notes_root: Path) -> Callable[..., None]:
    def build_changed(**changes: object) -> None:
        build(notes_recipe(notes_root, "other", **changes), notes_root)

    return build_changed


def lines_between(result: Result, title: str) -> list[str]:
    lines = result.stdout.splitlines()
    first = lines.index(title) + 1
    rest = [number for number, line in enumerate(lines[first:]) if not line.startswith(" ")]
    return [line.strip() for line in lines[first : first + rest[0] if rest else None]]


def test_other_filters_of_the_same_documents_are_listed_with_their_effects(
    corpusmill: Corpusmill, notes_root: Path, build_other: Callable[..., None]
) -> None:
    build_other(filters={"length": {"max_characters": 140}})
    a, b = (step(notes_root, "filtered", "notes", recipe) for recipe in ("mixed", "other"))
    dropped = [number for number in range(40) if number != 4 and len(sentence(number + 500, 30)) > 140]
    assert 5 < len(dropped) < 35

    result = corpusmill("diff", a, b)
    counted = json.loads(corpusmill("diff", a, b, "--json").stdout)["counts"]

    assert result.returncode == 1
    assert lines_between(result, "recipe") == [
        "filters.length.max_characters: added 140",
        "filters.length.min_words: removed 5",
    ]
    assert "inputs" not in result.stdout
    counts = {row["name"].removeprefix("ledger."): (row["a"], row["b"]) for row in counted}
    equal = [row for row in counted if row["a"] == row["b"] and row["name"] != "ledger.in"]
    _, *shown, last = lines_between(result, "counts")
    assert ["rows", "read", "40", "40"] in [line.split() for line in shown]
    assert len(shown) == len(counted) - len(equal)
    assert last == f"{len(equal)} equal counts; --json gives all"
    assert (counts["in"], counts["dropped.refused_licence"]) == ((40, 40), (1, 1))
    assert counts["dropped.many_characters"] == (0, len(dropped))
    first = ", ".join(f"note-{number}" for number in dropped[:5])
    only_in_a = f"{len(dropped)} documents only in A: {first}, …"
    assert lines_between(result, "documents")[:2] == [only_in_a, "0 documents only in B"]


def test_documents_with_the_same_text_but_another_licence_are_listed(
    corpusmill: Corpusmill, notes_root: Path, build_other: Callable[..., None]
) -> None:
    build_other(license_tag="cc-by-4.0")
    a, b = (step(notes_root, "normalized", "notes", recipe) for recipe in ("mixed", "other"))

    result = corpusmill("diff", a, b)

    assert lines_between(result, "recipe") == ["license_tag: cc0-1.0 → cc-by-4.0"]
    own = "note-2, note-5, note-8, note-11, note-14"  # other rows state their own licence
    assert lines_between(result, "documents") == [
        "0 documents only in A",
        "0 documents only in B",
        "40 documents in both: note-0, note-1, note-2, note-3, note-4, …",
        "0 documents in both, with different texts",
        f"13 documents in both, with the same text, but another source, domain, licence or date: {own}, …",
    ]


def test_changed_source_is_compared_by_documents_and_files(
    corpusmill: Corpusmill, notes_root: Path, tmp_path: Path
) -> None:
    folder, moved = notes_root / "sources" / "notes", tmp_path / "notes"
    shutil.copytree(folder, moved)
    rows = [json.loads(line) for line in (moved / "1.jsonl").read_text().splitlines()]
    rows[0]["body"]["text"] = sentence(999, 30)
    (moved / "1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:-1]))
    (moved / "2.jsonl").write_text(json.dumps(rows[-1] | {"key": "note-new"}) + "\n")
    build(notes_recipe(notes_root, "other", path=str(moved)), notes_root)
    folders = {
        kind: [step(notes_root, kind, "notes", name) for name in ("mixed", "other")] for kind in ("normalized", "raw")
    }

    documents = corpusmill("diff", *folders["normalized"])
    files = corpusmill("diff", *folders["raw"])

    assert "recipe" not in documents.stdout.splitlines()
    assert lines_between(documents, "inputs")[0].startswith("stage_a/raw/notes: sha256:")
    assert lines_between(documents, "documents") == [
        "1 document only in A: note-39",
        "1 document only in B: note-new",
        "39 documents in both: note-0, note-1, note-2, note-3, note-4, …",
        "1 document in both, with different texts: note-20",
    ]
    changed, added = lines_between(files, "files read")
    assert changed.startswith("1.jsonl: sha256:") and "none" not in changed
    assert added.startswith("2.jsonl: none → sha256:")


def test_id_of_two_lines_is_printed_in_one(corpusmill: Corpusmill, tmp_path: Path) -> None:
    for name in "ab":
        row = {"text": f"Text {name}.", "key": "two\nlines"}
        build(parse_recipe(local_source(tmp_path / name, "notes", [row])), tmp_path / name)

    result = corpusmill("diff", *(step(tmp_path / name, "normalized", "notes") for name in "ab"))

    assert lines_between(result, "documents")[2:] == [
        "1 document in both: two⏎lines",
        "1 document in both, with different texts: two⏎lines",
    ]
