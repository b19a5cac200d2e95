"""A system of graphs, whose nodes are artifacts of a word and of other nodes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml

from pipeline_assets.build import drive
from pipeline_assets.build.builders import Job, file_builder
from pipeline_assets.build.checks import FILES_CHECK
from pipeline_assets.build.recipe import Recipe
from pipeline_assets.build.run import Run
from pipeline_assets.build.systems import Systems
from pipeline_assets.build.target import Kind, Target
from pipeline_assets.spine.areas import AREAS
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.manifest import StageVersion

Node = tuple[str, tuple[str, ...]]  # its word, and the nodes that it is built from


class GraphRecipe(Recipe):
    system: Literal["graph"]
    nodes: dict[str, list[str]]  # the word, then the inputs: nodes, or RECIPE/NODE of another recipe

    def final_targets(self) -> list[Target]:
        targets: dict[str, Target] = {}
        for name, (word, *inputs) in self.nodes.items():
            upstream = tuple(targets[other] if other in targets else _external_node(other) for other in inputs)
            folder = Path("graph", self.name, name)
            targets[name] = Target(NODE, name, folder, {"word": word}, upstream, partition=name)
        return list(targets.values())


def _external_node(name: str) -> Target:
    return Target(NODE, name, Path("graph", name), {}, is_external=True)


def _write_word(job: Job) -> BuildResult:
    words = [artifact.path("word.txt").read_text() for artifact in job.upstream]
    text = f"{job.target.name} {job.recipe['word']} {''.join(words)}"
    return BuildResult([job.staging.write("word.txt", text.encode())], {"documents": 1}, {})


NODE = Kind("graph/node", StageVersion("node", 1), file_builder(_write_word), "A node.", checks=(FILES_CHECK,))
RECIPE, KINDS = GraphRecipe, (NODE,)
SYSTEMS = Systems({"graph": "graph_system"})
AREAS.remove("graph")  # tests that build graphs add it
CHAIN: dict[str, Node] = {"a": ("one", ()), "b": ("two", ("a",)), "c": ("three", ("b",))}
FORK: dict[str, Node] = CHAIN | {"d": ("four", ("a",))}


def write_graph(root: Path, name: str, nodes: Mapping[str, Node]) -> Path:
    """Write a recipe of these nodes into a data root."""
    path = root / "recipes" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {key: [word, *inputs] for key, (word, inputs) in nodes.items()}
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(yaml.safe_dump({"system": "graph", "name": name, "nodes": content}))
    return unfinished.replace(path)  # whole for removals at the same time


def build_graph(root: Path, name: str, nodes: Mapping[str, Node], **settings: Any) -> Path:
    """Write a recipe, build and check its nodes, and return its path."""
    path = write_graph(root, name, nodes)
    for target in SYSTEMS.read_recipe(path).targets():
        drive.build(target, Run(root, RunSettings(workers=0), **settings))
    return path
