"""Rows in every form of newer sets, from a folder to a scored training subset."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from nemotron_rows import LOOKUP, as_text, called, encoder, reply
from tiny_scoring import save_whole_model

from pipeline_assets.build.run import Run
from pipeline_assets.corpus.nemotron.inventory import read_inventory
from pipeline_assets.corpus.nemotron.soft_checks import CHECKS
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.nemotron import NemotronRecipe
from pipeline_assets.systems.registry import SYSTEMS

pytestmark = pytest.mark.slow
SHIPPED = Path(__file__).parents[2] / "manifests" / "recipes" / "nemotron_v3.yaml"
LONG = {"role": "assistant", "content": "The sum is four, as two and two make four.", "reasoning_content": "Add."}
SCHEMA = LOOKUP["function"]["parameters"]


def question(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


OFF = {"enable_thinking": False}


def build_chats() -> list[dict[str, Any]]:
    """Return a row of each form, named after it, each with its own question."""
    talk = [question("Sum, as text?"), called({"word": "sum"}), reply("four"), LONG]
    tool = {"id": "lookup", "description": "Looks a word up.", "inputSchema": {"jsonSchema": SCHEMA}}
    turns = [question("First turn?"), LONG, question("And then?"), LONG]
    withheld = {"role": "user", "content": None}
    blocks = "Mend it. Put your thoughts in <think>, and the patch in <solution>."
    return [
        {"uuid": "text", "messages": as_text(talk), "tools": json.dumps([LOOKUP])},
        {"uuid": "schema", "messages": [question("Sum, by schema?"), *talk[1:]], "tools": [tool]},
        {"uuid": "off", "messages": [question("No thoughts?"), LONG], "chat_template_kwargs": OFF},
        {"uuid": "turns", "messages": turns, "metadata": {"train_turns": [False, False, False, True]}},
        {"uuid": "few", "messages": turns, "metadata": {"train_turns": [False, True]}},
        {"uuid": "restored", "messages": [withheld, LONG], "metadata": {"seed_prompt_sha256": sha256("Which seed?")}},
        {"uuid": "withheld", "messages": [withheld, LONG], "metadata": {"seed_prompt_sha256": sha256("Which other?")}},
        {"uuid": "blocks", "messages": [question(blocks), LONG]},
        {"uuid": "latex", "messages": [question("Box it, please?"), LONG | {"content": "It is \boxed{4}, with care."}]},
        {"uuid": "loop", "messages": [question("Loop?"), {"role": "assistant", "content": "Four, it is four.\n" * 10}]},
        {"uuid": "search", "messages": [question("Search it?"), called({}, name="search"), LONG], "tools": [LOOKUP]},
    ]


@pytest.fixture(scope="module", params=["jsonl", "parquet"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """Build every artifact of the recipe, by role."""
    root = tmp_path_factory.mktemp(request.param)
    (root / "chats").mkdir()
    rows = build_chats()
    if request.param == "jsonl":
        lines = [json.dumps(row) for row in rows]
        (root / "chats" / "chat.jsonl").write_text("\n".join([*lines[:3], '{"uuid": "broken', *lines[3:], ""]))
    else:  # one type of messages per file
        for number, part in enumerate((rows[:1], rows[1:])):
            whole = [{"tools": None, "metadata": None, "chat_template_kwargs": None} | row for row in part]
            pq.write_table(pa.Table.from_pylist(whole), root / "chats" / f"chat-{number:05d}-of-00002.parquet")
    (root / "seeds").mkdir()
    seeds = [{"conversation": [question(text), LONG]} for text in ("Another?", "Which seed?")]
    (root / "seeds" / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in seeds))
    content = yaml.safe_load(SHIPPED.read_text())
    content["rows"] |= {"max_reject_fraction": "0.5", "system": None}
    content["deduplicate"] = {"min_completion_tokens": 1}
    checks = [f"NOT ARRAY_CONTAINS(meta_tags, 'check:{name}')" for name in CHECKS]
    content["pools"]["rules"] |= {"all": ["stats_tokens > 0"], "clean": checks}
    seed = {"dataset": "seeds", "path": "seeds", "splits": ["train"], "text": "conversation"}
    chat = {"dataset": "chats", "path": "chats", "splits": ["chat"], "domain": "chat_if", "prompts": [seed]}
    model = save_whole_model(root / "model")
    scoring = {"model": {"path": str(model)}, "tokenizer": "model", "rescored": 2}
    subsets = {"rules": {"every": {}}, "tokens": True}
    recipe = content | {"datasets": [chat], "scoring": scoring, "subsets": subsets}
    run = Run(root, RunSettings(), publishes=False)
    return {
        target.role: target.kind.build(target, run)
        for target in NemotronRecipe.from_mapping(recipe, "the test").targets()
    }


def read_rows(artifact: Artifact, pattern: str) -> dict[str, dict[str, Any]]:
    tables = [pq.ParquetFile(path).read().to_pylist() for path in sorted(artifact.folder.glob(pattern))]
    return {row["id"]: row for rows in tables for row in rows}


DEFAULT_RULE = "assistant_all/1 analysis=true calls=true"
KEPT = dict.fromkeys(("text", "schema", "off", "restored", "blocks", "latex", "loop"), DEFAULT_RULE)
KEPT["turns"] = "assistant_turns/1 messages=4,5"


def test_each_form_is_counted_in_the_inventory_and_in_the_rows(built: dict[str, Artifact]) -> None:
    inventory, rows = built["nemotron/inventory/chats/chat"], built["nemotron/normalized_shards/chats/chat"]
    coverage = {name: part["rows"] for name, part in read_inventory(inventory)["coverage"].items() if part["rows"]}
    identity = rows.manifest.identity
    is_lines = "not_json" in identity.ledger.rejected

    assert coverage == {
        "uuid": 11, "messages": 11, "tools": 3, "tool_calls": 3, "reasoning_label": 1, "reasoning_content": 10,
        "train_turns": 2, "prompt_withheld": 2, "undeclared_tool": 1, "unanswered_call": 1, "repeated_lines": 1,
    }  # fmt: skip
    assert identity.ledger.rejected == {"malformed_train_turns": 1} | ({"not_json": 1} if is_lines else {})
    assert identity.ledger.dropped == {"prompt_withheld": 1}
    counts = identity.counts
    assert {name: counts[name] for name in ("train_turns", "prompts_restored", "latex_restored")} == {
        "train_turns": 1, "prompts_restored": 1, "latex_restored": 1,
    }  # fmt: skip
    assert counts["think_tags"] == {"user": 1, "contradicted": 1}


def test_every_usable_row_is_pooled_scored_and_selected_with_its_own_loss(built: dict[str, Artifact]) -> None:
    kept = read_rows(built["nemotron/deduplicated/chats/chat"], "data/*.parquet")
    pooled = read_rows(built["nemotron/candidate_pools/chats"], "candidates_all/*.parquet")
    scores = read_rows(built["nemotron/nll_scores/chats/chat"], "scores.parquet")
    subset = read_rows(built["nemotron/training_subsets"], "subset_every/**/*.parquet")

    assert {name: row["loss_rule"] for name, row in kept.items()} == KEPT
    assert kept.keys() == pooled.keys() == scores.keys() == subset.keys()
    assert kept["text"]["text"] == kept["schema"]["text"].replace("Sum, by schema?", "Sum, as text?")
    assert kept["off"]["meta_reasoning"] == "off"
    assert "<|message|>Which seed?<|end|>" in kept["restored"]["text"]
    assert r"<|message|>It is \boxed{4}, with care.<|return|>" in kept["latex"]["text"]
    assert all(row["nll_mean"] is not None for row in scores.values())
    assert {row["loss_rule"] for row in subset.values()} == set(KEPT.values())
    assert loss_text(built["nemotron/training_subsets"], "turns") == f"Add.<|end|>{LONG['content']}<|return|>"


def loss_text(subsets: Artifact, name: str) -> str:
    """Decode a row's tokens that count in its loss mask, terminators included."""
    folder = subsets.folder / "tokens" / "every"
    [entry] = [row for row in pq.read_table(folder / "rows.parquet").to_pylist() if row["id"] == name]
    start, stop = entry["first_token"], entry["first_token"] + entry["tokens"]
    tokens, mask = (np.load(folder / f"{kind}.npy")[start:stop] for kind in ("tokens", "loss_mask"))
    assert entry["loss_rule"].startswith("assistant_turns/1 messages=4,5 terminators=")
    return encoder().decode(tokens[mask])


def test_the_pool_report_counts_the_failed_checks(built: dict[str, Artifact]) -> None:
    report = json.loads((built["nemotron/pool_report"].folder / "report.json").read_bytes())
    pools = report["total"]["pools"]

    assert {name: pool["rows"] for name, pool in pools.items()} == {
        "all": 8, "clean": 7, "reasoning_off": 1, "tool_use": 2,
    }  # fmt: skip
    assert {name: pool["checks"] for name, pool in pools.items() if pool["checks"]} == {"all": {"repeated_lines": 1}}


def test_the_shipped_recipe_is_valid_and_unpinned() -> None:
    recipe = SYSTEMS.read_recipe(SHIPPED)

    assert len(recipe.datasets) == 19 and sum(len(section.splits) for section in recipe.datasets) == 70
    assert {revision for _, revision in recipe.revisions()} == {"0" * 40}
    assert all(split in section.files for section in recipe.datasets for split in section.splits)
