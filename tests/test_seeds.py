"""Every command line of docs/seeds.md runs in order on a loopback hub."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from command_results import DOCS, Corpusmill
from healing_build import parse_recipe, write_pages
from nemotron_hub import write_hub as write_nemotron
from stage2_build import recipe_with as mixture_with
from stage2_build import write_datasets
from stage_a_commands.conftest import CARD, write_dataset
from stage_a_sources import write_notes, write_site, write_wikipedia

from pipeline_assets.demo.corpora import write_inputs
from pipeline_assets.demo.loopback_hub import LoopbackHub

PAGE = (DOCS / "seeds.md").read_text(encoding="utf-8")
LINES = {
    title: [line for line in block.splitlines() if line.startswith("corpusmill ")]
    for title, block in re.findall(r"^## (.+?)$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
}


def _prepare_mixture(work: Path, hub: LoopbackHub) -> None:
    mixture_with(work / "kept", hub.commits())
    (work / "recipes").mkdir()
    (work / "kept" / "recipes" / "small.yaml").rename(work / "recipes" / "small.yaml")


def _write_stage_a(folder: Path) -> None:
    write_dataset(
        folder, "HuggingFaceFW/fineweb-2", ["data/asm_Beng/train/0.parquet", "data/eng_Latn/train/0.parquet"], CARD
    )


def _prepare_stage_a(work: Path, hub: LoopbackHub) -> None:
    write_wikipedia(work / "extracted")
    write_site(work / "unpacked", "beer.stackexchange.com", questions=50)
    write_notes(work / "notes")
    notes = {"kind": "local", "source": "mine", "path": str(work / "notes"), "files": ["*.jsonl"], "domain": "books"}
    notes["columns"] = {"text": "body.text", "id": "key"}  # type: ignore[assignment]
    recipe = {"system": "stage_a", "name": "Sources", "sources": [notes], "dedup": {}, "pack": {"seq_len": 16}}
    (work / "sources.yaml").write_text(yaml.safe_dump(recipe))


def _prepare_healing(work: Path, hub: LoopbackHub) -> None:
    content = parse_recipe(hub.commits()["maker/pages"], megatron={"token_budget": 200_000}).content() | {
        "name": "healing"
    }
    (work / "out" / "recipes").mkdir(parents=True)
    (work / "out" / "recipes" / "healing.yaml").write_text(yaml.safe_dump(content))


SEEDS: dict[str, tuple[Callable[[Path], object], Callable[[Path, LoopbackHub], None]]] = {
    "Seed 001: stage-2 mixture": (write_datasets, _prepare_mixture),
    "Seed 002: stage A": (_write_stage_a, _prepare_stage_a),
    "Healing": (write_pages, _prepare_healing),
    "Seed 004: Nemotron": (write_nemotron, lambda work, hub: None),
    "Parallel text": (lambda hub: write_inputs(hub.parent, "parallel_text"), lambda work, hub: None),
}
SLOW = ("Seed 001: stage-2 mixture", "Seed 004: Nemotron")


@pytest.mark.parametrize(
    "title", [pytest.param(title, marks=[pytest.mark.slow] if title in SLOW else []) for title in SEEDS]
)
def test_every_line_of_a_seed_runs(title: str, corpusmill: Corpusmill, tmp_path: Path) -> None:
    write_hub, prepare = SEEDS[title]
    work = tmp_path / "work"
    work.mkdir()
    write_hub(tmp_path / "hub")
    with LoopbackHub(tmp_path / "hub", writable=True) as hub:
        prepare(work, hub)
        for line in LINES[title]:
            args = shlex.split(line)[1:]
            result = corpusmill(*args, cwd=work, env={**hub.client_environment(), "CORPUSMILL_WORKERS": "0"})
            assert result.returncode == 0, f"{line}\n{result.stderr[-3000:]}"


def test_the_page_has_command_lines_for_every_seed() -> None:
    assert LINES.keys() == SEEDS.keys() and all(LINES.values())
