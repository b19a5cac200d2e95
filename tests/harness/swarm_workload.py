"""Generator of workloads for the swarm.

A seed decides everything. Inputs and recipe keys vary in size and in the steps that they request; one mark of the
recipe changes for commands that replace or retire.
"""

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from healing_build import parse_recipe
from nemotron_build import write_nemotron
from parallel_build import from_folder, from_hub, write_hub, write_set
from stage2_build import write_local_mixture
from stage_a_build import write_stage_a
from stage_a_sources import with_pack

LEAVES, NAME, SECOND = "maker/leaves", "workload", "retired"
STORE_MARK = "store"
Content = dict[str, Any]
_WORDS = ("leaf", "wind", "tree", "river", "stone", "bread", "harbour", "light", "house", "winter", "market", "letter")
SYSTEMS = ("healing", "stage_a", "nemotron", "stage2", "parallel_text")
# How often each command is the one that faults strike.
_VERBS = {"run": 24, "replace": 12, "gc": 9, "push": 6, "pull": 9, "publish": 1, "verify": 6, "rebuild": 9, "trace": 6}


@dataclass(frozen=True)
class Workload:
    """Command under test, after the commands that precede it.

    Attributes:
        verb: The command; `replace` runs a changed recipe, `gc` removes what only a retired recipe needs.
        pick: Chooses one of the sealed artifacts for commands that need one, from 0 to 1.
        workers: Whether the command builds in forked workers.
    """

    seed: int
    system: str
    verb: str
    pick: float
    workers: bool

    @property
    def is_read_only(self) -> bool:
        return self.verb in ("verify", "rebuild", "trace")


def generate(seed: int) -> Workload:
    """Return the workload of a seed."""
    dice = random.Random(f"workload {seed}")
    system = dice.choice(SYSTEMS)
    verbs = {verb: weight for verb, weight in _VERBS.items() if verb != "publish" or system == "nemotron"}
    [verb] = dice.choices([*verbs], [*verbs.values()])
    return Workload(seed, system, verb, dice.random(), dice.random() < 0.2)


class Workspace:
    """Folders of a workload: hub, data root, store, and a root to pull into."""

    def __init__(self, folder: Path, workload: Workload) -> None:
        self.folder, self._workload = folder, workload
        self.data, self.hub, self.store, self.other = (folder / name for name in ("data", "hub", STORE_MARK, "other"))

    def write_inputs(self) -> None:
        """Write all inputs except recipes, which name commits of the hub."""
        dice = self._dice("inputs")
        for folder in (self.data / "recipes", self.store, self.other):
            folder.mkdir(parents=True)
        _write_leaves(self.hub / "datasets" / LEAVES, dice)
        if self._workload.system == "parallel_text":
            write_hub(self.hub)

    def write_recipe(self, commits: Mapping[str, str], name: str = NAME, is_changed: bool = False) -> None:
        """Write the recipe, with relative paths; on the second call, its sources exist."""
        sources = self.data / "sources"
        content = self._content_with_sources(commits) if not (self.data / "made.json").exists() else None
        if content is not None:
            text = json.dumps(content).replace(f"{self.data}/", "")
            (self.data / "made.json").write_text(text)
        content = json.loads((self.data / "made.json").read_text())
        if is_changed:
            _CHANGES[self._workload.system](content)
        assert sources.is_dir() or self._workload.system in ("healing", "parallel_text")
        content["name"] = name
        (self.data / "recipes" / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False))

    def remove_recipe(self, name: str) -> None:
        (self.data / "recipes" / f"{name}.yaml").unlink()

    def _content_with_sources(self, commits: Mapping[str, str]) -> Content:
        folder = self.data / "sources"
        folder.mkdir()
        return _CONTENTS[self._workload.system](folder, commits, self._dice("recipe"))

    def _dice(self, subject: str) -> random.Random:
        return random.Random(f"{subject} {self._workload.seed}")

    def before(self) -> list[str]:
        """Return the commands that precede the one under test."""
        match self._workload.verb:
            case "run":
                return []
            case "gc":
                return ["run", "run the retired recipe"]
            case "pull":
                return ["run", "push"]
        return ["run"]

    def command(self, verb: str) -> list[str]:
        """Return the words of a command."""
        match verb:
            case "run":
                return ["run", NAME, "--data", str(self.data)]
            case "run the retired recipe":
                return ["run", SECOND, "--data", str(self.data)]
            case "replace":
                return ["run", NAME, "--data", str(self.data), "--replace"]
            case "gc":
                return ["gc", "--apply", "--data", str(self.data)]
            case "push" | "pull":
                return self._transfer(verb)
            case "publish":
                folder = self.data / "nemotron" / NAME / "candidate_pools" / "chats"
                return ["nemotron", "publish", "loopback/swarm", str(folder), "--allow-unknown-licences"]
            case "verify":
                return ["verify", str(self._artifact()), "--upstream"]
            case "rebuild":
                return ["rebuild", str(self._artifact())]
            case "trace":
                return ["trace", str(self._artifact(has_rows=True)), "--row", "0"]
        raise ValueError(verb)

    def _transfer(self, verb: str) -> list[str]:
        folder = self._artifact()
        if verb == "push":
            return ["push", str(folder), f"file://{self.store}", "--upstream"]
        return ["pull", f"file://{self.store}", str(self.other / folder.relative_to(self.data)), "--upstream"]

    def _artifact(self, has_rows: bool = False) -> Path:
        """Return one of the sealed folders."""
        names = ("normalized", "filtered", "packed", "train", "hf_layout", "shards", "token_cache", "deduplicated")
        aside = (".building.", f"{self.data}/rebuilds/")  # a struck rebuild leaves copies
        paths = sorted(self.data.rglob("manifest.json"))
        folders = [path.parent for path in paths if not any(part in str(path) for part in aside)]
        rows = [folder for folder in folders if any(name in folder.parts for name in names)]
        chosen = (rows if has_rows else folders) or folders
        return chosen[int(self._workload.pick * len(chosen))]


def sentence(dice: random.Random, words: int = 9) -> str:
    return " ".join(dice.choices(_WORDS, k=words)).capitalize() + f" {dice.randrange(10**6)}."


def _write_leaves(folder: Path, dice: random.Random) -> None:
    """Two files of a few row groups; one row without text, one id twice."""
    count = dice.randint(60, 110)
    texts: list[str | None] = [sentence(dice) for _ in range(count)]
    ids = [f"leaf-{number}" for number in range(count)]
    texts[12], ids[25] = None, "leaf-3"
    table, middle = pa.table({"text": texts, "id": ids}), dice.randint(20, 40)
    folder.mkdir(parents=True)
    for name, part in {"a": table.slice(0, middle), "b": table.slice(middle)}.items():
        pq.write_table(part, folder / f"{name}.parquet", row_group_size=dice.choice((10, 25, 200)))


def _healing(folder: Path, commits: Mapping[str, str], dice: random.Random) -> Content:
    snapshot = {"dataset": LEAVES, "shard_text_bytes": dice.choice((1, 900, 4000)), "max_reject_fraction": "0.1"}
    megatron = {"token_budget": dice.choice((350, 450)), "valid_fraction": dice.choice(("0.4", "0.5"))}
    content: Content = parse_recipe(commits[LEAVES], snapshot, megatron).content()
    return content


def _stage_a(folder: Path, commits: Mapping[str, str], dice: random.Random) -> Content:
    content: Content = write_stage_a(folder, LEAVES, commits[LEAVES]).content()
    content["shard_text_bytes"] = dice.choice((300, 1000, 5000))
    sources = [source for source in content["sources"] if source["source"] == "notes" or dice.random() < 0.6]
    content["sources"] = sources
    content["dedup"]["near"]["minhash"]["seed"] = dice.randint(1, 5)
    with_pack(content)
    content["pack"] |= {
        "seq_len": 16,
        "num_seqs": dice.choice((4, 6)),
        "strategy": dice.choice(("best_fit", "sequential")),
    }
    content["outputs"].pop("normalized_dir")  # two recipes would share the folder
    for step in ("pack", "decontamination"):
        if dice.random() < 0.3:
            content.pop(step)
    return content


def _nemotron(folder: Path, commits: Mapping[str, str], dice: random.Random) -> Content:
    content: Content = write_nemotron(folder).content()
    content["rows"]["shard_bytes"] = dice.choice((800, 2000, 9000))
    content.pop("publish")
    if dice.random() < 0.5:
        content.pop("decontamination")
    return content


def _stage2(folder: Path, commits: Mapping[str, str], dice: random.Random) -> Content:
    content: Content = write_local_mixture(folder).content()
    content["shard_text_bytes"] = dice.choice((1024, 2048, 9000))
    content["tokenizer"]["vocab_size"] = dice.choice((80, 90, 110))
    content["shards"]["seq_len"] = dice.choice((32, 64))
    return content


def _parallel(folder: Path, commits: Mapping[str, str], dice: random.Random) -> Content:
    sample = {"k": dice.choice((20, 40)), "seed": dice.randint(1, 9)}
    if dice.random() < 0.5:
        content: Content = from_hub(commits["maker/pairs"], **sample).content()
        return content
    ending = dice.choice(("parquet", "jsonl"))
    write_set(folder / "pairs", parquet=ending == "parquet")
    content = from_folder(folder / "pairs", ending, **sample).content()
    return content


_CONTENTS: Mapping[str, Callable[[Path, Mapping[str, str], random.Random], Content]] = {
    "healing": _healing,
    "stage_a": _stage_a,
    "nemotron": _nemotron,
    "stage2": _stage2,
    "parallel_text": _parallel,
}


def _change_healing(content: Content) -> None:
    content["megatron"]["token_budget"] += 60


def _change_stage_a(content: Content) -> None:
    content["shard_text_bytes"] += 150


def _change_nemotron(content: Content) -> None:
    content["rows"]["shard_bytes"] += 600


def _change_stage2(content: Content) -> None:
    content["shards"]["rows_per_shard"] += 4


def _change_parallel(content: Content) -> None:
    content["sample"]["k"] -= 6


_CHANGES: Mapping[str, Callable[[Content], None]] = {
    "healing": _change_healing,
    "stage_a": _change_stage_a,
    "nemotron": _change_nemotron,
    "stage2": _change_stage2,
    "parallel_text": _change_parallel,
}
