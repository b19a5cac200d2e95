"""Nemotron's demo and its smoke run: six made datasets from a hub on loopback to published pools; if asked, on to
scores by a made model and to training subsets.

The datasets are those of the shipped recipe as a hub has them, small and made up: cards, files and columns are theirs.

Some rows of each fit into every pool that rows of its dataset can be in; one of a split is there twice, one is no good.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from pipeline_assets.commands.scores import pools_section
from pipeline_assets.commands.terminal import Workers, aligned, counted, log_to_stderr, tell
from pipeline_assets.corpus.nemotron.splits import dataset_key, dataset_of
from pipeline_assets.corpus.recipes.drive import run_targets
from pipeline_assets.corpus.recipes.files import write_recipe_of
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.scoring.model_pin import write_made_model
from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.artifact import open_artifact
from pipeline_assets.corpus.spine.recipe import read_yaml
from pipeline_assets.corpus.spine.target import Target
from pipeline_assets.demo.library import HUB_FOLDER, write_recipe
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.demo.stage_a import closing_lines
from pipeline_assets.systems.nemotron import NemotronRecipe
from pipeline_assets.systems.registry import PROJECT_RECIPES

NAME, SCORED_NAME = "nemotron_made", "nemotron_scored"
RECIPE = PROJECT_RECIPES / "nemotron_v1.yaml"
ROWS = 12  # of a split
_LONG_STEPS = 1_500  # of one row: more than 16,384 tokens
_FILES = {f"high_part0{number}": f"high.part_0{number}" for number in range(3)}
_LICENCES = ("cc-by-4.0", "cc-by-4.0", "cc-by-sa-4.0")
_CALCULATOR = {
    "type": "function",
    "function": {
        "name": "multiply",
        "description": "The product of two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}
Row = dict[str, Any]


def smoke(
    out_dir: Annotated[Path, typer.Option("--out-dir", help="Data root of what is made.")] = Path("out_nemotron"),
    workers: Workers = 0,
    score: Annotated[
        bool, typer.Option("--score", help="Score what was published, by a tiny made model; needs the extra `scoring`.")
    ] = False,
) -> None:
    """Example: corpusmill nemotron smoke --out-dir out_nemotron"""
    run = Run.of(out_dir, os.environ, workers=workers, replace=True)
    log_to_stderr()
    write_datasets(out_dir / HUB_FOLDER)
    with LoopbackHub(out_dir / HUB_FOLDER, writable=True) as hub:
        os.environ.update(hub.variables())
        recipe = made_pools(out_dir, hub.commits())
        built = sum(not outcome.was_current for outcome in run_targets(recipe, run))
        if score:
            scored = scored_recipe(out_dir, recipe, run)
            built += sum(not outcome.was_current for outcome in run_targets(scored, run))
    pools = out_dir / recipe.target("nemotron/candidate_pools", "nemotron-math-v2").folder
    done = f"{counted(built, 'artifact')} built" if built else "all was there, nothing built"
    look: list[tuple[object, ...]] = [("trace", pools, "--row", 0), ("peek", pools, "--row", 0)]
    look += [("hub", "serve", out_dir / HUB_FOLDER, "--writable"), ("ui", "--data", out_dir)]
    of_subsets = [_subset_line(scored, out_dir)] if score else []
    tell([*pool_lines(recipe, out_dir), *of_subsets, *closing_lines(done, look)])


def pool_lines(recipe: NemotronRecipe, root: Path) -> list[str]:
    """What became of the rows of each dataset: those that came in, that stay, that are in a pool, and the pools."""
    table = [("dataset", "rows", "stay", "in pools", "pools")]
    for section in recipe.datasets:
        name = dataset_key(section.dataset)
        of = [one for one in recipe.targets() if dataset_of(str(one.partition)) == name]
        rows, stay = (_ledgers(root, of, f"nemotron/{kind}") for kind in ("normalized_shards", "deduplicated"))
        pools = open_artifact(root / recipe.target("nemotron/candidate_pools", name).folder).manifest.identity.counts
        sizes = ", ".join(f"{pool} {count:,}" for pool, count in pools["pools"].items())
        table.append((name, f"{rows['in']:,}", f"{stay['out']:,}", f"{pools['documents']:,}", sizes))
    published = f"pools of {counted(len(recipe.datasets), 'dataset')} published on loopback, read back by `datasets`"
    return [*aligned(table, numbers={1, 2, 3}), published]


def scored_recipe(root: Path, published: NemotronRecipe, run: Run) -> NemotronRecipe:
    """A recipe of the data root that scores the pools which another one published, and chooses subsets of them."""
    write_made_model(root / "models" / "made")
    write_made_model(root / "models" / "other", seed=1)  # to be held against it
    hub, publish = run.hub_for("pools"), published.publish
    assert publish is not None
    repos = [str(publish.content_of(dataset_key(one.dataset))["repo"]) for one in published.datasets]
    content = {
        "system": "nemotron",
        "name": SCORED_NAME,
        "scoring": {"model": {"path": "models/made"}, "tokenizer": "o200k_harmony", "max_length": 2048, "rescored": 4},
        "subsets": {},
        "datasets": [pools_section(repo, None, hub) for repo in repos],
    }
    return write_recipe_of(NemotronRecipe, content, root, "nemotron smoke", True)[0]


def _subset_line(recipe: NemotronRecipe, root: Path) -> str:
    made = open_artifact(root / recipe.target("nemotron/training_subsets").folder)
    sizes = ", ".join(f"{name} {rows:,}" for name, rows in made.manifest.identity.counts["subsets"].items())
    return f"scored by a made model; training subsets: {sizes}; {made.folder}"


def _ledgers(root: Path, targets: Sequence[Target], kind: str) -> dict[str, int]:
    found = [open_artifact(root / one.folder).manifest.identity.ledger for one in targets if one.kind == kind]
    return {"in": sum(one.rows_in for one in found), "out": sum(one.out for one in found)}


def made_pools(root: Path, commits: Mapping[str, str]) -> NemotronRecipe:
    """The shipped recipe, pinned to made datasets, in the data root's recipes; its pools are published."""
    content: dict[str, Any] = read_yaml(RECIPE) | {"name": NAME}
    content["datasets"] = [one | {"revision": commits[one["dataset"]]} for one in content["datasets"]]
    content["rows"] |= {"max_reject_fraction": "0.2"}
    # What is made up has no licence that anybody could know.
    content["publish"] = {"repo": "loopback/{dataset}-pools", "allow_unknown_licences": True}
    return NemotronRecipe.read(write_recipe(root, content))


def write_datasets(hub: Path) -> None:
    """All of them in a hub's folder; one that is there stays."""
    content: dict[str, Any] = read_yaml(RECIPE)
    for section in content["datasets"]:
        folder = hub / "datasets" / section["dataset"]
        if not (folder / "README.md").exists():
            durable.make_folder(folder / "data")
            for split in section["splits"]:
                lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in _rows(section["dataset"], split))
                durable.write_durably(folder / _path_of(split), "".join(lines).encode())
            durable.write_durably(folder / "README.md", _card(section).encode())


def _path_of(split: str) -> str:
    return f"data/{_FILES.get(split, split)}.jsonl"


def _card(section: Mapping[str, Any]) -> str:
    files = [{"split": split, "path": _path_of(split)} for split in section["splits"]]
    metadata = {"license": "other", "configs": [{"config_name": "default", "data_files": files}]}
    return f"---\n{yaml.safe_dump(metadata, sort_keys=False)}---\n# {section['dataset']}, made up\n"


def _rows(dataset: str, split: str) -> Iterator[Row]:
    makers = {"Math-v2": _math_row, "Math-Proofs-v1": _proof_row, "Agentic-v1": _agentic_row, "tools": _text_row}
    make = next((one for ending, one in makers.items() if dataset.endswith(ending)), _chat_row)
    rows = [make(number, split) for number in range(ROWS - 1)]
    yield from rows
    yield rows[3] | ({"uuid": f"{split}-again"} if "uuid" in rows[3] else {})


def _steps(number: int, count: int) -> str:
    lines = (f"Step {step}: {number + 7} times {step} is {(number + 7) * step}." for step in range(1, count + 1))
    return "\n".join(lines)


def _math_row(number: int, split: str) -> Row:
    a, b = number + 12, number * 3 + 5
    question = f"A shop sells {a} boxes of {b} pens each. How many pens is that?"
    answer = f"There are {a} boxes with {b} pens each, so {a} · {b} pens in all: \\boxed{{{a * b}}}"
    thought = _steps(number, _LONG_STEPS if number == 1 and split.startswith("high") else 5)
    messages: list[Row] = [{"role": "user", "content": question}]
    if split == "high_part01":
        call = {"type": "function", "function": {"name": "multiply", "arguments": {"a": a, "b": b}}}
        messages += [{"role": "assistant", "content": "", "reasoning_content": thought, "tool_calls": [call]}]
        messages += [{"role": "tool", "name": "multiply", "content": str(a * b)}]
    messages.append({"role": "assistant", "content": answer, "reasoning_content": thought})
    right = (0, 2, 8, 6)[number % 4]
    row: Row = {
        "problem": question,
        "expected_answer": str(a * b),
        "messages": messages,
        "metadata": {"reason_high_no_tool": {"count": 8, "pass": right, "accuracy": right / 8}},
        "data_source": "made",
        "license": _LICENCES[number % 3],
        "used_in": ["nano_v3"],
    }
    row |= {} if split.startswith("high") else {"uuid": f"{split}-{number}"}
    return row | ({"tools": [_CALCULATOR]} if split == "high_part01" else {})


def _proof_row(number: int, split: str) -> Row:
    statement = f"theorem made_{number} (n : Nat) (h : n = {number}) : n + {number} = {2 * number} := by"
    proof = f"{statement}\n  subst h\n  norm_num\n  -- which is what was to be shown"
    question = {"role": "user", "content": f"Prove it in Lean.\n{statement} sorry"}
    return {
        "uuid": f"{split}-{number}",
        "problem": f"Show that n + {number} = {2 * number} where n = {number}.",
        "lean_header": "import Mathlib",
        "formal_statement": None if number == 5 else f"{statement} sorry",
        "messages": [question, {"role": "assistant", "content": proof}] if number % 2 else [],
        "tools": [],
        "license": _LICENCES[number % 3],
        "used_in": [],
    }


def _agentic_row(number: int, split: str) -> Row:
    a, b = number + 3, number + 4
    arguments: object = {"a": a, "b": b} if number != 2 else {"a": "three"}  # this one doesn't fit the tool
    call = {"id": f"call_{number}", "type": "function", "function": {"name": "multiply", "arguments": arguments}}
    last = f"I asked the calculator, and it says that {a} times {b} is {a * b}. Is there more to work out?"
    row: Row = {
        "uuid": f"{split}-{number}",
        "messages": [
            {"role": "system", "content": "You may use a calculator."},
            {"role": "user", "content": f"What do {a} crates of {b} kilograms weigh, and how did you find out?"},
            {"role": "assistant", "content": "", "reasoning_content": _steps(number, 3), "tool_calls": [call]},
            {"role": "tool", "content": str(a * b), "tool_call_id": f"call_{number}"},
            {"role": "assistant", "content": last, "reasoning_content": ""},
        ],
        "tools": [_CALCULATOR],
        "license": "cc-by-4.0",
        "used_in": ["nano_v3"],
    }
    return row | ({"reasoning": "on"} if split == "interactive_agent" else {})


def _chat_row(number: int, split: str) -> Row:
    question = f"In {number + 2} sentences at most, tell me what a river of length {number + 40} km is like."
    answer = (
        f"It begins on a hill, and after {number + 40} kilometres it ends in a lake or in the sea, wider than before."
    )
    thought = _steps(number, 4) if number % 2 else None
    row: Row = {
        "uuid": f"{split}-{number}",
        "messages": [
            {"role": "user", "content": question},
            {"role": "assistant", "content": "Ok." if number == 4 else answer, "reasoning_content": thought},
        ],
        "license": "odc-by-1.0",
        "used_in": ["nano_v3"],
        "tools": [],
    }
    labels = {
        "reasoning": "on" if number % 2 else "off",
        "capability_target": ("chat", "instruction_following")[number % 2],
    }
    return row | (labels if split == "chat_if" else {})


def _text_row(number: int, split: str) -> Row:
    end = "" if number == 6 else "<|return|>"  # without it, it is no Harmony
    return {
        "text": f"<|start|>user<|message|>What is {number + 9} times {number + 2}?<|end|>"
        f"<|start|>assistant<|channel|>analysis<|message|>{_steps(number, 3)}<|end|>"
        f"<|start|>assistant<|channel|>final<|message|>It is {(number + 9) * (number + 2)}, as counting shows.{end}"
    }
