"""A mixture repinned over four Mondays: new, unchanged, changed, source missing."""

import json
import shutil
from pathlib import Path
from random import Random

import dagster as dg
import numpy as np
import pytest
import sentencepiece
import yaml
import zstandard
from marked_rows import forget_ids
from materialized import run_job
from stage2_build import CODE, PAGES, WEB, append_rows, recipe_with, write_datasets

from pipeline_assets.build.recipe_versions import delete_old_artifacts, list_versions
from pipeline_assets.code_location import build_definitions
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine.artifact import open_artifact, verify
from pipeline_assets.spine.key_types import UNPINNED
from pipeline_assets.spine.lock import locked
from pipeline_assets.systems.registry import SYSTEMS

pytest.importorskip("py3langid", reason="needs the extra `languages`")
MONDAYS = ("2026-11-02", "2026-11-09", "2026-11-16", "2026-11-23")


class Weeks:
    def __init__(self, root: Path, instance: dg.DagsterInstance) -> None:
        self.root, self.hub, self.instance = root, root / "hub", instance
        write_datasets(self.hub)
        recipe_with(root, dict.fromkeys((WEB, PAGES, CODE), UNPINNED))
        schedule = {"name": "weekly", "recipe": "small", "cron": "0 5 * * 1", "action": "repin", "period": "week"}
        (root / "schedules.yaml").write_text(yaml.safe_dump({"schedules": [schedule]}))

    def run(self, day: str, **settings: int) -> dg.ExecuteInProcessResult:
        job = build_definitions(self.root).resolve_job_def("weekly__repin")
        with LoopbackHub(self.hub) as hub:
            return run_job(job, self.instance, hub.endpoint, f"{day}T05:00:00+00:00", **settings)

    def versions(self) -> list[str]:
        return [path.stem for path in list_versions("small", self.root)]

    def add_row(self) -> None:
        append_rows(
            self.hub, ["A new paragraph that nobody has written before, about ships, harbours and the sea. " * 3]
        )

    def inode(self, version: str, path: str) -> int:
        return (self.root / "stage2" / version / path).stat().st_ino


@pytest.mark.slow
def test_weekly_versions_over_four_mondays(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    weeks = Weeks(tmp_path, instance)

    # New: heads are fetched, and the version of the week is built.
    assert weeks.run(MONDAYS[0]).success
    assert weeks.versions() == ["small_20261102"]
    first = SYSTEMS.read_recipe(tmp_path / "recipes" / "small_20261102.yaml")
    assert all(target.is_up_to_date(tmp_path) for target in first.targets())
    assert UNPINNED not in {revision for _, revision in first.revisions()}

    # Unchanged: nothing is written, whatever day of the week it is.
    before = sorted(path for path in tmp_path.rglob("*") if "stage2" in path.parts)
    assert weeks.run(MONDAYS[1]).success and weeks.run("2026-11-11").success
    assert weeks.versions() == ["small_20261102"]
    assert sorted(path for path in tmp_path.rglob("*") if "stage2" in path.parts) == before

    # Changed: one head moved; artifacts of other sources are linked, not built.
    weeks.add_row()
    assert weeks.run(MONDAYS[2]).success
    assert weeks.versions() == ["small_20261102", "small_20261116"]
    second = SYSTEMS.read_recipe(tmp_path / "recipes" / "small_20261116.yaml")
    pins, earlier_pins = dict(second.revisions()), dict(first.revisions())
    assert [dataset for dataset in pins if pins[dataset] != earlier_pins[dataset]] == [WEB]
    shard = "filtered/pages/shards/00000.jsonl.zst"
    assert weeks.inode("small_20261116", shard) == weeks.inode("small_20261102", shard)
    for target in second.targets():
        assert target.is_up_to_date(tmp_path)
        list(verify(open_artifact(tmp_path / target.folder), SYSTEMS.label_names))
    new, old = (open_artifact(tmp_path / f"stage2/{name}/raw_corpus/web").manifest for name in weeks.versions()[::-1])
    assert new.identity.counts["documents"] == old.identity.counts["documents"] + 1

    # A second run in the week uses its pins, though a head moved since.
    weeks.add_row()
    assert weeks.run("2026-11-18").success
    assert dict(SYSTEMS.read_recipe(tmp_path / "recipes" / "small_20261116.yaml").revisions()) == pins

    # A missing source keeps its commit; the rest is built, and the run fails and names it.
    shutil.rmtree(weeks.hub / "datasets" / CODE)
    failed = weeks.run(MONDAYS[3])
    assert not failed.success
    [event] = failed.get_step_failure_events()
    message = event.step_failure_data.user_failure_data.description or ""  # type: ignore[union-attr]
    assert CODE in message and "dataset not found" in message and "\n" not in message
    third = SYSTEMS.read_recipe(tmp_path / "recipes" / "small_20261123.yaml")
    assert dict(third.revisions())[CODE] == pins[CODE] and dict(third.revisions())[WEB] != pins[WEB]
    assert third.target("stage2/token_shards", "web").is_up_to_date(tmp_path)
    assert third.target("stage2/inventory").is_up_to_date(tmp_path)


@pytest.mark.slow
def test_older_versions_lose_artifacts_and_keep_their_recipes(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    weeks = Weeks(tmp_path, instance)
    assert weeks.run(MONDAYS[0]).success
    weeks.add_row()
    assert weeks.run(MONDAYS[1]).success

    assert weeks.versions() == ["small_20261102", "small_20261109"]
    old, new = (SYSTEMS.read_recipe(tmp_path / "recipes" / f"{name}.yaml") for name in weeks.versions())
    locked_folder, reported = old.target("stage2/inventory").folder, list[str]()
    with locked(tmp_path / locked_folder, 1):
        assert weeks.run(MONDAYS[1], keep_versions=1).success
        delete_old_artifacts("small", tmp_path, SYSTEMS, 1, reported.append)
    # Upstream artifacts of the locked one are kept, too.
    assert {line.partition(":")[2] for line in reported} == {" it is in use, or belongs to another user"}
    assert f"kept {locked_folder}" in {line.partition(":")[0] for line in reported}
    reported.clear()
    delete_old_artifacts("small", tmp_path, SYSTEMS, 0, reported.append)
    assert f"removed {locked_folder}: versions whose artifacts are kept: 1" in reported
    assert not any((tmp_path / target.folder).exists() for target in old.targets())
    for target in new.targets():
        list(verify(open_artifact(tmp_path / target.folder), SYSTEMS.label_names))
        assert target.is_up_to_date(tmp_path)
    delete_old_artifacts("small", tmp_path, SYSTEMS, 1)
    assert (tmp_path / new.target("stage2/inventory").folder).exists()


@pytest.mark.slow
def test_later_weekly_versions_lack_forgotten_documents(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    weeks = Weeks(tmp_path, instance)
    assert weeks.run(MONDAYS[0]).success
    old_version, sources = tmp_path / "stage2/small_20261102", ("web", "pages")
    texts_by_id = {source: read_documents(old_version / "raw_corpus" / source) for source in sources}
    forgotten = [name for source in sources for name in Random(9).sample([*texts_by_id[source]][1:40], 10)]
    texts = [found[name] for found in texts_by_id.values() for name in forgotten if name in found]
    assert sum(first_letters(text) in decode_tokens(old_version) for text in texts) == len(texts) == 20

    forget_ids(tmp_path, forgotten)
    weeks.add_row()
    assert weeks.run(MONDAYS[1]).success

    assert weeks.versions() == ["small_20261102", "small_20261109"]
    new_version = tmp_path / "stage2/small_20261109"
    for source in sources:
        remaining = read_documents(new_version / "raw_corpus" / source)
        assert not {*forgotten} & remaining.keys() and not {*texts} & {*remaining.values()}
    assert not [text for text in texts if first_letters(text) in decode_tokens(new_version)]


def read_documents(folder: Path) -> dict[str, str]:
    """Return the texts of a corpus by id, read without code of the product."""
    found = {}
    for path in sorted(folder.glob("shards/*.zst")):
        with open(path, "rb") as file:
            data = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read()
        found.update((line["doc_id"], line["text"]) for line in map(json.loads, data.splitlines()))
    return found


def decode_tokens(folder: Path) -> str:
    """Return all tokens of a version as text, without spaces."""
    [model] = folder.rglob("*.model")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    arrays = [np.load(path) for path in sorted(folder.rglob("*.npy"))]
    ids = [token for array in arrays if array.dtype.kind in "iu" for token in array.reshape(-1).tolist()]
    return "".join(processor.decode([token for token in ids if token < processor.vocab_size()]).split())


def first_letters(text: str) -> str:
    return "".join(text.split())[:60]
