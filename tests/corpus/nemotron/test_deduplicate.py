"""Rows that go before anybody looks for duplicates, rows whose text was there before, and prompts that are alike."""

import json
import os
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import pyarrow.parquet as pq
import pytest
from forked_workers import forked_here
from nemotron_build import quiz_of
from nemotron_rows import ANSWER, LOOKUP, QUESTION, called

from pipeline_assets.build.run import Run
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.decontamination import decontaminate_corpus
from pipeline_assets.corpus.formats.jsonl_zst import read_structs
from pipeline_assets.corpus.nemotron.prompts import DropRecord, remove_system_message
from pipeline_assets.corpus.nemotron.schema import SCHEMA
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.nemotron import NemotronRecipe

Row = dict[str, Any]
PROBLEM = " ".join(f"word{number}" for number in range(60))
ALIKE = PROBLEM.replace("word59", "other")
ITEM = "Which river of the north carries neither boats nor barges in the winter of its own choosing?"
LONG = {"role": "assistant", "content": "The answer is four, as two and two make four."}


def asked(problem: str, answer: str = LONG["content"], passed: int | None = None, **columns: Any) -> Row:
    evaluated = {"metadata": {"reason_high_no_tool": {"count": 8, "pass": passed}}} if passed is not None else {}
    messages = [{"role": "user", "content": problem}, {"role": "assistant", "content": answer}]
    return {"messages": messages, **evaluated, **columns}


def built(
    root: Path, splits: Mapping[str, Sequence[Row]], workers: int = 0, shard_bytes: int = 1 << 20, **asked_of: Any
) -> dict[str, Artifact]:
    """What a recipe makes of the rows of some splits of one dataset, by role; `decontamination` is a section."""
    folder = root / "rows"
    folder.mkdir(parents=True, exist_ok=True)
    for split, rows in splits.items():
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    dataset = {"dataset": "maths", "path": str(folder), "splits": list(splits), "domain": "math"}
    content = {"system": "nemotron", "name": "n", "rows": {"shard_bytes": shard_bytes}, "datasets": [dataset]}
    content |= {"decontamination": asked_of.pop("decontamination", None), "deduplicate": asked_of}
    run = Run(root, RunSettings(workers))
    targets: Sequence[Target] = NemotronRecipe.from_mapping(content, "the test").targets()
    return {target.role: target.kind.build(target, run) for target in targets}


def rows_in(artifact: Artifact) -> list[Row]:
    return [row for path in sorted((artifact.folder / "data").iterdir()) for row in pq.read_table(path).to_pylist()]


def gone_from(artifact: Artifact) -> list[tuple[str, str]]:
    dropped = read_structs(artifact.path("dropped.jsonl.zst"), DropRecord)
    return [(row.id, row.reason) for row in dropped]


def test_rows_that_are_worth_nothing_go_whatever_others_say(tmp_path: Path) -> None:
    def calls(arguments: object) -> list[Row]:
        return [QUESTION, called(arguments), {"role": "tool", "content": "4"}, LONG]

    rows = [
        {"text": "no Harmony", "uuid": "invalid"},
        asked("2 + 2?", "  ", uuid="empty"),
        {"messages": [QUESTION, ANSWER], "uuid": "short"},
        {"messages": calls({"words": 1}), "tools": [LOOKUP], "uuid": "wrong"},
        {"messages": calls({"word": "a"}), "tools": [LOOKUP], "uuid": "right"},
        asked(PROBLEM, uuid="long"),
    ]

    made = built(tmp_path, {"low": rows})["nemotron/deduplicated/maths/low"]

    assert [row["id"] for row in rows_in(made)] == ["right", "long"]
    assert gone_from(made) == [
        ("invalid", "invalid_harmony"),
        ("empty", "no_completion"),
        ("short", "no_completion"),
        ("wrong", "malformed_tool_call"),
    ]
    ledger = made.manifest.identity.counts["ledger"]
    assert (ledger["in"], ledger["out"], ledger["rejected"]) == (6, 2, {})
    assert ledger["dropped"] == {"invalid_harmony": 1, "malformed_tool_call": 1, "no_completion": 2}


def test_a_text_that_was_there_before_goes_also_where_it_came_as_text_without_our_system_message(
    tmp_path: Path,
) -> None:
    first = built(tmp_path / "a", {"low": [asked(PROBLEM, uuid="one")]}, near=None)
    [rendered] = rows_in(first["nemotron/normalized_shards/maths/low"])
    text = rendered["text"][rendered["text"].index("<|start|>user") :]

    made = built(
        tmp_path / "b",
        {"low": [asked(PROBLEM, uuid="one"), asked(PROBLEM, uuid="two"), {"text": text, "uuid": "bare"}]},
        near=None,
    )["nemotron/deduplicated/maths/low"]

    assert [(row["id"], row["quality_is_duplicate"]) for row in rows_in(made)] == [("one", False)]
    assert gone_from(made) == [("two", "duplicate_text"), ("bare", "duplicate_text")]


def test_a_system_message_that_is_not_ours_stays_in_what_is_compared() -> None:
    assert remove_system_message("<|start|>system<|message|>a<|end|>b", ["<|start|>system<|message|>a<|end|>"]) == "b"
    assert remove_system_message(
        "<|start|>system<|message|>c<|end|>b", ["<|start|>system<|message|>a<|end|>"]
    ).endswith("b")
    assert remove_system_message("text", []) == "text"


def test_one_problem_in_two_splits_is_no_duplicate_unless_the_recipe_looks_over_the_dataset(tmp_path: Path) -> None:
    rows = {
        "low": [asked(PROBLEM, "A first answer, which has more words than the least.", uuid="l")],
        "high": [asked(ALIKE, uuid="h")],
    }

    apart, together = (built(tmp_path / scope, rows, scope=scope) for scope in ("split", "dataset"))

    def tags(made: Mapping[str, Artifact]) -> list[tuple[str, bool, str | None]]:
        found = [row for split in rows for row in rows_in(made[f"nemotron/deduplicated/maths/{split}"])]
        return [(row["id"], row["quality_is_duplicate"], row["quality_duplicate_of"]) for row in found]

    assert tags(apart) == [("l", False, None), ("h", False, None)]
    assert tags(together) == [("l", False, None), ("h", True, "maths/low/l")]
    assert "nemotron/near_duplicates/maths" in together and "nemotron/near_duplicates/maths/low" in apart


def test_over_a_dataset_a_text_of_an_earlier_split_is_there_before(tmp_path: Path) -> None:
    rows = {"low": [asked(PROBLEM, uuid="l")], "high": [asked(PROBLEM, uuid="h"), asked("Other words.", uuid="o")]}

    apart, together = (built(tmp_path / scope, rows, scope=scope, near=None) for scope in ("split", "all"))

    assert gone_from(apart["nemotron/deduplicated/maths/high"]) == []
    assert gone_from(together["nemotron/deduplicated/maths/high"]) == [("h", "duplicate_text")]


def test_near_duplicates_are_tagged_or_dropped_and_the_most_correct_one_stays(tmp_path: Path) -> None:
    rows = [
        asked(PROBLEM, "A first answer, which has more words than the least.", uuid="unknown"),
        asked(PROBLEM, "A second answer, which has more words than the least.", 2, uuid="poor"),
        asked(ALIKE, "A third answer, which has more words than the least.", 7, uuid="good"),
        asked("Another problem altogether, of some words.", uuid="other"),
    ]

    tagged, dropped = (
        built(tmp_path / action, {"low": rows}, near_duplicates=action)["nemotron/deduplicated/maths/low"]
        for action in ("tag", "drop")
    )

    found = {row["id"]: (row["quality_is_duplicate"], row["quality_duplicate_of"]) for row in rows_in(tagged)}
    of_good = (True, "maths/low/good")
    assert found == {"unknown": of_good, "poor": of_good, "good": (False, None), "other": (False, None)}
    similar = [row["quality_similarity"] for row in rows_in(tagged)]
    assert all(0.7 <= one < 1 for one in similar[:2]) and similar[2:] == [None, None]
    assert tagged.manifest.identity.counts["near_duplicate"] == 2
    assert [row["id"] for row in rows_in(dropped)] == ["good", "other"]
    assert gone_from(dropped) == [("unknown", "near_duplicate"), ("poor", "near_duplicate")]


@pytest.mark.parametrize("near", [None, {}])
def test_each_row_is_told_from_the_others_where_some_go_at_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, near: dict[str, Any] | None
) -> None:
    """In files of a few rows each: too short an answer, an item of an evaluation set, a death of who looks for it,
    nearly the same words as the first row.
    """
    kinds = random.Random(7).choices(["plain", "short", "leak", "deadly", "alike"], [4, 1, 1, 0.3, 1], k=60)
    problems = {"leak": f"{PROBLEM} {ITEM}", "deadly": "deadly", "alike": PROBLEM}
    rows = [
        asked(
            f"{problems.get(kind, '')} word{number} {'' if kind == 'alike' else f'{number} ' * 50}",
            f"{number}" if kind == "short" else f"{LONG['content']} {number}",
            uuid=f"{kind}-{number}",
        )
        for number, kind in enumerate(["alike", *kinds])
    ]
    decode = decontaminate_corpus.decode_lines

    def deadly(*arguments: Any) -> Any:
        documents = decode(*arguments)
        if any(document.text.startswith("deadly") for document in documents):
            os._exit(9)
        return documents

    monkeypatch.setattr(decontaminate_corpus, "decode_lines", deadly)
    quiz = quiz_of(tmp_path / "quiz", ITEM)
    asked_of = {"near": near, "near_duplicates": "drop", "decontamination": quiz}
    with forked_here():
        made = built(tmp_path, {"low": rows}, 1, 4_000, **asked_of)

    left, names = made["nemotron/deduplicated/maths/low"], [row["uuid"] for row in rows]
    reasons = {"short": "no_completion", "leak": "contaminated", "deadly": "killed_worker"}
    reasons |= {} if near is None else {"alike": "near_duplicate"}
    gone = [(name, reasons[kind]) for name in names[1:] if (kind := name.partition("-")[0]) in reasons]
    assert len(left.manifest.identity.files) > 4
    assert gone_from(left) == gone
    assert [row["id"] for row in rows_in(left)] == [name for name in names if name not in dict(gone)]
    ledger = left.manifest.identity.counts["ledger"]
    assert (ledger["in"], ledger["out"]) == (61, 61 - len(gone)) and ledger["dropped"] == Counter(dict(gone).values())


def test_rows_keep_their_columns_and_their_order(tmp_path: Path) -> None:
    rows = [asked(f"Problem number {number}, of some words.", uuid=str(number)) for number in range(30)]

    made = built(tmp_path, {"low": rows})

    before, after = (rows_in(made[f"nemotron/{kind}/maths/low"]) for kind in ("normalized_shards", "deduplicated"))
    assert pq.read_schema(next((made["nemotron/deduplicated/maths/low"].folder / "data").iterdir())).equals(SCHEMA)
    judged = ("quality_is_duplicate", "quality_duplicate_of", "quality_similarity")
    assert [{key: row[key] for key in row if key not in judged} for row in after] == [
        {key: row[key] for key in row if key not in judged} for row in before
    ]


def test_datasets_reads_a_file_of_which_no_row_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    made = built(tmp_path, {"low": [asked("2 + 2?", " ")], "high": [asked(PROBLEM)]})

    files = [
        str(path)
        for split in ("low", "high")
        for path in made[f"nemotron/deduplicated/maths/{split}"].folder.glob("data/*")
    ]
    loaded = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=str(tmp_path / "cache"))

    assert len(files) == 2 and len(loaded) == 1
