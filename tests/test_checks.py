"""What checks found is told last by `run`, again by one that finds all current, and by `status`; what a blocking check
holds back is asked again, not built again.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from command_results import Corpusmill, Typed, only_line
from stage_a_build import NO_COMMIT, build, local_source, recipe_of
from stage_a_sources import recipe_content, with_dedup, with_pack

from pipeline_assets.build import checks
from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.build.target import Target
from pipeline_assets.commands.build import build_recipe
from pipeline_assets.corpus.readers.source_folder import SourceFile, SourceFolder
from pipeline_assets.spine.artifact import Artifact, Verdict
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import InputError, RetryableError
from pipeline_assets.systems.stage_a import StageARecipe

NAME = "two"
FILTERED = f"stage_a/{NAME}/filtered/notes"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data root with a recipe that packs notes and one long book, whose share is less than the book."""
    notes = [{"text": " ".join(f"w{n * 100 + word}" for word in range(20)), "key": f"note-{n}"} for n in range(10)]
    book = [{"text": " ".join(f"b{word}" for word in range(2000)), "key": "book-0"}]
    sources = [local_source(tmp_path, "notes", notes), local_source(tmp_path, "books", book)]
    content: dict[str, Any] = recipe_content(NO_COMMIT) | {"sources": sources, "name": NAME}
    with_pack(content)
    content["pack"] |= {"seq_len": 32, "num_seqs": 10, "strategy": "sequential", "max_epochs": {"every_source": "1"}}
    content["pack"] |= {"weights": {"notes": "0.7", "books": "0.3"}}
    path = tmp_path / "recipes" / f"{NAME}.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(yaml.safe_dump(content))
    return tmp_path


@pytest.fixture
def run(corpusmill: Corpusmill, root: Path) -> Corpusmill:
    def typed(*options: str) -> Typed:
        return corpusmill("run", NAME, "--data", root, "--workers", 0, *options)

    return typed


def warnings_of(result: Typed) -> list[str]:
    lines = result.stderr.splitlines()
    first = next((n for n in range(len(lines)) if all(": WARNING: " in line for line in lines[n:])), len(lines))
    return lines[first:]


@pytest.mark.slow
def test_warnings_come_last_again_when_all_is_current_and_in_the_status(
    run: Corpusmill, corpusmill: Corpusmill, root: Path
) -> None:
    first, again, strict = run(), run(), run("--strict")
    told = corpusmill("status", NAME, "--data", root)
    rows = json.loads(run("--json").stdout)

    *columns, shares, draws = warnings_of(first)
    assert shares.startswith(f"check {NAME}: shares_reached: WARNING: books: requested 30.00%, reached ")
    assert draws.startswith(f"check {NAME}: draws_are_deduplicated: WARNING: the packed corpus is not deduplicated; ")
    assert warnings_of(again) == warnings_of(strict) == [*columns, shares, draws]
    assert [result.returncode for result in (first, again, strict, told)] == [0, 0, 1, 0]
    assert f"\n    shares_reached warns: {shares.split('WARNING: ')[1]}\n" in told.stdout
    packed = next(row for row in rows if row["artifact"] == "stage_a/packed")
    assert [one["name"] for one in packed["checks"] if not one["passed"]] == [
        "shares_reached",
        "draws_are_deduplicated",
    ]


@pytest.mark.slow
def test_what_is_damaged_between_its_seal_and_its_checks_is_held_back_until_it_is_mended(
    run: Corpusmill, corpusmill: Corpusmill, root: Path
) -> None:
    """As if a kill had come right after the seal of the filtered notes: what checks said isn't kept."""
    run()
    folder, kept = root / FILTERED, (root / FILTERED).with_name(".notes.checks.json")
    manifest = (folder / "manifest.json").read_bytes()
    kept.unlink()
    shard = next(folder.glob("shards/*"))
    shard.chmod(0o644)
    honest = shard.read_bytes()
    shard.write_bytes(honest[:-9] + bytes([honest[-9] ^ 1]) + honest[-8:])

    before = corpusmill("status", NAME, "--data", root)
    found, again = run(), run("--replace")
    told = corpusmill("status", NAME, "--data", root)
    shard.write_bytes(honest)
    mended = run()

    line = f"{folder}: files_match_manifest failed: {shard.relative_to(folder)}: sha256 is "
    assert before.returncode == 0  # nobody has looked
    assert [result.returncode for result in (found, again, told, mended)] == [1, 1, 1, 0]
    assert only_line(found).startswith(line) and only_line(again) == only_line(found)
    assert only_line(found).partition("; downstream ")[0].endswith(": remove the folder, and run its recipe again")
    assert only_line(found).endswith("; downstream artifacts are not built until that check passes")
    assert f"  failed   {FILTERED} " in told.stdout
    assert f"; to run it again: corpusmill run {NAME} --data {root}\n" in told.stdout
    assert (folder / "manifest.json").read_bytes() == manifest
    recipe = StageARecipe.read(root / "recipes" / f"{NAME}.yaml")
    assert all(target.is_up_to_date(root) for target in recipe.targets())


def build_normalized(root: Path, strict: bool = False, **texts: str | None) -> None:
    """Build sources of one text each; a check warns, because none has a licence."""
    sources = [local_source(root, name, [{"text": text, "key": f"{name}-0"}]) for name, text in texts.items()]
    recipe = recipe_of(*sources, name=NAME, outputs={"up_to": "normalized"})
    build_recipe(recipe, root / f"{NAME}.yaml", Run(root, RunSettings(workers=0)), strict=strict)


NO_LICENCE = (
    f"check {NAME}/notes: named_columns_have_values: WARNING: no document has a value for `license`; check the spelling"
)


def test_warnings_come_last_even_if_a_later_artifact_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="bad"):
        build_normalized(tmp_path, notes="A short note.", bad=None)

    lines = capsys.readouterr().err.splitlines()
    found, last = (number for number, line in enumerate(lines) if line == NO_LICENCE)
    assert last == len(lines) - 1
    assert any("normalize bad" in line for line in lines[found:last])


def test_a_warning_is_the_last_line_of_a_build_and_ends_a_strict_one_with_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build_normalized(tmp_path, notes="A short note.")
    assert capsys.readouterr().err.splitlines()[-1] == NO_LICENCE

    with pytest.raises(typer.Exit) as ended:
        build_normalized(tmp_path, strict=True, notes="A short note.")

    assert ended.value.exit_code == 1


def test_a_build_whose_artifact_cannot_be_read_for_its_checks_ends_and_the_next_one_checks_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = StageARecipe.read(root / "recipes" / f"{NAME}.yaml").targets()[:1]
    run = Run(root, RunSettings(workers=0))

    def open_damaged(folder: Path) -> Artifact:
        raise InputError("not a manifest", folder / "manifest.json", "remove the folder")

    with monkeypatch.context() as patched:
        patched.setattr(checks, "open_artifact", open_damaged)
        line = "files_match_manifest failed: .*/manifest.json: not a manifest; .*; run the same command again"
        with pytest.raises(RetryableError, match=line):
            list(run_targets(targets, run))
    assert not targets[0].is_up_to_date(root)
    assert [outcome.was_current for outcome in run_targets(targets, run)] == [True]
    assert targets[0].is_up_to_date(root)


def test_a_warning_of_a_check_that_could_not_read_a_file_is_not_kept(root: Path) -> None:
    [raw, normalized, *_] = StageARecipe.read(root / "recipes" / f"{NAME}.yaml").targets()
    run, answers = Run(root, RunSettings(workers=0)), iter([InputError("not Parquet", root / "a.parquet", "remove it")])

    def shares_agree(artifact: Artifact) -> Verdict:
        """Check a share, once without success."""
        for error in answers:
            raise error
        return Verdict(True, "equal")

    own = (checks.FILES_CHECK, checks.artifact_check(shares_agree, is_blocking=False))
    target = replace(normalized, kind=replace(normalized.kind, checks=own))

    with pytest.raises(RetryableError, match=r"shares_agree failed: .*/a\.parquet: not Parquet; remove it; run"):
        list(run_targets([raw, target], run))
    assert not target.is_up_to_date(root)
    [_, again] = run_targets([raw, target], run)
    assert again.was_current and all(check.passed for check in again.checks)
    assert target.is_up_to_date(root)


LETTERS = [{"text": f"Dear friend, letter {n // 2} is of the river and its boats.", "key": f"l-{n}"} for n in range(8)]


def write_capped(root: Path, cap: str) -> None:
    """A recipe over letters, of which each is there twice."""
    content: dict[str, Any] = recipe_of(local_source(root.parent / "in", "letters", LETTERS)).content()
    with_dedup(content)
    content |= {"name": "capped", "max_removed": {"every_source": cap}, "outputs": None}
    (root / "recipes").mkdir(parents=True, exist_ok=True)
    (root / "recipes" / "capped.yaml").write_text(yaml.safe_dump(content))


def deduplicated(path: Path) -> Target:
    return StageARecipe.read(path).target("stage_a/deduplicated")


@pytest.mark.slow
def test_a_run_beyond_the_cap_makes_nothing_of_it_today_or_tomorrow(corpusmill: Corpusmill, tmp_path: Path) -> None:
    root = tmp_path / "data"
    write_capped(root, "0.3")

    first, again = (corpusmill("run", "capped", "--data", root, env={"CORPUSMILL_WORKERS": "0"}) for _ in range(2))

    deduplicated = root / "stage_a" / "capped" / "deduplicated" / "capped"
    for result in (first, again):
        assert result.returncode == 1
        assert only_line(result) == (
            f"{deduplicated}: removals_within_caps failed: letters: 4 of 8 (50.0%, MORE THAN 30.0%): look at some with "
            "`corpusmill dedup show`, then raise `max_removed`, or change the rules of `dedup`; "
            "downstream artifacts are not built until that check passes"
        )
        assert "to continue" not in result.stderr
    assert (deduplicated / "manifest.json").is_file()
    assert not (deduplicated.parents[1] / "report").exists()


def test_a_cap_that_is_raised_lets_it_pass_and_one_that_is_lowered_is_told(tmp_path: Path) -> None:
    root = tmp_path / "data"
    write_capped(root, "0.5")
    path = root / "recipes" / "capped.yaml"
    build(StageARecipe.read(path), root)

    within = deduplicated(path).state(root)
    write_capped(root, "0.49")
    beyond = deduplicated(path).state(root)

    assert (within[0], beyond[0]) == ("current", "failed")
    assert "letters: 4 of 8 (50.0%, MORE THAN 49.0%)" in beyond[1]
    with pytest.raises(InputError, match="removals_within_caps failed: letters: 4 of 8"):
        deduplicated(path).raise_if_failed(root)


def test_a_run_of_a_current_recipe_lists_each_source_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = local_source(tmp_path, "one", [{"text": "a text", "key": "0"}])
    recipe, run = recipe_of(source, name=NAME, outputs={"up_to": "normalized"}), Run(tmp_path, RunSettings(workers=0))
    build_recipe(recipe, tmp_path / f"{NAME}.yaml", run)
    listed, real = list[Path](), SourceFolder.files

    def files(folder: SourceFolder) -> list[SourceFile]:
        listed.append(folder.path)
        return real(folder)

    monkeypatch.setattr(SourceFolder, "files", files)
    build_recipe(recipe, tmp_path / f"{NAME}.yaml", run)

    assert listed == [tmp_path / "sources" / "one"]
