"""Withheld prompts are restored from seed sets by their sha256."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_assets.build.run import Run
from pipeline_assets.corpus.formats.jsonl_zst import read_structs
from pipeline_assets.corpus.nemotron.seed_prompts import open_seed_prompts, write_seed_prompts
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.source_folder import SourceFile
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.rejects import Reject
from pipeline_assets.systems.nemotron import NORMALIZED_SHARDS, NemotronRecipe


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def write_seeds(path: Path, rows: list[Any]) -> SourceFile:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return SourceFile(path, path.name, path.stat().st_size)


def turns(*texts: str) -> list[dict[str, str]]:
    return [{"role": role, "content": text} for role, text in zip(("system", "user", "user"), texts, strict=False)]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_prompt_is_found_by_the_sha256_of_its_text(tmp_path: Path, suffix: str) -> None:
    conversations = write_seeds(tmp_path / f"talks.{suffix}", [{"talk": turns("Be brief.", "2 + 2?", "And 3?")}])
    questions = [{"question": text} for text in ("Wé 🐻\0?", "", "2 + 2?")]
    texts = write_seeds(tmp_path / f"texts.{suffix}", questions)

    write_seed_prompts(tmp_path / "found", [("talk", [conversations]), ("question", [texts])])

    with open_seed_prompts(tmp_path / "found") as find_prompt:
        assert find_prompt(sha256("2 + 2?")) == "2 + 2?"
        assert find_prompt(sha256("Wé 🐻\0?")) == "Wé 🐻\0?"
        for unknown in ("And 3?", "Be brief."):
            assert find_prompt(sha256(unknown)) is None
        assert find_prompt("no sha256'") is None


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_every_prompt_is_found_and_no_other_text(tmp_path_factory: pytest.TempPathFactory, prompts: list[str]) -> None:
    folder = tmp_path_factory.mktemp("seeds")
    seeds = write_seeds(folder / "a.jsonl", [{"text": prompt} for prompt in prompts])
    write_seed_prompts(folder / "found", [("text", [seeds])])

    with open_seed_prompts(folder / "found") as find_prompt:
        assert [find_prompt(sha256(prompt)) for prompt in prompts] == prompts
        assert find_prompt(sha256("".join(prompts) + "x")) is None


def test_rows_without_a_prompt_are_skipped_unless_all_lack_one(tmp_path: Path) -> None:
    rows = ["no JSON", {"text": None}, {"text": 7}, {"text": [7, {"role": "user"}]}, {"other": "a"}]
    good = write_seeds(tmp_path / "good.jsonl", [*rows, {"text": "a"}])
    bad = write_seeds(tmp_path / "bad.jsonl", rows)

    write_seed_prompts(tmp_path / "found", [("text", [good])])
    with pytest.raises(InputError, match="no row has a new prompt in the column 'text'"):
        write_seed_prompts(tmp_path / "found", [("text", [bad])])


def test_a_message_list_is_read_in_every_form(tmp_path: Path) -> None:
    parts = {"role": "user", "content": [{"type": "text", "text": "4 + "}, {"type": "text", "text": "4?"}]}
    lists = [json.dumps(turns("s", "2 + 2?")), [json.dumps(turns("s", "3 + 3?")[1])], [parts]]
    texts = ["[1, 2]", '[{"role": "user"}]', "[[", "[" * 9999]  # prompts that are JSON, or begin like it
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a"}}]}]
    seeds = write_seeds(tmp_path / "a.jsonl", [{"text": value} for value in (*lists, *texts, image)])

    write_seed_prompts(tmp_path / "found", [("text", [seeds])])

    with open_seed_prompts(tmp_path / "found") as find_prompt:
        for prompt in ("2 + 2?", "3 + 3?", "4 + 4?", lists[0], *texts):
            assert find_prompt(sha256(str(prompt))) == prompt
        for unknown in ("s", "[]", json.dumps(parts["content"])):
            assert find_prompt(sha256(unknown)) is None


def test_a_file_of_an_interrupted_build_is_rewritten(tmp_path: Path) -> None:
    (tmp_path / "found").write_bytes(b"half a database")

    write_seed_prompts(tmp_path / "found", [("text", [write_seeds(tmp_path / "a.jsonl", [{"text": "a"}])])])

    with open_seed_prompts(tmp_path / "found") as find_prompt:
        assert find_prompt(sha256("a")) == "a"


# In a recipe


def chat(prompt: str | None, name: str = "2 + 2?") -> dict[str, Any]:
    messages = [{"role": "user", "content": prompt}, {"role": "assistant", "content": "four"}]
    return {"uuid": name, "messages": messages, "metadata": {"seed_prompt_sha256": sha256(name)}}


def build_rows(root: Path, workers: int = 0, hub: HubFiles | None = None, **section: Any) -> Artifact:
    """Build the normalized rows of four chats, two of them without their prompt."""
    write_seeds(root / "chats" / "chat.jsonl", [chat("2 + 2?"), chat(None, "3 + 3?"), chat(""), chat(None, "lost")])
    dataset = {"dataset": "chats", "path": "chats", "splits": ["chat"], "domain": "chat_if", **section}
    content = {"system": "nemotron", "name": "mine", "rows": {"shard_bytes": 200}, "datasets": [dataset]}
    run = Run(root, RunSettings(workers), hub, replace=True)
    for target in NemotronRecipe.from_mapping(content, "the test").targets():
        artifact = target.kind.build(target, run)
    assert target.kind is NORMALIZED_SHARDS
    return artifact


SEEDS = {"dataset": "seeds", "path": "seeds", "splits": ["train"], "text": "conversation"}


def read_prompts(rows: Artifact) -> dict[str, str]:
    tables = [pq.read_table(path) for path in sorted(rows.folder.glob("data/*"))]
    texts = {row["id"]: row["text"] for table in tables for row in table.to_pylist()}
    return {name: text.partition("user<|message|>")[2].partition("<|")[0] for name, text in texts.items()}


@pytest.mark.parametrize("workers", [0, 2])
def test_seed_sets_of_a_recipe_restore_withheld_prompts(tmp_path: Path, workers: int) -> None:
    write_seeds(tmp_path / "seeds/train.jsonl", [{"conversation": turns("s", text)} for text in ("2 + 2?", "3 + 3?")])

    without = build_rows(tmp_path)
    assert read_prompts(without) == {"2 + 2?": "2 + 2?"}
    assert without.manifest.identity.ledger.dropped == {"prompt_withheld": 3}

    restored = build_rows(tmp_path, workers, prompts=[SEEDS])

    assert read_prompts(restored) == {"2 + 2?": "2 + 2?", "3 + 3?": "3 + 3?", "2 + 2?#2": "2 + 2?"}
    assert restored.manifest.identity.ledger.dropped == {"prompt_withheld": 1}
    assert restored.manifest.identity.counts["prompts_restored"] == 2
    [lost] = read_structs(restored.path("dropped.jsonl.zst"), Reject)
    assert lost.detail == f"no seed set has the prompt with sha256 {sha256('lost')}"
    seeds = next(row for row in restored.manifest.identity.upstream if row["name"] == "nemotron/raw/seeds/train")
    raw = json.loads((tmp_path / "nemotron" / "mine" / "raw" / "seeds" / "train" / "manifest.json").read_bytes())
    assert seeds["digest"] == raw["digest"]
    assert not list(restored.folder.rglob("*.sqlite"))


def test_seeds_are_fetched_from_a_hub_at_their_commit(tmp_path: Path) -> None:
    hub_folder = tmp_path / "hub" / "datasets" / "owner" / "seeds"
    write_seeds(hub_folder / "train.jsonl", [{"conversation": text} for text in ("2 + 2?", "3 + 3?")])
    with LoopbackHub(tmp_path / "hub") as hub:
        seeds = {"dataset": "owner/seeds", "revision": hub.commits()["owner/seeds"], "splits": ["train"]}
        files = HubFiles(tmp_path / "cache", endpoint=hub.endpoint)
        rows = build_rows(tmp_path, hub=files, prompts=[seeds | {"text": "conversation"}])

    assert read_prompts(rows) == {"2 + 2?": "2 + 2?", "3 + 3?": "3 + 3?", "2 + 2?#2": "2 + 2?"}


def test_other_seeds_give_another_digest_and_equal_seeds_the_same(tmp_path: Path) -> None:
    def digest(*prompts: str) -> str:
        write_seeds(tmp_path / "seeds" / "train.jsonl", [{"conversation": text} for text in prompts])
        return build_rows(tmp_path, prompts=[SEEDS]).manifest.digest

    assert digest("2 + 2?", "3 + 3?") == digest("2 + 2?", "3 + 3?") != digest("2 + 2?", "3 + 3?", "lost")


LOCATION = "seeds must have one location; set `revision` for a hub dataset, or `path` for a local folder"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"text": None}, "text"),
        ({"path": None}, LOCATION),
        ({"domain": "math"}, "domain"),
        ({"files": {"test": ["*"]}}, "`files` has 'test', which is not in `splits`"),
    ],
)
def test_a_wrong_seed_set_is_refused_in_one_line(tmp_path: Path, change: dict[str, Any], error: str) -> None:
    with pytest.raises(UsageError, match=error):
        build_rows(tmp_path, prompts=[SEEDS | change])
