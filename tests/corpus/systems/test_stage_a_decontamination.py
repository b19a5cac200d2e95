"""Decontamination in stage A recipes: targets, staleness and resumed builds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from document_corpus import numbered
from refusals import refusal
from stage_a_build import INLINE, Change, build, digests, local_source, parse_recipe
from stage_a_sources import with_decontamination, with_dedup, write_quiz

from pipeline_assets.build.run import Run
from pipeline_assets.build.target import Target
from pipeline_assets.commands.corpora import decontaminated_target, input_corpora
from pipeline_assets.corpus.decontamination import decontaminate_corpus
from pipeline_assets.corpus.decontamination.recipe import DecontaminationSection, read_contaminated
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.systems.stage_a import DEDUPLICATED, StageARecipe

BuildRecipe = Callable[..., StageARecipe]


def unchanged(content: dict[str, Any]) -> None:
    pass


@pytest.fixture
def recipe(tmp_path: Path) -> BuildRecipe:
    """Return a function that builds a recipe over notes and pages with quiz questions."""

    def build_recipe(change: Change = unchanged) -> StageARecipe:
        content: dict[str, Any] = {}
        with_decontamination(content, str(tmp_path / "quiz"))
        change(content)
        return parse_recipe(*sources, **content)

    write_quiz(tmp_path / "quiz", [numbered(100, 20)])
    leaks = {"notes": f"{numbered(1000, 30)} {numbered(100, 20)}", "pages": numbered(95, 30)}
    rows = {
        name: [{"text": numbered(9000 + 50 * number, 30), "key": name}, {"text": leak, "key": f"{name} leak"}]
        for number, (name, leak) in enumerate(leaks.items())
    }
    sources = [local_source(tmp_path, name, source_rows) for name, source_rows in rows.items()]
    return build_recipe


def test_inputs_are_filtered_sources_or_the_deduplicated_corpus(recipe: BuildRecipe) -> None:
    alone, after_dedup = recipe(), recipe(with_dedup)

    filtered = ["stage_a/filtered/notes", "stage_a/filtered/pages"]
    for stage_a_recipe, corpora in ((alone, filtered), (after_dedup, ["stage_a/deduplicated"])):
        by_step = {target.kind.short_name: target for target in stage_a_recipe.targets()}
        evaluation, decontaminated, report = (by_step[step] for step in ("evaluation", "decontaminated", "report"))
        assert [str(target.folder) for target in (evaluation, decontaminated)] == [
            "stage_a/mixed/evaluation/quiz",
            "stage_a/mixed/decontaminated/mixed",
        ]
        assert [target.role for target in decontaminated.upstream] == [*corpora, "stage_a/evaluation/quiz"]
        assert "stage_a/decontaminated" in [target.role for target in report.upstream]


@pytest.mark.parametrize("change", [unchanged, with_dedup])
def test_each_document_keeps_its_source_with_or_without_deduplication(
    change: Change, recipe: BuildRecipe, tmp_path: Path
) -> None:
    built = build(recipe(change), tmp_path)["stage_a/decontaminated"]

    leaks = [(line.doc_id, line.source) for line in read_contaminated(built)]
    assert leaks == [("notes leak", "notes"), ("pages leak", "pages")]
    assert list(built.manifest.identity.counts["by_source"]) == ["notes", "pages"]
    shards = [file.path for file in built.manifest.identity.files[:2]]
    assert shards == ["shards/notes-00000.jsonl.zst", "shards/pages-00000.jsonl.zst"]


def with_keys(**keys: object) -> Change:
    return lambda content: content["decontamination"].update(keys)


def repeat_set(content: dict[str, Any]) -> None:
    [quiz] = content["decontamination"]["evaluation"]
    content["decontamination"]["evaluation"] = [quiz, quiz]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (repeat_set, "`decontamination`: two evaluation sets are called quiz; choose unique names"),
        (with_keys(evaluation=[]), "`decontamination.evaluation` must have at least 1 item, got []"),
        (with_keys(ngram_word=3), "unknown key `decontamination.ngram_word`"),
    ],
)
def test_an_invalid_section_is_refused_in_one_line(change: Change, what: str, tmp_path: Path) -> None:
    content: dict[str, Any] = {}
    with_decontamination(content)
    change(content)
    section = parse_recipe({"kind": "normalized", "source": "notes"}).content() | content

    assert what in refusal(lambda: StageARecipe.from_mapping(section, "clean.yaml"), UsageError)


class TestStaleness:
    @pytest.fixture(autouse=True)
    def _build(self, recipe: BuildRecipe, tmp_path: Path) -> None:
        self.root, self.built = tmp_path, build(recipe(), tmp_path)

    def rebuild(self, recipe: StageARecipe) -> list[str]:
        new = digests(build(recipe, self.root, replace=True))
        return [role for role, digest in new.items() if digest != self.built[role].manifest.digest]

    def test_a_changed_evaluation_file_makes_downstream_artifacts_stale(self, recipe: BuildRecipe) -> None:
        write_quiz(self.root / "quiz", [numbered(1000, 20)])

        states = {target.role: target.state(self.root) for target in recipe().targets()}

        assert [role for role, (state, _) in states.items() if state != "current"] == ["stage_a/evaluation/quiz"]
        assert self.rebuild(recipe()) == ["stage_a/evaluation/quiz", "stage_a/decontaminated", "stage_a/report"]

    def test_a_changed_rule_or_column_does_not_list_the_files_again(self, recipe: BuildRecipe) -> None:
        assert self.rebuild(recipe(with_keys(min_item_overlap="1"))) == ["stage_a/decontaminated", "stage_a/report"]

    def test_the_path_of_the_folder_changes_nothing(self, recipe: BuildRecipe) -> None:
        (self.root / "quiz").rename(self.root / "moved")

        assert self.rebuild(recipe(lambda content: with_decontamination(content, "moved"))) == []


def test_a_killed_build_restarts_if_evaluation_files_changed(
    recipe: BuildRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(*_: object) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(decontaminate_corpus, "concatenate_lines", kill)
        build(recipe(), tmp_path)
    [folder] = tmp_path.glob("stage_a/mixed/decontaminated/.mixed.building.*")
    write_quiz(tmp_path / "quiz", [numbered(9000, 20)])

    [line] = read_contaminated(build(recipe(), tmp_path, replace=True)["stage_a/decontaminated"])

    assert (line.doc_id, line.excerpt) == ("notes", numbered(9000, 20))
    assert not folder.exists()


def external_target(folders: list[Path], root: Path) -> Target:
    content: dict[str, Any] = {}
    with_decontamination(content, str(root / "quiz"))
    section = DecontaminationSection.from_mapping(content["decontamination"], "here")
    return decontaminated_target(input_corpora([*map(str, folders)], DEDUPLICATED), Path("stage_a/given"), section)


@pytest.mark.parametrize(
    ("change", "roles"),
    [(unchanged, ["stage_a/filtered/notes", "stage_a/filtered/pages"]), (with_dedup, ["stage_a/deduplicated"])],
)
def test_external_corpora_give_the_digest_of_the_recipe(
    change: Change, roles: list[str], recipe: BuildRecipe, tmp_path: Path
) -> None:
    built = build(recipe(change), tmp_path)

    target = external_target([built[role].folder for role in roles], tmp_path)
    SYSTEMS.kinds["stage_a/evaluation"].build(target.upstream[-1], Run(tmp_path, INLINE))
    external = target.kind.build(target, Run(tmp_path, INLINE))

    assert external.manifest.digest == built["stage_a/decontaminated"].manifest.digest
    if change is with_dedup:
        folders = [built["stage_a/filtered/notes"].folder, built["stage_a/deduplicated"].folder]
        message = refusal(lambda: external_target(folders, tmp_path), UsageError)
        assert ": a stage_a/deduplicated must be the only input, got 2; " in message


def test_unusable_evaluation_sets_are_found_before_the_build_that_needs_them(
    recipe: BuildRecipe, tmp_path: Path
) -> None:
    def misspell(content: dict[str, Any]) -> None:
        content["decontamination"]["evaluation"][0]["columns"]["text"] = ["query"]

    line = refusal(lambda: recipe(misspell).check_prerequisites(tmp_path), UsageError)
    assert "set quiz has no column `query`; its first row has id, question; set `columns.text`" in line

    build(recipe(), tmp_path)
    (tmp_path / "quiz" / "quiz.jsonl").unlink()

    recipe().check_prerequisites(tmp_path)  # up to date, so the set is not read
    assert "no file matches" in refusal(lambda: recipe(misspell).check_prerequisites(tmp_path), UsageError)
