"""Commands of docs/decontamination.md, and wrong use in one line."""

import json
from pathlib import Path

import pytest
import yaml
from command_results import DOCS, Corpusmill, Result, Wrong, code_blocks, only_line, read_table, type_page
from document_corpus import numbered
from stage_a_build import build, local_source, parse_recipe
from stage_a_sources import recipe_content

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    notes = [{"text": numbered(100 * number, 40), "key": f"note-{number}"} for number in range(10)]
    pages = [{"text": f"See: {numbered(9000, 19).upper()}! {numbered(5000, 60)}", "key": "leak"}]
    more = [{"text": numbered(7000, 30), "key": "page"}]
    sources = [local_source(folder / "in", "notes", notes), local_source(folder / "in", "pages", [*pages, *more])]
    build(parse_recipe(*sources, outputs={"normalized_dir": "stage_a/normalized"}), folder / "out")
    items = [{"id": "q-1", "question": numbered(9000, 15), "choices": {"text": [numbered(9015, 4)]}}]
    short = [{"id": "q-2", "question": "Why not?", "choices": {"text": ["No."]}}]
    (folder / "evaluation" / "quiz").mkdir(parents=True)
    lines = "".join(json.dumps(item) + "\n" for item in [*items, *short])
    (folder / "evaluation" / "quiz" / "test.jsonl").write_text(lines)
    write_section(folder / "quiz.yaml", folder / "evaluation" / "quiz")
    return folder


def write_section(path: Path, quiz: Path, text: str = "question", **keys: object) -> None:
    columns = {"text": [text, "choices.text"], "id": "id"}
    evaluation = [{"name": "quiz", "path": str(quiz), "files": ["*.jsonl"], "columns": columns}]
    path.write_text(yaml.safe_dump({"decontamination": {"min_item_words": 8, "evaluation": evaluation, **keys}}))


@pytest.fixture(scope="module")
def results(corpusmill: Corpusmill, work: Path) -> dict[str, Result]:
    """Run the page's commands with the leak as DOC_ID; return results by command."""
    answers = type_page("decontamination.md", corpusmill, "leak", cwd=work, env={"CORPUSMILL_WORKERS": "0"})
    return {words[1] if words[0] == "stage-a" else words[0]: result for words, result in answers}


@pytest.fixture
def wrong(corpusmill: Corpusmill, work: Path) -> Wrong:
    def answer(pattern: str = "filtered/*", **keys: str) -> tuple[int, str]:
        write_section(work / "wrong.yaml", work / "evaluation" / "quiz", **keys)
        arguments = ("--input", f"out/stage_a/{pattern}", "--out-dir", "out/stage_a/decontaminated/wrong")
        words = ("stage-a", "decontaminate", "--manifest", "wrong.yaml", *arguments)
        result = corpusmill(*words, cwd=work, env={"CORPUSMILL_WORKERS": "0"})
        return result.returncode, only_line(result)

    return answer


def test_section_of_the_page_is_valid_in_a_recipe() -> None:
    [block] = code_blocks(DOCS / "decontamination.md", "yaml")

    recipe = parse_recipe(*recipe_content("ab" * 20)["sources"], **yaml.safe_load(block))

    assert [target.role for target in recipe.targets()[-3:]] == [
        "stage_a/evaluation/quiz",
        "stage_a/decontaminated",
        "stage_a/report",
    ]


def test_output_counts_matches_by_set_and_documents_by_source(results: dict[str, Result]) -> None:
    quiz = read_table(results["decontaminate"], "evaluation")["quiz"]
    sources = read_table(results["decontaminate"], "by source")

    columns = ("items", "too short", "contaminated documents", "dropped documents")
    assert [quiz[column] for column in columns] == ["2", "1", "1", "1"]
    assert {name: (row["in"], row["out"], row["dropped"]) for name, row in sources.items()} == {
        "notes": ("10", "10", "0"),
        "pages": ("2", "1", "1"),
    }


def test_why_prints_the_item_and_its_position(results: dict[str, Result]) -> None:
    lines = [line.strip() for line in results["why"].stdout.splitlines()]

    assert lines[-4:] == [
        "out/stage_a/decontaminated/all",
        "dropped for contaminated",
        "quiz q-1: 7 of its 7 n-grams; items in all: 1 of quiz",
        f"in characters 5-118: {numbered(9000, 19).upper()}",
    ]


def test_evaluation_files_are_verified_with_the_rest(results: dict[str, Result]) -> None:
    assert "intact  stage_a/evaluation      all/quiz" in results["verify"].stdout
    assert "source files: 3 of 3 input files unchanged" in results["verify"].stdout


def test_corpus_decontaminated_with_other_files_is_not_replaced(
    corpusmill: Corpusmill, results: object, work: Path, tmp_path: Path
) -> None:
    (tmp_path / "other.jsonl").write_text(json.dumps({"question": numbered(7000, 19), "choices": None}) + "\n")
    write_section(tmp_path / "quiz.yaml", tmp_path)
    out = ("--input", "out/stage_a/filtered/*", "--out-dir", "out/stage_a/decontaminated/all")

    refused = corpusmill("stage-a", "decontaminate", "--manifest", tmp_path / "quiz.yaml", *out, cwd=work)

    assert refused.returncode == 2
    assert "evaluation/quiz: another version is sealed here: " in only_line(refused)


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"evaluation": []}, "wrong.yaml: `evaluation` must have at least 1 item, got []"),
        (
            {"text": "query"},
            "set quiz has no column `query`; its first row has id, question, choices; set `columns.text`",
        ),
        ({"min_item_words": 20}, "wrong.yaml: `min_item_words` must be at most `ngram_words` 13, got 20"),
        ({"pattern": "report/mixed"}, "expected a stage_a/normalized or stage_a/filtered or"),
    ],
)
def test_invalid_request_exits_with_2_and_one_line(wrong: Wrong, work: Path, keys: dict[str, str], line: str) -> None:
    status, message = wrong(**keys)

    assert (status, line in message) == (2, True), message
    assert not (work / "out" / "stage_a" / "decontaminated" / "wrong").exists()


def test_recipe_without_the_section_is_refused(corpusmill: Corpusmill, work: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.yaml").write_text("system: stage_a\nname: notes\nsources: []\n")
    words = ("stage-a", "decontaminate", "--manifest", tmp_path / "notes.yaml", "--input", "out/stage_a/filtered/*")

    refused = corpusmill(*words, "--out-dir", "out/stage_a/decontaminated/wrong", cwd=work)

    assert (refused.returncode, only_line(refused)) == (
        2,
        f"{tmp_path}/notes.yaml: section `decontamination` not found; "
        "write `key: value` lines below `decontamination:`",
    )
