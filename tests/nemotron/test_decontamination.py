"""Nemotron rows with evaluation items in their prompts are dropped."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_results import Corpusmill, only_line, refused
from materialized import Materialized
from nemotron_build import ANSWER, row, run, write_quiz_section

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
def built(corpusmill: Corpusmill, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("decontamination")
    splits = {"low": ROWS, "part-leaked": [row("all", ITEM)]}
    return run(corpusmill, root, {"maths": splits}, decontamination=write_quiz_section(root / "quiz", ITEM))


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for block in read_line_blocks(path) for line in block.splitlines()]


def list_drops(built: Path, split: str = "low") -> list[tuple[str, str]]:
    lines = read_lines(built / "deduplicated/maths" / split / "dropped.jsonl.zst")
    return [(line["id"], line["reason"]) for line in lines]


def test_rows_with_an_item_in_the_prompt_are_dropped_and_their_matches_stored(built: Path) -> None:
    assert list_drops(built) == [("leak", "contaminated"), ("near leak", "contaminated"), ("short", "no_completion")]
    assert list_drops(built, "part-leaked") == [("all", "contaminated")]

    [leak, near] = read_lines(built / "decontaminated/maths/low/contaminated.jsonl.zst")
    prompt = ROWS[0]["messages"][0]["content"]
    [(start, stop)] = leak["spans"]
    assert (leak["doc_id"], leak["evaluation_set"], leak["item"]) == ("maths/low/leak", "quiz", "q-0")
    assert prompt[start:stop] == ITEM.upper().removesuffix("?")
    assert (near["doc_id"], near["overlap"]) == ("maths/low/near leak", 1.0)
    [dropped] = read_lines(built / "deduplicated/maths/part-leaked/dropped.jsonl.zst")
    assert dropped["detail"] == "quiz q-0: 5 of its 5 n-grams; items in all: 1 of quiz"


def test_a_contaminated_row_makes_no_other_row_a_duplicate(corpusmill: Corpusmill, built: Path) -> None:
    """`near leak` precedes the similar `first`; if compared, it would have been kept."""
    lines = read_lines(built / "near_duplicates/maths/low/decisions.jsonl.zst")

    decisions = {line["doc_id"].rpartition("/")[2]: line["decision"] for line in lines}
    assert decisions == {"first": "kept", "answered": "kept", "alike": "near_duplicate"}
    traces = [corpusmill("trace", built / "deduplicated/maths/low", "--row", row, "--json").stdout for row in range(3)]
    assert [json.loads(trace)["doc_id"] for trace in traces] == ["first", "answered", "alike"]


def test_the_trace_of_a_dropped_row_names_its_item(corpusmill: Corpusmill, built: Path) -> None:
    root = built.parents[1]

    trace = corpusmill("trace", "--source", f"{root}/maths/low.jsonl:1", "--data", root).stdout
    refused_trace = corpusmill("trace", built / "decontaminated/maths/low", "--doc-id", "maths/low/leak")

    detail = "quiz q-0: 5 of its 5 n-grams; items in all: 1 of quiz"
    assert f"{built}/decontaminated/maths/low: dropped: {detail}\n" in trace
    assert f"{built}/deduplicated/maths/low: dropped: contaminated ({detail})\n" in trace
    assert f"{built}/prompts/maths/low: kept, shards/00000.jsonl.zst row 0\n" in trace
    assert "was dropped here: it contains quiz q-0" in refused(refused_trace)


@pytest.mark.parametrize("step", ["decontaminated", "near_duplicates"])
def test_a_kept_row_is_traced_to_its_source(corpusmill: Corpusmill, built: Path, step: str) -> None:
    folder = built / step / "maths/low"

    traced = json.loads(corpusmill("trace", folder, "--doc-id", "maths/low/first", "--json").stdout)

    assert traced["made_of"][0]["row"] == 3
    assert traced["license_evidence"] == "row: license"


def test_a_changed_item_rebuilds_only_decontaminated_artifacts(corpusmill: Corpusmill, tmp_path: Path) -> None:
    root = tmp_path / "data"
    quiz = write_quiz_section(root / "quiz", "Is there any other item of so many words?")
    run(corpusmill, root, {"maths": {"low": ROWS}}, decontamination=quiz)

    write_quiz_section(root / "quiz", ITEM)
    rebuilt = corpusmill("run", "mine", "--data", root, "--replace", env={"CORPUSMILL_WORKERS": "0"}).stdout

    built = [line.split("/nemotron/mine/")[1].split()[0] for line in rebuilt.splitlines() if line.startswith("built")]
    steps = ("decontaminated/maths/low", "near_duplicates/maths/low", "deduplicated/maths/low")
    assert built == ["evaluation/quiz", *steps]
    assert list_drops(root / "nemotron" / "mine")[:2] == [("leak", "contaminated"), ("near leak", "contaminated")]


def copy_inputs(built: Path, root: Path) -> Path:
    for name in ("recipes", "maths", "quiz"):
        shutil.copytree(built.parents[1] / name, root / name)
    return root


@pytest.mark.slow
def test_assets_built_by_partition_have_the_same_digests(built: Path, tmp_path: Path) -> None:
    root = copy_inputs(built, tmp_path / "data")
    materialize = Materialized(root, "")

    materialize("mine", "evaluation", partition="quiz")
    for split in ("low", "part-leaked"):
        steps = ("raw", "normalized_shards", "prompts", "decontaminated", "near_duplicates", "deduplicated")
        assert materialize("mine", *steps, partition=f"maths/{split}").success
        folder = Path("deduplicated/maths", split, "manifest.json")
        digests = [json.loads((base / folder).read_text())["digest"] for base in (built, root / "nemotron" / "mine")]
        assert digests[0] == digests[1]


NEEDED = "`decontamination` needs deduplicated rows; add `deduplicate`, `{}` is enough"
CUT = "rows can only be dropped as a whole, got `cut`; write `drop`, without the section `cut`"


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda recipe: recipe.update(deduplicate=None), NEEDED),
        (lambda recipe: recipe["decontamination"].update(action="cut", cut={}), CUT),
        (lambda recipe: recipe["decontamination"]["evaluation"][0].update(path="gone"), "gone not found"),
    ],
)
def test_invalid_recipes_are_refused_before_a_build(
    corpusmill: Corpusmill, built: Path, tmp_path: Path, change: Callable[[dict[str, Any]], None], line: str
) -> None:
    root = copy_inputs(built, tmp_path / "data")
    recipe = yaml.safe_load((root / "recipes" / "mine.yaml").read_text())
    change(recipe)
    (root / "recipes" / "mine.yaml").write_text(yaml.safe_dump(recipe))

    result = corpusmill("run", "mine", "--data", root)

    assert line in refused(result)
    assert not (root / "nemotron").exists()


def test_missing_column_of_an_evaluation_set_is_found_before_a_build(
    corpusmill: Corpusmill, built: Path, tmp_path: Path
) -> None:
    root = copy_inputs(built, tmp_path / "data")
    path = root / "recipes" / "mine.yaml"
    path.write_text(path.read_text().replace("- question", "- query"))

    result = corpusmill("run", "mine", "--data", root)

    assert "set quiz has no column `query`; its first row has" in only_line(result)
    assert not (root / "nemotron").exists()
