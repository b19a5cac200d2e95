"""Folders of exports: equal bytes, crashes, rebuilds and counted rows."""

import os
import signal
from pathlib import Path

import pytest
from command_results import Corpusmill, Export, Started, only_line, refused
from crash_points import kill_at
from paused_runs import pause_at, wait_for
from tiny_tokenizer import save_tokenizer

from pipeline_assets.build.run import Run
from pipeline_assets.build.trainer_exports import KINDS
from pipeline_assets.commands.inputs import sealed_target
from pipeline_assets.corpus.tokens.o200k_harmony import HarmonyRecipe
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.registry import SYSTEMS

FORMATS = ["megatron", "olmo", "nanochat"]


@pytest.mark.parametrize("to", FORMATS)
def test_workers_change_no_byte(corpus: Path, export: Export, to: str) -> None:
    folders = [export(corpus, to, CORPUSMILL_WORKERS=workers) for workers in ("0", "2")]

    first, second = ({file.path: file.sha256 for file in open_artifact(folder).manifest.storage} for folder in folders)
    assert first == second
    [source] = open_artifact(folders[0]).manifest.identity.inputs
    assert source == {"name": "stage_a/filtered/notes", "digest": open_artifact(corpus).manifest.digest}


@pytest.mark.slow
def test_a_killed_export_leaves_no_folder_and_continues(corpus: Path, tmp_path: Path) -> None:
    """Kill the export before each seventh step on disk; its digest does not change."""
    tokenizer, root = HarmonyRecipe().content(), corpus.parents[3]

    def build(out: Path) -> str:
        upstream = [sealed_target(corpus, *SYSTEMS.kinds.values())]
        target = KINDS["megatron"].target("x", {"to": "megatron"}, upstream, folder=out, tokenizer=tokenizer)
        return target.kind.build(target, Run(root, RunSettings(), None)).manifest.digest

    expected, out = build(tmp_path / "whole"), tmp_path / "killed"
    steps = 1
    while kill_at(steps, lambda: build(out)) is not None:
        assert not (out / "manifest.json").exists() or open_artifact(out).manifest.digest == expected
        steps += 7
    assert steps > 20
    assert build(out) == expected
    assert [*tmp_path.glob(".killed.building.*")] == []


@pytest.mark.slow
def test_a_second_command_finishes_a_killed_export(
    corpus: Path, corpusmill: Corpusmill, started: Started, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = started("export", corpus, "--to", "olmo", "--out", out, env=pause_at("/manifest.json"))
    wait_for(process, tmp_path, ".out.building.*/tokens.npy")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()

    result = corpusmill("export", corpus, "--to", "olmo", "--out", out)

    assert result.returncode == 0, result.stderr
    assert corpusmill("verify", out).returncode == 0
    assert [*tmp_path.glob(".out*")] == []


def test_a_trace_of_an_export_names_its_source(corpus: Path, export: Export, corpusmill: Corpusmill) -> None:
    out = export(corpus, "megatron")

    message = only_line(corpusmill("trace", out, "--row", 0, "--data", corpus.parents[3]))

    digest = open_artifact(corpus).manifest.digest
    assert message == (
        f"{out}: export/megatron has no rows of text or tokens; "
        f"choose its source, stage_a/filtered/notes with the digest {digest}"
    )
    assert open_artifact(out).manifest.identity.counts["ledger"]["dropped"] == {}


def test_an_export_leaves_no_siblings_and_writes_nothing_into_the_data_root(
    corpus: Path, export: Export, corpusmill: Corpusmill, tmp_path: Path
) -> None:
    bad, root = tmp_path / "tokenizer.json", corpus.parents[3]
    bad.write_text("{}")
    before = sorted(root.rglob("*"))
    options = ("--to", "olmo", "--tokenizer", bad, "--end-of-document", "x", "--out", tmp_path / "bad")

    export(corpus, "nanochat")
    export(corpus, "megatron")

    assert refused(corpusmill("export", corpus, *options), 1).startswith(f"{bad}: not a tokenizer.json (")
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".") or path.name == "bad"]
    assert sorted(root.rglob("*")) == before


def test_an_export_is_rebuilt_from_its_manifest(
    corpus: Path, export: Export, corpusmill: Corpusmill, tmp_path: Path
) -> None:
    save_tokenizer(tmp_path, ("<|end|>",))
    out = export(corpus, "megatron", "--tokenizer", tmp_path / "tokenizer.json", "--end-of-document", "<|end|>")

    rebuilt = corpusmill("rebuild", out, "--data", corpus.parents[3])

    assert rebuilt.stdout.splitlines()[0] == f"identical   {out}", rebuilt.stderr


def test_rows_of_several_subsets_are_counted_as_repeats(
    subsets: Artifact, corpusmill: Corpusmill, tmp_path: Path
) -> None:
    result = corpusmill("export", subsets.folder, "--to", "jsonl", "--out", tmp_path / "copy")

    assert result.stdout.startswith(f"{tmp_path / 'copy'}: 9 rows in 2 files, ")
    assert result.stderr == (
        "warning: 3 of 9 rows repeat rows that are in several pools or subsets; "
        f"each pool or subset has its own folder in {subsets.folder}\n"
    )
