"""Files of filters are pinned by hash, and their paths change no byte."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from classifiers import train
from refusals import refusal
from stage2_build import write_local_mixture
from stage_a_build import INLINE, build, digests, local_source, parse_recipe

from pipeline_assets.build.rows.follow import follow_document
from pipeline_assets.build.rows.row_stores import RowStores
from pipeline_assets.corpus.filters.verdict import read_dropped
from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks
from pipeline_assets.corpus.pages import REPORT_JSON
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.recipe_yaml import read_yaml
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.systems.stage_a import StageARecipe

ROWS = [
    {"text": "the quick brown fox", "url": "http://good.org/a", "key": "a"},
    {"text": "the quick brown fox again", "url": "http://x.bad.org/b", "key": "b"},
    {"text": "buy cheap pills", "url": "http://good.org/c", "key": "c"},
    {"text": "the fox says worse words", "url": "http://good.org/d", "key": "d"},
    {"text": "the quick theorem", "key": "e"},
]
FILTERED = "stage_a/filtered/notes"
MakeRecipe = Callable[..., StageARecipe]


def pin(path: Path, root: Path) -> dict[str, str]:
    return {"path": str(path.relative_to(root)), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Write a data root with a list of each kind and a classifier."""
    root = tmp_path / "data"
    (root / "lists").mkdir(parents=True)
    (root / "lists/domains").write_text("bad.org\n", encoding="utf-8")
    (root / "lists/words").write_text("worse words\n", encoding="utf-8")
    train(root / "hq.bin", wordNgrams=2, bucket=1000)
    return root


@pytest.fixture
def make(root: Path, tmp_path: Path) -> MakeRecipe:
    def parse(words: str = "lists/words", **changes: Any) -> StageARecipe:
        lists = {"domains": {"spam": "lists/domains"}, "words": {"rude": words}}
        blocklist = {
            kind: {name: pin(root / path, root) for name, path in files.items()} for kind, files in lists.items()
        }
        model = pin(root / "hq.bin", root)
        score = {"model": model, "label": "__label__hq", "column": "quality", "min_score": "0.5"}
        filters = {"blocklist": blocklist, "score": score} | changes
        return parse_recipe(local_source(tmp_path, "notes", ROWS, filters=filters))

    return parse


def test_kept_documents_have_their_score_and_dropped_ones_their_list(make: MakeRecipe, root: Path) -> None:
    built = build(make(), root)

    filtered = built[FILTERED]
    lines = b"".join(read_line_blocks(filtered.path("shards/00000.jsonl.zst"))).splitlines()
    kept = {row["doc_id"]: json.loads(row["meta"]["extra"])["quality"] for row in map(json.loads, lines)}
    dropped = {line.doc_id: (line.reason, line.value, line.threshold) for line in read_dropped(filtered)}
    counts = filtered.manifest.identity.counts
    assert kept.keys() == {"a", "e"} and all(0.5 < score < 1 for score in kept.values())
    low = dropped.pop("c")
    assert (low[0], low[2]) == ("score:quality", 0.5) and isinstance(low[1], float) and low[1] < 0.5
    assert dropped == {
        "b": ("blocklist_domain:spam", "bad.org", None),
        "d": ("blocklist_word:rude", "worse words", None),
    }
    assert (counts["without_url"], sum(counts["scored"]["quality"]), len(counts["scored"]["quality"])) == (1, 3, 20)
    scores = json.loads(built["stage_a/report"].path(REPORT_JSON).read_text(encoding="utf-8"))["scores"]["notes"]
    assert (scores["min_score"], scores["kept_share"]) == ("0.5", 2 / 3)
    assert scores["from"]["0.00"] == {"documents": 3, "share": 1.0}
    assert scores["from"]["0.50"] == {"documents": 2, "share": 2 / 3}
    [row] = follow_document(RowStores(SYSTEMS.kinds, Lineage(root)), "e")
    _, fate = row.downstream[0]
    assert fate.lines is not None and fate.lines[0] == "kept"
    assert not [line for line in fate.lines if "without_url" in line]  # a missing URL changes no text


def test_bytes_are_equal_for_any_workers(make: MakeRecipe, root: Path, tmp_path: Path) -> None:
    inline = digests(build(make(), root, engine=INLINE))

    for workers in (1, 2):
        other = tmp_path / f"{workers}"
        (other / "lists").mkdir(parents=True)
        for name in ("hq.bin", "lists/domains", "lists/words"):
            os.link(root / name, other / name)
        assert digests(build(make(), other, engine=RunSettings(workers))) == inline


def test_changed_file_makes_an_artifact_stale_until_it_is_restored_or_moved(make: MakeRecipe, root: Path) -> None:
    recipe = make()
    digest = build(recipe, root)[FILTERED].manifest.digest
    target, words = recipe.target("stage_a/filtered", "notes"), root / "lists/words"
    expected, changed = hashlib.sha256(b"worse words\n").hexdigest(), hashlib.sha256(b"other words\n").hexdigest()

    words.write_text("other words\n", encoding="utf-8")

    reason = f"lists/words changed: its sha256 is {changed}, the recipe pins {expected}"
    fix = "restore the file, or pin the hash of the intended file"
    assert target.state(root) == ("stale", reason)
    assert refusal(lambda: recipe.check_prerequisites(root)) == (
        f"{words}: sha256 is {changed}, the recipe pins {expected}; {fix}"
    )
    words.write_text("worse words\n", encoding="utf-8")
    assert target.state(root)[0] == "current"
    words.rename(root / "lists/moved")
    assert target.state(root)[0] == "current"
    assert make("lists/moved").target("stage_a/filtered", "notes").state(root) == ("current", digest)


def test_missing_file_is_named_before_any_build(make: MakeRecipe, root: Path) -> None:
    stage_a, mixture = make(), write_local_mixture(root)
    [first, *rest] = mixture.sources
    filtered = first.model_copy(update={"filters": stage_a.sources[0].filters})
    stage2 = mixture.model_copy(update={"sources": [filtered, *rest]})
    stage2.check_prerequisites(root)
    (root / "hq.bin").unlink()

    for recipe in (stage_a, stage2):
        assert refusal(lambda recipe=recipe: recipe.check_prerequisites(root)) == (
            f"{root}/hq.bin: a file of the filters cannot be read (No such file or directory); "
            "restore the file, or correct its `path` in the recipe"
        )


def write_recipe(folder: Path, blocklist: dict[str, Any]) -> Path:
    path, notes = folder / "notes.yaml", local_source(folder, "notes", ROWS)
    values = {"system": "stage_a", "name": "mixed", "sources": [notes | {"filters": {"blocklist": blocklist}}]}
    path.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    return path


def test_all_files_without_a_hash_or_path_are_named_with_their_lines(root: Path, tmp_path: Path) -> None:
    lists = {"domains": {"spam": {"path": "lists/domains"}}, "words": {"rude": {"path": "lists/words"}}}
    lists["urls"] = {"lost": {"sha256": "0" * 64}, "empty": {}, "sha256": {"path": "none", "sha256": "1" * 64}}
    path = write_recipe(tmp_path, lists)

    with pytest.raises(UsageError) as refused:
        StageARecipe.from_file_values(read_yaml(path), path, root)

    lines = {line.strip(): number for number, line in enumerate(path.read_text().splitlines(), 1)}
    hashes = {name: hashlib.sha256((root / name).read_bytes()).hexdigest() for name in ("lists/domains", "lists/words")}
    assert [str(error) for error in (refused.value, *refused.value.others)] == [
        f"{path}:{lines[section]}: {name} is not pinned; add `sha256: {hashes[name]}`"
        for section, name in (("spam:", "lists/domains"), ("rude:", "lists/words"))
    ] + [f"{path}:{lines[name]}: the file has no `path`; add it" for name in ("lost:", "empty: {}")] + [
        f"{path}:{lines['path: none']}: file {root}/none not found; restore the file, or correct `path`"
    ]
    recipe = parse_recipe(local_source(tmp_path, "notes", ROWS, filters={"blocklist": {"domains": lists["domains"]}}))
    assert refusal(lambda: recipe.check_prerequisites(root)) == (
        f"{root}/lists/domains: the recipe does not pin the file; write `sha256: {hashes['lists/domains']}`"
    )


def test_file_with_two_hashes_is_named(root: Path, tmp_path: Path) -> None:
    pins = [{"path": "lists/words", "sha256": digit * 64} for digit in "01"]
    path = write_recipe(tmp_path, {"domains": {"spam": pins[0]}, "words": {"rude": pins[1]}})

    assert refusal(lambda: StageARecipe.from_file_values(read_yaml(path), path, root), UsageError) == (
        f"{path}:17: `sources.0.filters`: lists/words has two different pins, {'0' * 64} and {'1' * 64}, "
        "but a file has one sha256; correct it"
    )


def test_lists_that_can_check_no_document_stop_the_build(make: MakeRecipe, root: Path) -> None:
    domains = {"spam": pin(root / "lists/domains", root)}

    recipe = make(score=None, blocklist={"domains": domains, "url_column": "adress"})

    assert refusal(lambda: build(recipe, root), UsageError) == (
        "mixed/notes: no kept document has a URL in the column `adress`; "
        "correct `blocklist.url_column`, or remove the lists of domains and URLs"
    )


@pytest.mark.slow
def test_rebuild_from_manifest_is_identical(make: MakeRecipe, root: Path, corpusmill: Callable[..., Any]) -> None:
    build(make(), root)

    result = corpusmill("rebuild", "stage_a/mixed/filtered/notes", cwd=root)  # the lists' paths are relative, too

    assert (result.returncode, result.stderr.count("Traceback")) == (0, 0)
    assert "identical" in result.stdout


def test_fates_lack_measurements_after_a_list_has_changed(
    make: MakeRecipe, root: Path, corpusmill: Callable[..., Any]
) -> None:
    build(make(), root)
    (root / "lists/words").write_text("other words\n", encoding="utf-8")

    [dropped] = json.loads(corpusmill("why", "d", "--data", root.name, "--json", cwd=root.parent).stdout)
    [kept] = json.loads(corpusmill("why", "a", "--data", root, "--json").stdout)
    rows = next(root.parent.rglob("rows.jsonl"))
    forgotten = json.loads(corpusmill("forget", "--source", f"{rows}:1", "--data", root, "--json").stdout)

    measured = f"not measured: {root}/lists/words: sha256 is "
    assert dropped["filtered"][0]["measurements"][0] == "blocklist_word:rude worse words"
    assert dropped["filtered"][0]["measurements"][1].startswith(measured)
    assert (kept["filtered"][0]["outcome"], len(kept["filtered"][0]["measurements"])) == ("kept", 1)
    assert [row["id"] for row in forgotten["rows"]] == ["a"]
