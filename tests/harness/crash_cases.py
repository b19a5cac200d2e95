"""Crash cases of the spine and of all systems, on tiny shards with each engine.

The tests and benchmarks/crashes.py run the same cases through `crash_proof`.
"""

import functools
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from crash_points import Victim, armed
from forked_workers import forked_here
from healing_build import INLINE, build_megatron, parse_recipe, write_pages
from nemotron_build import write_nemotron
from parallel_build import write_pairs
from stage2_build import write_local_mixture
from stage_a_build import write_stage_a
from word_artifact import build_words, target_in, write_words

from pipeline_assets.build.build_target import build_target
from pipeline_assets.build.run import Run
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.scoring.toy_model import write_toy_model
from pipeline_assets.corpus.snapshot.fetch import fetch_pieces
from pipeline_assets.corpus.snapshot.plan import plan_snapshot
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine import durable
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.staging import StagingDir
from pipeline_assets.systems.healing import HealingRecipe
from pipeline_assets.systems.nemotron import NemotronRecipe
from pipeline_assets.systems.parallel_text import ParallelRecipe
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.systems.stage2_mixture import Stage2Recipe
from pipeline_assets.systems.stage_a import StageARecipe
from pipeline_assets.trust.rebuild import rebuild

FORKED = RunSettings(2)
SPAWNED = RunSettings(2, "spawn")
LEAVES = "maker/leaves"


@dataclass(frozen=True)
class Sources:
    """Inputs of builds: a loopback hub and the cache filled from it.

    `starts` are the folders that works leave; see `crash_proof.Proof`.
    """

    hub: LoopbackHub
    cache: Path
    healing: HealingRecipe
    stage_a: StageARecipe
    nemotron: NemotronRecipe
    stage2: Stage2Recipe
    parallel_text: ParallelRecipe
    starts: dict[tuple[object, ...], Path] = field(default_factory=dict)

    @property
    def model(self) -> Path:
        """Folder of the model that scores rows."""
        return self.cache.parent / "model"

    @property
    def offline(self) -> HubFiles:
        return HubFiles(self.cache, endpoint="http://127.0.0.1:9")


Work = Callable[[Sources, Path, RunSettings], object]


@dataclass(frozen=True)
class Case:
    """Work that is killed and resumed.

    Attributes:
        start: Prepares the folder.
        work: Is killed; run by `engine`.
        interrupted: If set, each of its steps gives a start: the folder after a kill before that step.
        resume: Resumes in one process; None for `work` itself.
        lacks: Operation that the system lacks: to exchange two folders in one step, or to link a file.
        stride: One in so many points is tested: workers that are not forked from here take a second to start.
    """

    name: str
    start: Work
    work: Work
    engine: RunSettings = INLINE
    victim: Victim = Victim.ALL
    interrupted: Work | None = None
    resume: Work | None = None
    lacks: Literal["exchange", "link"] | None = None
    stride: int = 1

    @property
    def workers(self) -> str:
        return "none" if self.engine is INLINE else f"{self.engine.workers} by {self.engine.start_method}"

    def __str__(self) -> str:
        return f"{self.name}, workers {self.workers}, {self.victim} killed"


# The spine: three shards of words


def _nothing(sources: Sources, root: Path, engine: RunSettings) -> None:
    root.mkdir(exist_ok=True)


def _words(sources: Sources, root: Path, engine: RunSettings, language: str) -> None:
    """Build the words; spawned workers get the failpoint of this process."""
    failpoint = durable.failpoint
    work = functools.partial(armed, work=write_words, failpoint=failpoint) if failpoint else write_words
    build_words(root, language, work, engine.workers, engine.start_method)


class _Recovered(Exception):
    """Signal that leftovers of a crash are recovered and nothing new is built."""


def _recover(sources: Sources, root: Path, engine: RunSettings) -> None:
    def stop(building: StagingDir) -> BuildResult:
        raise _Recovered

    try:
        build_target(target_in("french"), root, stop, replace=True, run_settings={})
    except _Recovered:
        return


_ENGLISH = functools.partial(_words, language="english")
_FRENCH = functools.partial(_words, language="french")


# The healing system: three shards of documents, with rejects, a repeated id, and a budget that cuts the last shard


def _fetch(sources: Sources, root: Path, engine: RunSettings) -> None:
    recipe = parse_recipe(sources.hub.commits()["maker/pages"], {"amount": {"documents": 100}}).snapshot
    hub = HubFiles(root / "cache", sources.hub.endpoint, tries=2, wait_s=0.01)
    settings = RunSettings(fetch_threads=1)
    fetch_pieces(hub, recipe, plan_snapshot(hub, recipe, settings), settings)


def _split(sources: Sources, root: Path, engine: RunSettings, split: Literal["train", "valid"]) -> None:
    build_megatron(sources.healing, root, split, engine)


def _larger_train(sources: Sources, root: Path, engine: RunSettings) -> None:
    megatron = sources.healing.megatron.model_copy(update={"token_budget": 10**6})
    build_megatron(sources.healing.model_copy(update={"megatron": megatron}), root, "train", engine, replace=True)


def _rebuild(sources: Sources, root: Path, engine: RunSettings) -> None:
    rebuild(root / sources.healing.healing_text_manifest().folder, Run(root, engine), SYSTEMS.kinds)


def _rebuild_and_keep(sources: Sources, root: Path, engine: RunSettings) -> None:
    rebuild(root / sources.healing.megatron_split("train").folder, Run(root, engine), SYSTEMS.kinds, keep=True)


def _all(*works: Work) -> Work:
    def run(sources: Sources, root: Path, engine: RunSettings) -> None:
        for work in works:
            work(sources, root, engine)

    return run


_ENGINES = [(INLINE, Victim.ALL), *((FORKED, victim) for victim in Victim)]
_REPLACEMENTS: list[tuple[str, Literal["exchange"] | None]] = [
    ("replace by exchange", None),
    ("replace by two renames", "exchange"),
]


def _built(system: str, *steps: str) -> Work:
    """Return a work that builds some steps of a system's recipe, such as `raw`."""

    def run(sources: Sources, root: Path, engine: RunSettings) -> None:
        for target in getattr(sources, system).targets():
            if target.kind.name.removeprefix(f"{system}/") in steps:
                target.kind.build(target, Run(root, engine, sources.offline))

    return run


_SNAPSHOT, _SELECTION, _DATASET = (
    _built("healing", step) for step in ("fineweb_edu_snapshot", "healing_text_manifest", "megatron_dataset")
)
_TRAIN, _VALID = (functools.partial(_split, split=split) for split in ("train", "valid"))
_TO_SELECTION = _all(_SNAPSHOT, _SELECTION)
_TO_SPLITS = _all(_TO_SELECTION, _TRAIN, _VALID)
stage_a, nemotron = functools.partial(_built, "stage_a"), functools.partial(_built, "nemotron")
stage2, parallel_text = functools.partial(_built, "stage2"), functools.partial(_built, "parallel_text")
_TO_FILTERED = stage_a("raw", "normalized", "filtered")
_TO_DEDUPLICATED = stage_a("raw", "normalized", "filtered", "deduplicated")
_TO_EVALUATION = stage_a("raw", "normalized", "filtered", "deduplicated", "evaluation")
_TO_DECONTAMINATED = stage_a("raw", "normalized", "filtered", "deduplicated", "evaluation", "decontaminated")
_TO_PACKED = _all(_TO_DECONTAMINATED, stage_a("packed"))
_RAW_ROWS = nemotron("raw")
_TO_PROMPTS = nemotron("raw", "normalized_shards", "prompts", "stage_a/evaluation")
_TO_KEPT_ROWS = _all(_TO_PROMPTS, nemotron("decontaminated", "near_duplicates", "deduplicated"))
_TO_FILTERED_MIXTURE = stage2("raw", "raw_corpus", "filtered")
_TO_TOKENS = _all(_TO_FILTERED_MIXTURE, stage2("tokenizer", "deduplicated"))
_TO_SHARDS = _all(_TO_TOKENS, stage2("token_shards"))
_TO_POOLS = _all(_TO_KEPT_ROWS, nemotron("candidate_pools"))


def _model(sources: Sources, root: Path, engine: RunSettings) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    write_toy_model(sources.model)


def _scores(sources: Sources, root: Path, engine: RunSettings) -> None:
    """Build scores with workers forked from this process, which has torch."""
    with forked_here():
        nemotron("nll_scores")(sources, root, engine)


def _to_model(sources: Sources, root: Path, engine: RunSettings) -> None:
    _all(_model, _TO_POOLS, nemotron("model"))(sources, root, engine)


def _to_scores(sources: Sources, root: Path, engine: RunSettings) -> None:
    _all(_to_model, _scores)(sources, root, engine)


def _inline_and_forked(name: str, start: Work, work: Work, stride: int = 1) -> list[Case]:
    return [Case(name, start, work, stride=stride), Case(name, start, work, FORKED, stride=4 * stride)]


# Beginnings of the names of cases that are quick to run and to repeat.
SMALL_NAMES = ("words", "snapshot", "selection", "split", "dataset", "stage A: raw", "stage A: evaluation", "stage 2")
_SCORING = [(Victim.ALL, 1), (Victim.PARENT, 4), (Victim.WORKER, 4)]  # each start of workers loads the model
CASES = [
    *(Case("words: build", _nothing, _ENGLISH, engine, victim) for engine, victim in _ENGINES),
    *(Case("words: build", _nothing, _ENGLISH, SPAWNED, victim, stride=8) for victim in Victim),
    *(Case(f"words: {name}", _ENGLISH, _FRENCH, lacks=lacks) for name, lacks in _REPLACEMENTS),
    *(
        Case(f"words: recover from {name}", _ENGLISH, _recover, interrupted=_FRENCH, resume=_FRENCH, lacks=lacks)
        for name, lacks in _REPLACEMENTS
    ),
    Case("fetch", _nothing, _fetch),
    *(Case("snapshot", _nothing, _SNAPSHOT, engine, victim) for engine, victim in _ENGINES),
    Case("snapshot without links", _nothing, _SNAPSHOT, lacks="link"),
    Case("selection", _SNAPSHOT, _SELECTION),
    *(Case("split train", _TO_SELECTION, _TRAIN, engine, victim) for engine, victim in _ENGINES),
    Case("split valid", _TO_SELECTION, _VALID),
    Case("dataset: seal in place", _TO_SPLITS, _DATASET),
    *(Case(f"split train: {name}", _TO_SPLITS, _larger_train, lacks=lacks) for name, lacks in _REPLACEMENTS),
    Case("selection: rebuild", _TO_SELECTION, _rebuild),
    Case("split train: rebuild and keep", _TO_SPLITS, _rebuild_and_keep),
    Case("stage A: raw", _nothing, stage_a("raw")),
    Case("stage A: normalized", stage_a("raw"), stage_a("normalized")),
    *(
        Case("stage A: normalized", stage_a("raw"), stage_a("normalized"), FORKED, victim, stride=4)
        for victim in Victim
    ),
    *_inline_and_forked("stage A: filtered", stage_a("raw", "normalized"), stage_a("filtered")),
    *_inline_and_forked("stage A: deduplicated", _TO_FILTERED, stage_a("deduplicated"), stride=4),
    *_inline_and_forked("stage A: signatures", _TO_DEDUPLICATED, stage_a("signatures"), stride=4),
    Case("stage A: evaluation", _nothing, stage_a("evaluation")),
    *_inline_and_forked("stage A: decontaminated", _TO_EVALUATION, stage_a("decontaminated")),
    *_inline_and_forked("stage A: packed", _TO_DECONTAMINATED, stage_a("packed"), stride=4),
    Case("stage A: report", _TO_PACKED, stage_a("report")),
    Case("stage A: all", _nothing, _all(_TO_PACKED, stage_a("report")), FORKED, stride=16),
    Case("nemotron: inventory", _RAW_ROWS, nemotron("inventory")),
    *_inline_and_forked("nemotron: normalized shards", _RAW_ROWS, nemotron("normalized_shards"), stride=4),
    Case("nemotron: decontaminated", _TO_PROMPTS, nemotron("decontaminated"), stride=4),
    Case("nemotron: prompts", nemotron("raw", "normalized_shards"), nemotron("prompts"), stride=4),
    Case(
        "nemotron: kept rows",
        _all(_TO_PROMPTS, nemotron("decontaminated", "near_duplicates")),
        nemotron("deduplicated"),
    ),
    *_inline_and_forked("nemotron: pool report", _TO_POOLS, nemotron("pool_report")),
    Case("nemotron: hf layout", nemotron("raw", "normalized_shards"), nemotron("hf_layout")),
    Case("nemotron: model", _model, nemotron("model")),
    *(Case("nemotron: scores", _to_model, _scores, FORKED, victim, stride=stride) for victim, stride in _SCORING),
    Case("nemotron: score report", _to_scores, nemotron("score_report")),
    *_inline_and_forked("nemotron: training subsets", _to_scores, nemotron("training_subsets")),
    Case("stage 2: raw corpus", stage2("raw"), stage2("raw_corpus"), stride=4),
    *_inline_and_forked("stage 2: filtered", stage2("raw", "raw_corpus"), stage2("filtered"), stride=4),
    Case("stage 2: tokenizer", _TO_FILTERED_MIXTURE, stage2("tokenizer"), stride=4),
    *_inline_and_forked("stage 2: token shards", _TO_TOKENS, stage2("token_shards"), stride=4),
    Case("parallel text: sample", parallel_text("raw"), parallel_text("sample")),
    Case("parallel text: token cache", parallel_text("raw", "sample"), parallel_text("token_cache")),
    Case("stage 2: inventory and segments", _TO_SHARDS, stage2("inventory", "continual_segments"), stride=4),
]


def without_git() -> AbstractContextManager[object]:
    """Run the block without programs, so that git is not called."""
    return mock.patch.dict(os.environ, {"PATH": ""})


@contextmanager
def open_sources() -> Iterator[Sources]:
    """Serve a hub with pages and leaves; fill its cache."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_pages(folder / "hub")
        _write_leaves(folder / "hub" / "datasets" / LEAVES)
        with LoopbackHub(folder / "hub") as hub:
            snapshot = {"dataset": LEAVES, "shard_text_bytes": 1, "max_reject_fraction": "0.1"}
            megatron = {"token_budget": 400, "valid_fraction": "0.3"}
            recipe = parse_recipe(hub.commits()[LEAVES], snapshot, megatron)
            files = HubFiles(folder / "cache", hub.endpoint)
            fetch_pieces(
                files,
                recipe.snapshot,
                plan_snapshot(files, recipe.snapshot, RunSettings(fetch_threads=1)),
                RunSettings(fetch_threads=1),
            )
            stage_a_recipe = write_stage_a(folder, LEAVES, hub.commits()[LEAVES])
            # An unreadable file in the same shard as readable rows, so that the shard is converted again.
            (folder / "sources" / "notes" / "cut.jsonl").write_bytes(
                b'{"text": "A note that is whole."}\n{"text": "A no'
            )
            nemotron_recipe = write_nemotron(folder, folder / "model")
            other_recipes = (stage_a_recipe, nemotron_recipe, write_local_mixture(folder), write_pairs(folder))
            yield Sources(hub, folder / "cache", recipe, *other_recipes)


def _write_leaves(folder: Path) -> None:
    """Write three row groups; one row has no text, one id is repeated."""
    texts = [f"Leaf {number} of the tree, and the wind that takes it." for number in range(30)]
    ids = [f"leaf-{number}" for number in range(30)]
    table = pa.table({"text": [*texts[:12], None, *texts[13:]], "id": [*ids[:25], "leaf-3", *ids[26:]]})
    folder.mkdir(parents=True)
    pq.write_table(table.slice(0, 20), folder / "a.parquet", row_group_size=10)
    pq.write_table(table.slice(20), folder / "b.parquet")
