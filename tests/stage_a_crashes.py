"""Stage A as crash cases kill it: a hub source, a site and local files of a few documents, built step by step."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stage_a_build import local_source, recipe_of
from stage_a_sources import with_decontamination, with_dedup, with_pack, write_quiz, write_site

from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.spine.engine import EngineSettings
from pipeline_assets.systems.registry import KINDS
from pipeline_assets.systems.stage_a import StageARecipe

if TYPE_CHECKING:
    from crash_cases import Sources

SITE = "garden.stackexchange.com"


def write_stage_a(folder: Path, dataset: str, commit: str) -> StageARecipe:
    """A recipe of leaves of the hub, five threads, and notes of two shards, with bad rows and a repeated id; a quiz has
    a leaf.
    """
    write_quiz(folder / "quiz", ["Leaf 0 of the tree, and the wind that takes it.", "A question that nobody answers."])
    write_site(folder, SITE, questions=6)
    texts = [f"Note {number} has an address a{number}@b.org in it. " * 3 for number in range(10)]
    rows = [{"text": text, "key": f"note-{number % 9}"} for number, text in enumerate(texts)]
    notes = local_source(folder, "notes", [*rows, {"text": "Short."}, {"text": None}], max_reject_fraction="0.5")
    notes["filters"] = {"length": {"min_words": 2}, "masking": {"emails": True, "public_ips": False}}
    site = {
        "kind": "stackexchange",
        "source": SITE,
        "path": str(folder / SITE),
        "files": ["Posts.xml"],
        "domain": "questions",
        "host": SITE,
        "min_question_score": None,
        "min_answer_score": None,
        "min_answers": 1,
        "max_reject_fraction": "0.5",
    }
    leaves = {
        "kind": "hub",
        "source": "leaves",
        "dataset": dataset,
        "config": "default",
        "revision": commit,
        "split": "train",
        "files": ["*.parquet"],
        "domain": "web",
        "license_tag": "cc0-1.0",
        "columns": {"text": "text", "id": "id", "created_at": None, "license": None},
        "rules": [],
        "language": None,
        "amount": {"files": 100},
        "seed": "seed",
        "max_reject_fraction": "0.1",
    }
    content: dict[str, Any] = {}
    with_dedup(content)
    with_decontamination(content, str(folder / "quiz"))
    recipe = recipe_of(leaves, site, notes, shard_text_bytes=1000, **content).content()
    with_pack(recipe)
    recipe["pack"] |= {"seq_len": 16, "num_seqs": 6}
    return StageARecipe.model_validate(recipe)


def stage_a(*steps: str) -> Callable[["Sources", Path, EngineSettings], None]:
    """Builds these steps: `raw`, `normalized`, `filtered` of every source, `deduplicated`, `signatures`, `evaluation`,
    `decontaminated`, `packed` and `report`.
    """

    def run(sources: "Sources", root: Path, engine: EngineSettings) -> None:
        for target in sources.stage_a.targets():
            if target.kind.removeprefix("stage_a/") in steps:
                KINDS[target.kind].build(target, Run(root, engine, sources.offline))

    return run
