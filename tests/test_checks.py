"""Results of checks in the output of `run` and `status`.

A failed blocking check is run again by the next command, without a rebuild.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from command_results import Corpusmill, Result, only_line
from stage_a_build import NO_COMMIT, build, local_source, parse_recipe
from stage_a_sources import recipe_content, with_dedup, with_pack

from pipeline_assets.build import checks
from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
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
    """Write a recipe that packs notes and a book longer than its share."""
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
    def run_recipe(*options: str) -> Result:
        return corpusmill("run", NAME, "--data", root, "--workers", 0, *options)

    return run_recipe


def read_warnings(result: Result) -> list[str]:
    lines = result.stderr.splitlines()
    first = next((n for n in range(len(lines)) if all(": WARNING: " in line for line in lines[n:])), len(lines))
    return lines[first:]


@pytest.mark.slow
def test_current_run_and_status_repeat_warnings(run: Corpusmill, corpusmill: Corpusmill, root: Path) -> None:
    first, again, strict = run(), run(), run("--strict")
    status = corpusmill("status", NAME, "--data", root)
    rows = json.loads(run("--json").stdout)

    *columns, shares, draws = read_warnings(first)
    assert shares.startswith(f"check {NAME}: shares_reached: WARNING: books: requested 30.00%, reached ")
    assert draws.startswith(f"check {NAME}: draws_are_deduplicated: WARNING: the packed corpus is not deduplicated; ")
    assert read_warnings(again) == read_warnings(strict) == [*columns, shares, draws]
    assert [result.returncode for result in (first, again, strict, status)] == [0, 0, 1, 0]
    assert f"\n    shares_reached warns: {shares.split('WARNING: ')[1]}\n" in status.stdout
    packed = next(row for row in rows if row["artifact"] == "stage_a/packed")
    assert [check["name"] for check in packed["checks"] if not check["passed"]] == [
        "shares_reached",
        "draws_are_deduplicated",
    ]


@pytest.mark.slow
def test_artifact_damaged_before_its_checks_is_blocked_until_it_is_repaired(
    run: Corpusmill, corpusmill: Corpusmill, root: Path
) -> None:
    """Deleting the check record simulates a kill between seal and checks."""
    run()
    folder, record = root / FILTERED, (root / FILTERED).with_name(".notes.checks.json")
    manifest = (folder / "manifest.json").read_bytes()
    record.unlink()
    shard = next(folder.glob("shards/*"))
    shard.chmod(0o644)
    original = shard.read_bytes()
    shard.write_bytes(original[:-9] + bytes([original[-9] ^ 1]) + original[-8:])

    before = corpusmill("status", NAME, "--data", root)
    failed, again = run(), run("--replace")
    status = corpusmill("status", NAME, "--data", root)
    shard.write_bytes(original)
    repaired = run()

    line = f"{folder}: files_match_manifest failed: {shard.relative_to(folder)}: sha256 is "
    assert before.returncode == 0  # no check has run
    assert [result.returncode for result in (failed, again, status, repaired)] == [1, 1, 1, 0]
    assert only_line(failed).startswith(line) and only_line(again) == only_line(failed)
    assert only_line(failed).partition("; downstream ")[0].endswith(": remove the folder, and run its recipe again")
    assert only_line(failed).endswith("; downstream artifacts are not built until that check passes")
    assert f"  failed   {FILTERED} " in status.stdout
    assert f"; to run it again: corpusmill run {NAME} --data {root}\n" in status.stdout
    assert (folder / "manifest.json").read_bytes() == manifest
    recipe = StageARecipe.read(root / "recipes" / f"{NAME}.yaml")
    assert all(target.is_up_to_date(root) for target in recipe.targets())


def build_normalized(root: Path, strict: bool = False, **texts: str | None) -> None:
    """Build sources of one text each; a check warns, because none has a licence."""
    sources = [local_source(root, name, [{"text": text, "key": f"{name}-0"}]) for name, text in texts.items()]
    recipe = parse_recipe(*sources, name=NAME, outputs={"up_to": "normalized"})
    build_recipe(recipe, root / f"{NAME}.yaml", Run(root, RunSettings(workers=0)), strict=strict)


def test_warnings_are_last_even_if_a_later_artifact_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    warning = "named_columns_have_values: WARNING: no document has a value for `license`; check the spelling"

    with pytest.raises(InputError, match="bad"):
        build_normalized(tmp_path, notes="A short note.", bad=None)

    lines = capsys.readouterr().err.splitlines()
    first, last = (number for number, line in enumerate(lines) if line == f"check {NAME}/notes: {warning}")
    assert last == len(lines) - 1
    assert any("normalize bad" in line for line in lines[first:last])
    with pytest.raises(typer.Exit) as ended:
        build_normalized(tmp_path, strict=True, notes="A short note.")
    assert ended.value.exit_code == 1


def test_artifact_that_is_unreadable_for_its_checks_is_checked_by_the_next_build(
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


def test_warning_of_a_check_that_could_not_read_a_file_is_not_stored(root: Path) -> None:
    [raw, normalized, *_] = StageARecipe.read(root / "recipes" / f"{NAME}.yaml").targets()
    run, answers = Run(root, RunSettings(workers=0)), iter([InputError("not Parquet", root / "a.parquet", "remove it")])

    def shares_agree(artifact: Artifact) -> Verdict:
        """Check a share, with an error in the first call."""
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
    """Write a recipe over letters that all occur twice."""
    content: dict[str, Any] = parse_recipe(local_source(root.parent / "in", "letters", LETTERS)).content()
    with_dedup(content)
    content |= {"name": "capped", "max_removed": {"every_source": cap}, "outputs": None}
    (root / "recipes").mkdir(parents=True, exist_ok=True)
    (root / "recipes" / "capped.yaml").write_text(yaml.safe_dump(content))


@pytest.mark.slow
def test_run_beyond_the_cap_builds_nothing_downstream(corpusmill: Corpusmill, tmp_path: Path) -> None:
    root = tmp_path / "data"
    write_capped(root, "0.3")

    first, again = (corpusmill("run", "capped", "--data", root, env={"CORPUSMILL_WORKERS": "0"}) for _ in range(2))

    folder = root / "stage_a" / "capped" / "deduplicated" / "capped"
    for result in (first, again):
        assert result.returncode == 1
        assert only_line(result) == (
            f"{folder}: removals_within_caps failed: letters: 4 of 8 (50.0%, MORE THAN 30.0%): look at some with "
            "`corpusmill dedup show`, then raise `max_removed`, or change the rules of `dedup`; "
            "downstream artifacts are not built until that check passes"
        )
        assert "to continue" not in result.stderr
    assert (folder / "manifest.json").is_file()
    assert not (folder.parents[1] / "report").exists()


def test_state_follows_a_changed_cap(tmp_path: Path) -> None:
    root = tmp_path / "data"

    def read() -> StageARecipe:
        return StageARecipe.read(root / "recipes" / "capped.yaml")

    write_capped(root, "0.5")
    build(read(), root)
    within = read().target("stage_a/deduplicated").state(root)
    write_capped(root, "0.49")
    target = read().target("stage_a/deduplicated")

    state, reason = target.state(root)
    assert (within[0], state) == ("current", "failed")
    assert "letters: 4 of 8 (50.0%, MORE THAN 49.0%)" in reason
    with pytest.raises(InputError, match="removals_within_caps failed: letters: 4 of 8"):
        target.raise_if_failed(root)


def test_run_of_a_current_recipe_lists_each_source_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = local_source(tmp_path, "one", [{"text": "a text", "key": "0"}])
    recipe = parse_recipe(source, name=NAME, outputs={"up_to": "normalized"})
    run = Run(tmp_path, RunSettings(workers=0))
    build_recipe(recipe, tmp_path / f"{NAME}.yaml", run)
    listed, real = list[Path](), SourceFolder.files

    def files(folder: SourceFolder) -> list[SourceFile]:
        listed.append(folder.path)
        return real(folder)

    monkeypatch.setattr(SourceFolder, "files", files)
    build_recipe(recipe, tmp_path / f"{NAME}.yaml", run)

    assert listed == [tmp_path / "sources" / "one"]
