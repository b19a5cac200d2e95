"""Values that `forget` finds in no row, which may be misspelt."""

import json
import shutil
from pathlib import Path

import pytest
from marked_rows import build, built_sources, forget_ids, rows, run_forget, run_in, sources
from nemotron_build import row as conversation
from stage_a_build import local_source, parse_recipe
from subset_pools import build_subsets, scored, talk

from pipeline_assets.commands.forget import forget
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.systems.nemotron import NemotronRecipe


def test_values_without_a_row_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, _ = built_sources(tmp_path, "notes")
    ids = tmp_path / "ids.txt"
    ids.write_text("\n".join(["note_7", *(f"nite_{number}" for number in range(12))]))

    forget(ids=ids, url=["note*"], data=root)
    printed = capsys.readouterr().out.splitlines()
    assert printed[3:5] == ["13 unmatched values", "  id  'nite_0'"]
    assert printed[13:16] == [
        "  id  'nite_9'",
        "  and 3 more; --json lists all",
        "correct them if misspelt; the list gets them too, except patterns, for rows of later builds",
    ]

    assert forget_ids(root, ["note_7", "nite_1"])["unmatched"] == [["id", "nite_1"]]
    build(sources(tmp_path / "in", "notes"), run_in(root, replace=True))
    ids.write_text("note_7\nnote_99999\n")
    assert run_forget(root, ids=ids)["unmatched"] == [["id", "note_99999"]]  # the other one is on the list


def test_duplicates_of_a_conversation_are_printed_with_the_part_that_is_their_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        conversation(name, "Which way to the old mill?", f"{name}: along the river and over the bridge.")
        for name in "ab"
    ]
    (tmp_path / "chats").mkdir()
    (tmp_path / "chats" / "train.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    section = {"dataset": "chats", "path": str(tmp_path / "chats"), "splits": ["train"], "domain": "chat_if"}
    content = {"system": "nemotron", "name": "made", "rows": {}, "deduplicate": {}, "datasets": [section]}
    build(NemotronRecipe.from_mapping(content, "made"), run_in(tmp_path / "data"))
    (tmp_path / "ids.txt").write_text("a")

    forget(ids=tmp_path / "ids.txt", data=tmp_path / "data")

    printed = capsys.readouterr().out.splitlines()
    assert printed[3] == "  chats/train/b  1.00  of chats/train/a"
    assert printed[4:6] == ["duplicates are kept, unless you add their ids", "of an id DATASET/SPLIT/ID, add only ID"]


def test_a_pattern_without_a_row_cannot_be_added(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build(sources(tmp_path / "in", "notes"), run_in(tmp_path / "data"))

    forget(url=["https://none.example/*"], data=tmp_path / "data")

    assert capsys.readouterr().out.splitlines()[2:] == [
        "1 unmatched value",
        "  url  'https://none.example/*'",
        "correct them if misspelt; the list gets them too, except patterns, for rows of later builds",
        "nothing was changed",
    ]


@pytest.mark.parametrize(("reason", "options"), [(None, "--reason and --apply"), ("request 12", "--apply")])
def test_advice_names_only_missing_options(
    reason: str | None, options: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, _ = built_sources(tmp_path, "notes")
    (tmp_path / "ids.txt").write_text("note_7")

    forget(ids=tmp_path / "ids.txt", reason=reason, data=root)

    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"nothing was changed; to put 1 value on the list, add {options}"


def test_clean_without_remnants_names_no_next_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, _ = built_sources(tmp_path, "notes")

    for apply in (False, True):
        forget(clean=True, apply=apply, data=root)

        assert capsys.readouterr().out.splitlines() == [
            "0 folders",
            "not searched: clones, exports, backups and published sets (--published) outside this data root",
        ]


def test_ids_are_lines_without_byte_order_mark_and_space(tmp_path: Path) -> None:
    """A Unicode line separator is part of an id."""
    root, ids = tmp_path / "data", ["first", "a\u2028b", "c\x85d"]
    source_rows = [row | {"key": key} for row, key in zip(rows(3), ids, strict=True)]
    build(parse_recipe(local_source(tmp_path, "notes", source_rows), outputs={"up_to": "normalized"}), run_in(root))
    (tmp_path / "ids").write_text("\ufefffirst\r\n\ta\u2028b \r\n  \r\nc\x85d", encoding="utf-8", newline="")

    answer = run_forget(root, ids=tmp_path / "ids")

    assert [row["id"] for row in answer["rows"]] == ids and answer["unmatched"] == []


def test_unknown_source_is_refused_with_five_known_sources(tmp_path: Path) -> None:
    root, _ = built_sources(tmp_path, *"abcdefg")

    with pytest.raises(UsageError) as refused:
        forget(source=["/nowhere/x.jsonl#3"], data=root)

    known = ", ".join(str(tmp_path / "in/sources" / name) for name in "abcde")
    assert str(refused.value).endswith(f"lists this file; known sources: {known} and 2 more")


def test_artifacts_without_a_stored_recipe_are_counted_before_the_next_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, _ = built_sources(tmp_path, "notes")
    forget_ids(root, ["note_7"])

    forget(data=root)

    assert capsys.readouterr().out.splitlines()[-2:] == [
        f"1 artifact of no recipe in {root}/recipes: to keep them without the rows, first run their recipes by path, "
        "with --replace",
        f"next: corpusmill forget --clean --data {root}",
    ]


def test_artifacts_with_a_missing_input_are_listed_as_unsearchable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, source = tmp_path / "data", local_source(tmp_path, "notes", rows(9))
    changes = {"dedup": {}, "decontamination": None, "pack": {"seq_len": 32}}
    build(parse_recipe(source, **changes), run_in(root))
    mixed = root / "stage_a/mixed"
    (tmp_path / "ids.txt").write_text("note_7\n")
    shutil.rmtree(mixed / "filtered/notes")
    folders = [f"{mixed}/{name}/mixed" for name in ("deduplicated", "packed", "report")]
    lines = [
        "3 unsearchable artifacts",
        *(f"  {folder}  stage_a/filtered/notes, from which it was built, is missing" for folder in folders),
        "they may contain forgotten rows: run their recipes with --replace, or remove them",
    ]

    forget(ids=tmp_path / "ids.txt", data=root)
    assert capsys.readouterr().out.splitlines()[-6:-1] == lines
    added = forget_ids(root, ["note_7"])
    forget(clean=True, apply=True, data=root)

    assert added["artifacts"] == [f"{mixed}/normalized/notes"]
    assert added["unsearchable"] == dict.fromkeys(folders, "stage_a/filtered/notes")
    assert capsys.readouterr().out.splitlines()[-5:] == lines
    shutil.rmtree(mixed)
    assert run_forget(root)["unsearchable"] == {}


def test_artifacts_whose_input_was_rebuilt_without_the_rows_are_no_longer_unsearchable(tmp_path: Path) -> None:
    root, recipe = built_sources(tmp_path, "notes")
    changes = {"dedup": {}, "decontamination": None, "pack": {"seq_len": 32}}
    build(parse_recipe(local_source(tmp_path, "notes", rows(9)), **changes), run_in(root, replace=True))
    forget_ids(root, ["note_7"])
    build(recipe, run_in(root, replace=True))

    answer = run_forget(root)

    names = ("deduplicated/mixed", "filtered/notes", "packed/mixed", "report/mixed")
    assert answer["artifacts"] == [f"{root}/stage_a/mixed/{name}" for name in names]
    assert answer["unsearchable"] == {}


def test_training_subsets_of_published_pools_are_named_as_unsearchable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, _ = built_sources(tmp_path, "notes")
    subsets = root / "nemotron/scored/training_subsets"
    pools = [scored(tmp_path, "low", [talk("note_7")], [1.0])]
    shutil.copytree(build_subsets(tmp_path, pools, {"all": {"percentile": [0, 100]}}).folder, subsets)

    added = forget_ids(root, ["note_7"])
    forget(data=root)

    assert added["unsearchable"] == {str(subsets): None}
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "1 unsearchable artifact",
        f"  {subsets}  built from published pools, or files that are not read through the list",
        "they may contain forgotten rows: pin the rebuilt pools, and run their recipes, or remove them",
    ]
