"""Rows of Nemotron whose prompts hold items of evaluation sets: a recipe names the sets, commands do the rest."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_results import Corpusmill, refused
from materialized import Materialized
from nemotron_build import ANSWER, quiz_of, row, run

from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks

ITEM = "Which river of the north carries neither boats nor barges in the winter of its own choosing?"
PROBLEM = " ".join(f"word{number}" for number in range(60))
ROWS = [
    row("leak", f"Say it.\n{ITEM.upper()}", f"{ANSWER} First of all."),
    row("near leak", f"{PROBLEM} {ITEM}", f"{ANSWER} Second of all."),
    row("short", ITEM, "4"),
    row("first", PROBLEM),
    row("answered", "Whatever may it be?", f"I was asked: {ITEM}"),
    row("alike", PROBLEM.replace("word59", "other"), f"{ANSWER} Third of all."),
]


@pytest.fixture(scope="module")
def made(corpusmill: Corpusmill, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("decontamination")
    splits = {"low": ROWS, "part-leaked": [row("all", ITEM)]}
    return run(corpusmill, root, {"maths": splits}, decontamination=quiz_of(root / "quiz", ITEM))


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for block in read_line_blocks(path) for line in block.splitlines()]


def dropped(made: Path, split: str = "low") -> list[tuple[str, str]]:
    lines = lines_of(made / "deduplicated/maths" / split / "dropped.jsonl.zst")
    return [(line["id"], line["reason"]) for line in lines]


def test_rows_that_ask_an_item_go_and_the_match_is_kept_aside(made: Path) -> None:
    assert dropped(made) == [("leak", "contaminated"), ("near leak", "contaminated"), ("short", "no_completion")]
    assert dropped(made, "part-leaked") == [("all", "contaminated")]

    [leak, near] = lines_of(made / "decontaminated/maths/low/contaminated.jsonl.zst")
    prompt = ROWS[0]["messages"][0]["content"]
    [(start, stop)] = leak["spans"]
    assert (leak["doc_id"], leak["evaluation_set"], leak["item"]) == ("maths/low/leak", "quiz", "q-0")
    assert prompt[start:stop] == ITEM.upper().removesuffix("?")
    assert (near["doc_id"], near["overlap"]) == ("maths/low/near leak", 1.0)
    [gone] = lines_of(made / "deduplicated/maths/part-leaked/dropped.jsonl.zst")
    assert gone["detail"] == "quiz q-0: 5 of its 5 n-grams; items in all: 1 of quiz"


def test_a_row_that_goes_is_nobodys_duplicate(corpusmill: Corpusmill, made: Path) -> None:
    """`near leak` comes before `first`, which is like it: had it been compared, it would stay in its place."""
    lines = lines_of(made / "near_duplicates/maths/low/decisions.jsonl.zst")

    assert {line["doc_id"].rpartition("/")[2]: line["decision"] for line in lines} == {
        "first": "kept",
        "answered": "kept",
        "alike": "near_duplicate",
    }
    tagged = [
        json.loads(corpusmill("trace", made / "deduplicated/maths/low", "--row", number, "--json").stdout)["doc_id"]
        for number in range(3)
    ]
    assert tagged == ["first", "answered", "alike"]


def test_a_line_tells_which_item_its_row_went_for(corpusmill: Corpusmill, made: Path) -> None:
    root = made.parents[1]

    told = corpusmill("trace", "--source", f"{root}/maths/low.jsonl:1", "--data", root).stdout
    gone = corpusmill("trace", made / "decontaminated/maths/low", "--doc-id", "maths/low/leak")

    detail = "quiz q-0: 5 of its 5 n-grams; items in all: 1 of quiz"
    assert f"{made}/decontaminated/maths/low: dropped: {detail}\n" in told
    assert f"{made}/deduplicated/maths/low: dropped: contaminated ({detail})\n" in told
    assert f"{made}/prompts/maths/low: kept, shards/00000.jsonl.zst row 0\n" in told
    assert "was dropped here: it contains quiz q-0" in refused(gone)


@pytest.mark.parametrize("step", ["decontaminated", "near_duplicates"])
def test_what_is_left_leads_to_its_row(corpusmill: Corpusmill, made: Path, step: str) -> None:
    folder = made / step / "maths/low"

    traced = json.loads(corpusmill("trace", folder, "--doc-id", "maths/low/first", "--json").stdout)

    assert traced["made_of"][0]["row"] == 3
    assert traced["license_evidence"] == "row: license"


def test_a_changed_item_makes_stale_what_was_decontaminated_alone(corpusmill: Corpusmill, tmp_path: Path) -> None:
    root = tmp_path / "data"
    quiz = quiz_of(root / "quiz", "Is there any other item of so many words?")
    run(corpusmill, root, {"maths": {"low": ROWS}}, decontamination=quiz)

    quiz_of(root / "quiz", ITEM)
    again = corpusmill("run", "mine", "--data", root, "--replace", env={"CORPUSMILL_WORKERS": "0"}).stdout

    built = [line.split("/nemotron/mine/")[1].split()[0] for line in again.splitlines() if line.startswith("built")]
    steps = ("decontaminated/maths/low", "near_duplicates/maths/low", "deduplicated/maths/low")
    assert built == ["evaluation/quiz", *steps]
    assert dropped(root / "nemotron" / "mine")[:2] == [("leak", "contaminated"), ("near leak", "contaminated")]


def test_the_assets_come_to_the_same_by_partition(made: Path, tmp_path: Path) -> None:
    root = tmp_path / "data"
    for name in ("recipes", "maths", "quiz"):
        shutil.copytree(made.parents[1] / name, root / name)
    materialize = Materialized(root, "")

    materialize("mine", "evaluation", partition="quiz")
    for split in ("low", "part-leaked"):
        steps = ("raw", "normalized_shards", "prompts", "decontaminated", "near_duplicates", "deduplicated")
        assert materialize("mine", *steps, partition=f"maths/{split}").success
        folder = Path("deduplicated/maths", split, "manifest.json")
        digests = [json.loads((one / folder).read_text())["digest"] for one in (made, root / "nemotron" / "mine")]
        assert digests[0] == digests[1]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            lambda recipe: recipe.update(deduplicate=None),
            "`decontamination` needs deduplicated rows; add `deduplicate`, `{}` is enough",
        ),
        (
            lambda recipe: recipe["decontamination"].update(action="cut", cut={}),
            "rows can only be dropped as a whole, got `cut`; write `drop`, without the section `cut`",
        ),
        (lambda recipe: recipe["decontamination"]["evaluation"][0].update(path="gone"), "gone not found"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_built(
    corpusmill: Corpusmill, made: Path, tmp_path: Path, change: Callable[[dict[str, Any]], None], line: str
) -> None:
    root = tmp_path / "data"
    shutil.copytree(made.parents[1] / "recipes", root / "recipes")
    recipe = yaml.safe_load((root / "recipes" / "mine.yaml").read_text())
    change(recipe)
    (root / "recipes" / "mine.yaml").write_text(yaml.safe_dump(recipe))

    told = corpusmill("run", "mine", "--data", root)

    assert line in refused(told)
    assert not (root / "nemotron").exists()
