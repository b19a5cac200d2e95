"""Targets are built when missing and never overwritten without replace."""

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from crash_points import list_steps
from forgery import overwrite
from refusals import refusal
from word_artifact import ENGLISH, build_words, target_in, words_in, write_words
from word_targets import COUNT, ENGLISH_WORDS, build, never, nothing, one_file

from pipeline_assets.build.build_target import seal_manifest
from pipeline_assets.build.systems import unknown_kind
from pipeline_assets.build.target import Target
from pipeline_assets.spine import durable
from pipeline_assets.spine.artifact import open_artifact, verify
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.changed_keys import changed_keys
from pipeline_assets.spine.errors import InputError, RetryableError, UsageError
from pipeline_assets.spine.manifest import Identity, StageVersion
from pipeline_assets.spine.opening import open_staging_dir
from pipeline_assets.spine.stage import WHOLE_SHARD
from pipeline_assets.spine.staging import Receipt, StagingDir, staging_folders


def test_manifest_contains_the_target_and_its_content(tmp_path: Path) -> None:
    upstream = build(replace(ENGLISH_WORDS, folder=Path("up")), tmp_path)
    target = Target(
        kind=unknown_kind("words/count", StageVersion("count", 4)),
        name="count",
        folder=Path("count"),
        recipe={"language": "english"},
        upstream=(replace(ENGLISH_WORDS, folder=Path("up")),),
        tokenizer={"family": "o200k", "sha256": "aa"},
    )
    hub_file = {"name": "a.parquet", "digest": "sha256:bb"}

    def make(building: StagingDir) -> BuildResult:
        file, label = write_words(ENGLISH[0], WHOLE_SHARD, building).files
        label = replace(label, path=".work/a.lengths")
        building.path("meta.json").write_bytes(building.path(".work/a.lengths").read_bytes())
        label = replace(label, path="meta.json")
        return BuildResult([file], {"documents": 2}, {"upper_case": True}, [hub_file], [label], {"remark": "by hand"})

    manifest = build(target, tmp_path, make).manifest

    assert (manifest.kind, manifest.name) == ("words/count", "count")
    assert manifest.identity == Identity(
        stage=StageVersion("count", 4),
        recipe={"language": "english"},
        inputs=[{"name": "words/parts", "digest": upstream.manifest.digest}, hub_file],
        tokenizer={"family": "o200k", "sha256": "aa"},
        decisions={"upper_case": True},
        counts={"documents": 2},
        files=manifest.identity.files,
    )
    assert [file.path for file in manifest.identity.files] == ["parts/a.txt"]
    assert [file.path for file in manifest.storage] == ["parts/a.txt", "meta.json"]
    assert manifest.provenance["run_settings"] == {"workers": 1}
    assert manifest.provenance["remark"] == "by hand"


def test_digest_is_independent_of_the_names_of_target_and_upstream(tmp_path: Path) -> None:
    def build_both(name: str) -> tuple[str, str]:
        words = replace(ENGLISH_WORDS, name=f"{name}_words", folder=Path(f"{name}_words"))
        count = replace(COUNT, name=name, folder=Path(name), upstream=(words,))
        return tuple(build(target, tmp_path, one_file).manifest.digest for target in (words, count))

    assert build_both("first") == build_both("second")


def test_current_artifact_is_not_touched_and_opens_during_another_build(tmp_path: Path) -> None:
    sealed = build_words(tmp_path, "english")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    build(ENGLISH_WORDS, tmp_path, never, replace=True)

    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    with open_staging_dir(tmp_path / "words", {}):
        assert build(ENGLISH_WORDS, tmp_path, never) == sealed


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"recipe": {"language": "french"}}, "the recipe changed (`language`: english → french)"),
        # Commands replace marked keys with options, and `name` with the option for the name of a recipe.
        ({"recipe": {"language": "english", "name": "model"}}, "the recipe changed (name: added model)"),
        (
            {"recipe": {"language": "english", **dict.fromkeys("abcdefgh", 1)}},
            f"the recipe changed ({', '.join(f'`{key}`: added 1' for key in 'abcde')}, and 3 more)",
        ),
        (
            {"kind": unknown_kind("words/parts", StageVersion("words", 2))},
            "built by words version 1, the program has words version 2",
        ),
        ({"tokenizer": {"family": "o200k", "sha256": "aa"}}, "the tokenizer changed"),
    ],
)
def test_changed_request_makes_an_artifact_stale(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    build_words(tmp_path, "english")

    assert replace(ENGLISH_WORDS, **change).state(tmp_path) == ("stale", reason)


def test_changed_or_removed_upstream_artifact_makes_an_artifact_stale(tmp_path: Path) -> None:
    build_words(tmp_path, "english")
    build(COUNT, tmp_path)

    build_words(tmp_path, "french")
    assert COUNT.state(tmp_path) == ("stale", "words/parts changed since")
    shutil.rmtree(tmp_path / "words")
    assert COUNT.state(tmp_path) == ("stale", "words/parts is missing")


def test_removed_or_added_upstream_target_makes_an_artifact_stale(tmp_path: Path) -> None:
    french = replace(target_in("french"), folder=Path("french"), partition="french")
    build_words(tmp_path, "english")
    build(french, tmp_path)
    build(COUNT, tmp_path)

    alone, both = replace(COUNT, upstream=()), replace(COUNT, upstream=(*COUNT.upstream, french))

    assert alone.state(tmp_path) == ("stale", "also derived from words/parts")
    assert both.state(tmp_path) == ("stale", "not derived from words/parts/french")


def test_missing_upstream_is_an_error_that_requests_its_build(tmp_path: Path) -> None:
    assert refusal(lambda: build(COUNT, tmp_path)) == (
        f"{tmp_path / 'words'}: nothing is sealed here (no manifest.json); build it, or wait for its build to end"
    )


@pytest.mark.parametrize("key", ["name", "source.name"])
def test_another_version_is_kept_without_replace_and_without_leftovers(tmp_path: Path, key: str) -> None:
    sealed = build_words(tmp_path, "english")
    (tmp_path / ".words.lock").unlink()

    assert refusal(lambda: build(replace(target_in("french"), name_key=key), tmp_path, never), UsageError) == (
        f"{tmp_path / 'words'}: another version is sealed here: the recipe changed (`language`: english → french); "
        f"set another `{key}` in the recipe, or run with --replace"
    )
    assert ENGLISH_WORDS.state(tmp_path) == ("current", sealed.manifest.digest)
    assert list(tmp_path.iterdir()) == [tmp_path / "words"]


def test_failed_build_keeps_the_old_version_and_its_own_shards(tmp_path: Path) -> None:
    build_words(tmp_path, "english")

    def fail(building: StagingDir) -> BuildResult:
        building.commit("write", "00000", Receipt(one_file(building).files, {}))
        raise InputError("the disk is full", building.folder, "free some")

    with pytest.raises(InputError, match="the disk is full"):
        build(target_in("french"), tmp_path, fail, replace=True)

    assert ENGLISH_WORDS.state(tmp_path)[0] == "current"
    assert [path.name for path in staging_folders(tmp_path / "words")] == [".words.building.2"]


def test_artifact_that_another_builder_just_sealed_is_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sealed = build_words(tmp_path / "elsewhere", "english")

    def appear(step: str, path: Path) -> None:
        if path.name == ".plan.json" and sealed.folder.exists():
            sealed.folder.rename(tmp_path / "words")

    monkeypatch.setattr(durable, "failpoint", appear)
    artifact = build(ENGLISH_WORDS, tmp_path, never)

    assert artifact.manifest == sealed.manifest
    assert sorted(path.name for path in tmp_path.iterdir()) == [".words.lock", "elsewhere", "words"]


def test_members_are_sealed_under_one_digest_and_verified_together(tmp_path: Path) -> None:
    members = [
        replace(target_in(language), folder=Path("all", language), name=f"all/{language}", partition=language)
        for language in ("en", "fr")
    ]
    dataset = Target(
        unknown_kind("words/all", StageVersion("join", 1)), "all", Path("all"), {}, upstream=tuple(members)
    )
    sealed = [build(member, tmp_path, one_file) for member in members]

    artifact = seal_manifest(dataset, tmp_path, lambda: BuildResult([], {"documents": 4}, {}), True, {})
    resealing = list_steps(
        lambda: seal_manifest(dataset, tmp_path, lambda: BuildResult([], {"documents": 4}, {}), True, {})
    )

    assert artifact.manifest.identity.inputs == [
        {"name": "words/parts/en", "digest": sealed[0].manifest.digest, "member": "en"},
        {"name": "words/parts/fr", "digest": sealed[1].manifest.digest, "member": "fr"},
    ]
    assert [file.path for file in verify(artifact)] == ["en/parts/a.txt", "fr/parts/a.txt"]
    assert dataset.state(tmp_path) == ("current", artifact.manifest.digest)
    assert resealing == []


def test_changed_members_are_resealed_without_replace(tmp_path: Path) -> None:
    member = replace(ENGLISH_WORDS, folder=Path("all", "en"), name="en")
    dataset = Target(unknown_kind("words/all", StageVersion("join", 1)), "all", Path("all"), {}, upstream=(member,))
    build(member, tmp_path, one_file)
    before = seal_manifest(dataset, tmp_path, lambda: BuildResult([], {}, {}), True, {}).manifest.digest

    changed = replace(member, recipe={"language": "french"})
    build(changed, tmp_path, nothing, replace=True)
    after = seal_manifest(
        replace(dataset, upstream=(changed,)), tmp_path, lambda: BuildResult([], {}, {}), True, {}
    ).manifest.digest

    assert after != before
    assert open_artifact(tmp_path / "all").manifest.digest == after


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1, "b": 2}, {"a": 2, "b": 2}, {"a": "1 → 2"}),
        ({"a": 1}, {}, {"a": "removed 1"}),
        ({"s": {"x": 1, "y": 2}}, {"s": {"x": 1, "y": 3}}, {"s.y": "2 → 3"}),
        ({"s": None}, {"s": {"x": 1, "y": None}}, {"s.x": "added 1"}),
        ({"s": {"x": 1}}, {}, {"s.x": "removed 1"}),
        ({"s": None}, {"s": {}}, {"s": "added {}"}),
        (dict.fromkeys("hgfedcba", 1), {}, dict.fromkeys("abcdefgh", "removed 1")),
        (
            {"s": {"files": ["config.json", *(f"part-{number}.jsonl" for number in range(9))]}},
            {"s": {"files": [*(f"part-{number}.jsonl" for number in range(10)), "new.jsonl"]}},
            {"s.files": "added 'part-9.jsonl', 'new.jsonl'; removed 'config.json'"},
        ),
        ({"a": ["x" * 40, "y" * 40]}, {"a": ["y" * 40]}, {"a": f"removed '{'x' * 40}'"}),
        ({"a": [*"abcd"]}, {"a": [*"abc"]}, {"a": "['a', 'b', 'c', 'd'] → ['a', 'b', 'c']"}),
        ({"a": [*"ab"]}, {"a": "x" * 61}, {"a": f"['a', 'b'] → {'x' * 60}…"}),
        ({"a": "x" * 90 + "1"}, {"a": "x" * 90 + "2"}, {"a": f"…{'x' * 20}1 → …{'x' * 20}2"}),
        ({"a": "x" * 20 + "1" * 50}, {"a": "x" * 20 + "2"}, {"a": f"{'x' * 20}{'1' * 40}… → {'x' * 20}2"}),
        ({"a": "0" * 64}, {"a": "0" * 63 + "1"}, {"a": "000000000000… → 000000000000…"}),
        ({"s": {"x": 1}, "a": 1}, {"s": "none", "a": 2}, {"a": "1 → 2", "s": "{'x': 1} → none"}),
    ],
)
def test_changed_keys_are_dotted_names_with_their_values(
    old: dict[str, object], new: dict[str, object], changed: dict[str, str]
) -> None:
    assert list(changed_keys(old, new).items()) == list(changed.items())  # sorted


def test_build_that_fails_before_the_first_shard_leaves_no_folder(tmp_path: Path) -> None:
    def fail(building: StagingDir) -> BuildResult:
        building.path("half").write_text("a")
        raise UsageError("its language is unknown", "language", "take another")

    with pytest.raises(UsageError, match="its language is unknown"):
        build(ENGLISH_WORDS, tmp_path, fail)

    assert staging_folders(tmp_path / "words") == []


@pytest.mark.parametrize(
    ("name", "spoil", "what"),
    [
        ("parts/a.txt", Path.unlink, "the file is missing"),
        ("parts/b.txt", lambda path: overwrite(path, b"THREE\n"), "has 6 bytes, sealed with 16"),
        ("manifest.json", lambda path: overwrite(path, b"[]"), "not a valid manifest: Expected `object`, got `array`"),
    ],
)
def test_artifact_is_damaged_until_it_is_rebuilt(
    tmp_path: Path, name: str, spoil: Callable[[Path], object], what: str
) -> None:
    sealed = build_words(tmp_path, "english")
    folder = sealed.folder

    spoil(folder / name)

    assert target_in("french").state(tmp_path) == ("damaged", f"{folder / name}: {what}")
    with pytest.raises(InputError) as refused:
        build(ENGLISH_WORDS, tmp_path, never)
    assert not isinstance(refused.value, UsageError)
    assert str(refused.value) == (
        f"{folder}: the artifact is damaged ({folder / name}: {what}); run with --replace to build it again"
    )
    assert ENGLISH_WORDS.state(tmp_path) == ("damaged", f"{folder / name}: {what}")

    rebuilt = build_words(tmp_path, "english")  # replaces the damaged artifact

    assert rebuilt.manifest.digest == sealed.manifest.digest
    assert ENGLISH_WORDS.state(tmp_path) == ("current", sealed.manifest.digest)
    assert words_in(folder) == ["ONE", "TWO", "THREE", "FOUR", "FIVE", "SIX"]


def test_artifact_whose_manifest_may_not_be_read_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed = build_words(tmp_path, "english")
    manifest, open_file = sealed.folder / "manifest.json", os.open

    def deny(path: str | Path, *arguments: Any, **options: Any) -> int:
        if Path(path) == manifest:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return open_file(path, *arguments, **options)

    monkeypatch.setattr(os, "open", deny)
    with pytest.raises(RetryableError) as refused:
        build_words(tmp_path, "english")  # replaces a damaged artifact
    monkeypatch.undo()

    assert str(refused.value) == f"{manifest}: reading is not allowed; grant read permission"
    assert ENGLISH_WORDS.state(tmp_path) == ("current", sealed.manifest.digest)


def test_downstream_of_a_damaged_artifact_is_stale_until_its_rebuild(tmp_path: Path) -> None:
    folder = build_words(tmp_path, "english").folder
    count = build(COUNT, tmp_path)

    overwrite(folder / "manifest.json", b"[]")
    spoilt_state = COUNT.state(tmp_path)
    build_words(tmp_path, "english")

    assert spoilt_state == ("stale", f"words/parts is damaged ({folder / 'manifest.json'})")
    assert COUNT.state(tmp_path) == ("current", count.manifest.digest)
