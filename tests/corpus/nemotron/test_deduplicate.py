"""Deduplication of rows: unusable rows, repeated texts and similar prompts."""

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
from nemotron_build import write_quiz_section
from nemotron_rows import ANSWER, LOOKUP, QUESTION, called, read_rows

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


def qa_row(problem: str, answer: str = LONG["content"], passed: int | None = None, **columns: Any) -> Row:
    evaluated = {"metadata": {"reason_high_no_tool": {"count": 8, "pass": passed}}} if passed is not None else {}
    messages = [{"role": "user", "content": problem}, {"role": "assistant", "content": answer}]
    return {"messages": messages, **evaluated, **columns}


def build(
    root: Path, splits: Mapping[str, Sequence[Row]], workers: int = 0, shard_bytes: int = 1 << 20, **settings: Any
) -> dict[str, Artifact]:
    """Build rows by split; `decontamination` and other settings make the recipe."""
    folder = root / "rows"
    folder.mkdir(parents=True, exist_ok=True)
    for split, rows in splits.items():
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    dataset = {"dataset": "maths", "path": str(folder), "splits": list(splits), "domain": "math"}
    content = {"system": "nemotron", "name": "n", "rows": {"shard_bytes": shard_bytes}, "datasets": [dataset]}
    content |= {"decontamination": settings.pop("decontamination", None), "deduplicate": settings}
    run = Run(root, RunSettings(workers))
    targets: Sequence[Target] = NemotronRecipe.from_mapping(content, "the test").targets()
    return {target.role: target.kind.build(target, run) for target in targets}


def read_dropped(artifact: Artifact) -> list[tuple[str, str]]:
    dropped = read_structs(artifact.path("dropped.jsonl.zst"), DropRecord)
    return [(row.id, row.reason) for row in dropped]


def test_unusable_rows_are_dropped_with_their_reason(tmp_path: Path) -> None:
    def calls(arguments: object) -> list[Row]:
        return [QUESTION, called(arguments), {"role": "tool", "content": "4"}, LONG]

    rows = [
        {"text": "no Harmony", "uuid": "invalid"},
        qa_row("2 + 2?", "  ", uuid="empty"),
        {"messages": [QUESTION, ANSWER], "uuid": "short"},
        {"messages": calls({"words": 1}), "tools": [LOOKUP], "uuid": "wrong"},
        {"messages": calls({"word": "a"}), "tools": [LOOKUP], "uuid": "right"},
        qa_row(PROBLEM, uuid="long"),
    ]

    artifact = build(tmp_path, {"low": rows})["nemotron/deduplicated/maths/low"]

    assert [row["id"] for row in read_rows(artifact)] == ["right", "long"]
    reasons = {"invalid": "invalid_harmony", "empty": "no_completion", "short": "no_completion"}
    assert read_dropped(artifact) == [*reasons.items(), ("wrong", "malformed_tool_call")]
    ledger = artifact.manifest.identity.counts["ledger"]
    assert (ledger["in"], ledger["out"], ledger["rejected"]) == (6, 2, {})
    assert ledger["dropped"] == {"invalid_harmony": 1, "malformed_tool_call": 1, "no_completion": 2}


def test_repeated_text_is_dropped_with_or_without_our_system_message(tmp_path: Path) -> None:
    rows = [qa_row(PROBLEM, uuid=name) for name in ("one", "two")]
    [rendered] = read_rows(build(tmp_path / "a", {"low": rows[:1]}, near=None)["nemotron/normalized_shards/maths/low"])
    bare = {"text": rendered["text"][rendered["text"].index("<|start|>user") :], "uuid": "bare"}

    artifact = build(tmp_path / "b", {"low": [*rows, bare]}, near=None)["nemotron/deduplicated/maths/low"]

    assert [(row["id"], row["quality_is_duplicate"]) for row in read_rows(artifact)] == [("one", False)]
    assert read_dropped(artifact) == [("two", "duplicate_text"), ("bare", "duplicate_text")]


def test_only_our_system_message_is_removed_before_comparison() -> None:
    ours, other = ("<|start|>system<|message|>a<|end|>", "<|start|>system<|message|>c<|end|>")

    assert remove_system_message(f"{ours}b", [ours]) == "b"
    assert remove_system_message(f"{other}b", [ours]).endswith("b")
    assert remove_system_message("text", []) == "text"


def test_problem_in_two_splits_is_a_duplicate_only_in_dataset_scope(tmp_path: Path) -> None:
    first = qa_row(PROBLEM, "A first answer, which has more words than the least.", uuid="l")
    rows = {"low": [first], "high": [qa_row(ALIKE, uuid="h")]}

    apart, together = (build(tmp_path / scope, rows, scope=scope) for scope in ("split", "dataset"))

    def tags(built: Mapping[str, Artifact]) -> list[tuple[str, bool, str | None]]:
        tagged = [row for split in rows for row in read_rows(built[f"nemotron/deduplicated/maths/{split}"])]
        return [(row["id"], row["quality_is_duplicate"], row["quality_duplicate_of"]) for row in tagged]

    assert tags(apart) == [("l", False, None), ("h", False, None)]
    assert tags(together) == [("l", False, None), ("h", True, "maths/low/l")]
    assert "nemotron/near_duplicates/maths" in together and "nemotron/near_duplicates/maths/low" in apart


def test_text_of_an_earlier_split_is_a_duplicate_in_scope_all(tmp_path: Path) -> None:
    rows = {"low": [qa_row(PROBLEM, uuid="l")], "high": [qa_row(PROBLEM, uuid="h"), qa_row("Other words.", uuid="o")]}

    apart, together = (build(tmp_path / scope, rows, scope=scope, near=None) for scope in ("split", "all"))

    assert read_dropped(apart["nemotron/deduplicated/maths/high"]) == []
    assert read_dropped(together["nemotron/deduplicated/maths/high"]) == [("h", "duplicate_text")]


def test_near_duplicates_are_tagged_or_dropped_and_the_most_correct_is_kept(tmp_path: Path) -> None:
    rows = [
        qa_row(PROBLEM, "A first answer, which has more words than the least.", uuid="unknown"),
        qa_row(PROBLEM, "A second answer, which has more words than the least.", 2, uuid="poor"),
        qa_row(ALIKE, "A third answer, which has more words than the least.", 7, uuid="good"),
        qa_row("Another problem altogether, of some words.", uuid="other"),
    ]

    tagged, dropped = (
        build(tmp_path / action, {"low": rows}, near_duplicates=action)["nemotron/deduplicated/maths/low"]
        for action in ("tag", "drop")
    )

    duplicates = {row["id"]: (row["quality_is_duplicate"], row["quality_duplicate_of"]) for row in read_rows(tagged)}
    duplicate = (True, "maths/low/good")
    assert duplicates == {"unknown": duplicate, "poor": duplicate, "good": (False, None), "other": (False, None)}
    similar = [row["quality_similarity"] for row in read_rows(tagged)]
    assert all(0.7 <= similarity < 1 for similarity in similar[:2]) and similar[2:] == [None, None]
    assert tagged.manifest.identity.counts["near_duplicate"] == 2
    assert [row["id"] for row in read_rows(dropped)] == ["good", "other"]
    assert read_dropped(dropped) == [("unknown", "near_duplicate"), ("poor", "near_duplicate")]


@pytest.mark.parametrize("near", [pytest.param(None, marks=pytest.mark.slow), {}])
def test_rows_are_matched_although_every_step_drops_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, near: dict[str, Any] | None
) -> None:
    """Some rows have short answers, leaked items, poison texts or near duplicates."""
    kinds = random.Random(7).choices(["plain", "short", "leak", "deadly", "alike"], [4, 1, 1, 0.3, 1], k=60)
    problems = {"leak": f"{PROBLEM} {ITEM}", "deadly": "deadly", "alike": PROBLEM}
    rows = [
        qa_row(
            f"{problems.get(kind, '')} word{number} {'' if kind == 'alike' else f'{number} ' * 50}",
            f"{number}" if kind == "short" else f"{LONG['content']} {number}",
            uuid=f"{kind}-{number}",
        )
        for number, kind in enumerate(["alike", *kinds])
    ]
    decode = decontaminate_corpus.decode_lines

    def decode_until_deadly(*arguments: Any) -> Any:
        documents = decode(*arguments)
        if any(document.text.startswith("deadly") for document in documents):
            os._exit(9)
        return documents

    monkeypatch.setattr(decontaminate_corpus, "decode_lines", decode_until_deadly)
    quiz = write_quiz_section(tmp_path / "quiz", ITEM)
    settings = {"near": near, "near_duplicates": "tag" if near is None else "drop", "decontamination": quiz}
    with forked_here():
        built = build(tmp_path, {"low": rows}, 1, 4_000, **settings)

    artifact, names = built["nemotron/deduplicated/maths/low"], [row["uuid"] for row in rows]
    reasons = {"short": "no_completion", "leak": "contaminated", "deadly": "killed_worker"}
    reasons |= {} if near is None else {"alike": "near_duplicate"}
    drops = [(name, reasons[kind]) for name in names[1:] if (kind := name.partition("-")[0]) in reasons]
    assert len(artifact.manifest.identity.files) > 4
    assert read_dropped(artifact) == drops
    assert [row["id"] for row in read_rows(artifact)] == [name for name in names if name not in dict(drops)]
    ledger = artifact.manifest.identity.counts["ledger"]
    assert (ledger["in"], ledger["out"]) == (61, 61 - len(drops)) and ledger["dropped"] == Counter(dict(drops).values())


def test_rows_keep_their_columns_and_their_order(tmp_path: Path) -> None:
    rows = [qa_row(f"Problem number {number}, of some words.", uuid=str(number)) for number in range(30)]

    built = build(tmp_path, {"low": rows})

    before, after = (read_rows(built[f"nemotron/{kind}/maths/low"]) for kind in ("normalized_shards", "deduplicated"))
    assert pq.read_schema(next((built["nemotron/deduplicated/maths/low"].folder / "data").iterdir())).equals(SCHEMA)
    flags = ("quality_is_duplicate", "quality_duplicate_of", "quality_similarity")
    for row, kept in zip(before, after, strict=True):
        assert kept | dict.fromkeys(flags) == row | dict.fromkeys(flags)


def test_datasets_reads_a_file_without_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    built = build(tmp_path, {"low": [qa_row("2 + 2?", " ")], "high": [qa_row(PROBLEM)]})

    folders = [built[f"nemotron/deduplicated/maths/{split}"].folder for split in ("low", "high")]
    files = [str(path) for folder in folders for path in folder.glob("data/*")]
    loaded = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=str(tmp_path / "cache"))

    assert len(files) == 2 and len(loaded) == 1
