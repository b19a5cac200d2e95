"""Commands that can't be done: one line each; and what can be done is."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from answers import Corpusmill, Typed, Wrong, only_line
from nemotron_hub import write_dataset

from pipeline_assets.demo.loopback_hub import LoopbackHub

AGENTIC = "nvidia/Nemotron-Agentic-v1"


@pytest.mark.parametrize(
    ("options", "status", "line"),
    [
        (["--split", "tool_caling"], 2, f"{AGENTIC}: there is no split 'tool_caling'; did you mean tool_calling?"),
        (
            ["--revision", "f" * 40],
            2,
            f"it has no revision {'f' * 40}; run `corpusmill pin {AGENTIC}` for its head, with",
        ),
        (["--revision", "v2"], 2, "it has no revision v2; run"),
        (["--max-records", "0"], 2, "--max-records: it is '0'; give 1 or more"),
    ],
)
def test_a_wrong_option_is_one_line(
    wrong: Wrong, nemotron_hub: LoopbackHub, options: list[str], status: int, line: str
) -> None:
    found = wrong("inventory", "--dataset", AGENTIC, *options, HF_ENDPOINT=nemotron_hub.endpoint)

    assert found[0] == status
    assert line in found[1]


NOWHERE = "there is no such folder, and it is no owner/name; give a folder, or owner/name"


@pytest.mark.parametrize(
    ("dataset", "line"),
    [
        ("", "--dataset: it is empty; give a folder, or owner/name"),
        (__file__, f"{__file__}: this is a file; give the folder that it lies in"),
        ("chats", f"chats: {NOWHERE}"),
        ("./a/b/c", f"./a/b/c: {NOWHERE}"),
    ],
    ids=["empty", "file", "no folder", "path"],
)
def test_a_dataset_that_is_nowhere_is_one_line(wrong: Wrong, dataset: str, line: str) -> None:
    assert wrong("inventory", "--dataset", dataset) == (2, line)


def test_a_split_that_fails_does_not_keep_the_others_from_being_built(corpusmill: Corpusmill, tmp_path: Path) -> None:
    folder = tmp_path / "chats"
    folder.mkdir()
    (folder / "bad.parquet").write_bytes(b"no parquet")
    (folder / "good.jsonl").write_bytes(b"{}\n")

    result = corpusmill("nemotron", "inventory", "--dataset", folder, "--out-dir", tmp_path / "out", "--cpu-threads", 0)

    assert result.returncode == 1
    assert (
        "FAILED nemotron/inventory/chats/bad: " in result.stderr and "its Parquet footer can't be read" in result.stderr
    )
    assert only_line(result).endswith(
        "1 of 4 artifacts failed: nemotron/inventory/chats/bad; the lines that begin with FAILED say why; "
        "what isn't made from them is built"
    )
    assert "inventory/chats/good\n" in result.stdout and "1 rows in = 1 documents" in result.stdout


@pytest.mark.parametrize(
    ("command", "dataset", "choice", "told"),
    [
        ("inventory", AGENTIC, ("--max-records", "2"), "2 rows in = 2 documents"),
        pytest.param(
            *("normalize", "nvidia/Nemotron-Science-v1", ("--analysis", "drop")),
            "analysis given 3",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["inventory", "normalize"],
)
def test_other_choices_for_the_same_rows_ask_before_they_replace(
    corpusmill: Corpusmill, tmp_path: Path, command: str, dataset: str, choice: tuple[str, str], told: str
) -> None:
    folder = tmp_path / dataset.partition("/")[2]
    write_dataset(folder, dataset)
    arguments = ("nemotron", command, "--dataset", folder, "--out-dir", tmp_path / "out", "--cpu-threads", 0)
    assert corpusmill(*arguments).returncode == 0

    again = corpusmill(*arguments, *choice)
    replaced = corpusmill(*arguments, *choice, "--replace")

    assert again.returncode == 2
    assert choice[0] in only_line(again) and "--replace" in only_line(again)
    assert replaced.returncode == 0 and told in replaced.stdout


@pytest.mark.slow
def test_a_dataset_without_partitions_is_run_by_its_recipe(corpusmill: Corpusmill, tmp_path: Path) -> None:
    folder, root = tmp_path / "harmony-tools", tmp_path / "out"
    folder.mkdir()
    (folder / "train.jsonl").write_text(
        '{"text": "<|start|>user<|message|>Hi<|end|><|start|>assistant<|message|>Ho<|end|>"}\n'
    )
    arguments = ("nemotron", "normalize", "--dataset", folder, "--domain", "math", "--out-dir", root)

    made = corpusmill(*arguments, "--cpu-threads", 0)
    (root / "nemotron").rename(tmp_path / "moved")
    ran = corpusmill("run", "normalize-harmony-tools", "--data", root, "--verbose", env={"CORPUSMILL_WORKERS": "0"})

    assert (made.returncode, ran.returncode) == (0, 0), ran.stderr
    assert "texts_parse: passed: 1 texts" in ran.stderr
    assert made.stdout.splitlines()[1].strip() in ran.stdout
    assert len([*(root / "manifests").iterdir()]) == 2


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    """A dataset that nobody knows: two rows, of which one gives no text."""
    folder = tmp_path / "chats"
    folder.mkdir()
    message = '{"role": "user", "content": "Hi"}'
    (folder / "train.jsonl").write_text(f'{{"messages": [{message}]}}\n{{"messages": []}}\n')
    return folder


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([], "nobody knows what its rows are about; give --domain one of math, proof, science, agentic, chat_if"),
        (["--domain", "maths"], "--domain"),
        (["--domain", "math", "--template", "harmony"], "--template"),
        (["--domain", "math", "--analysis", "hide"], "--analysis"),
        (["--domain", "math", "--loss", "all"], "--loss"),
        (["--domain", "math", "--max-reject-fraction", "2"], "--max-reject-fraction"),
        (["--domain", "math", "--max-records", "none"], "--max-records"),
        (["--domain", "math", "--write-readme"], "--write-readme: it is the card of the folder that --hf-layout makes"),
        (["--domain", "math", "--revision", "main"], "--revision is given; leave it out: a folder has no commits"),
    ],
)
def test_a_choice_that_is_none_is_one_line(wrong: Wrong, chats: Path, options: list[str], line: str) -> None:
    status, found = wrong("normalize", "--dataset", chats, *options)

    assert status == 2
    assert line in found


def test_efforts_that_a_recipe_does_not_say_are_told_once_before_it_is_built(
    corpusmill: Corpusmill, tmp_path: Path
) -> None:
    folder, recipe = tmp_path / "my-rows", tmp_path / "recipes" / "mine.yaml"
    folder.mkdir()
    recipe.parent.mkdir()
    for split in ("low", "high"):
        row = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": split}]}
        (folder / f"{split}.jsonl").write_text(json.dumps(row))
    section = {"dataset": "my-rows", "path": str(folder), "splits": ["low", "high"], "domain": "math"}
    content = {"system": "nemotron", "name": "mine", "rows": {}, "datasets": [section]}
    recipe.write_text(json.dumps(content))

    told = [corpusmill(verb, "mine", "--data", tmp_path, "--workers", "0").stderr for verb in ("plan", "run")]
    section["reasoning_effort"] = {"low": "low", "high": "high"}
    recipe.write_text(json.dumps(content))
    silent = corpusmill("plan", "mine", "--data", tmp_path).stderr

    line = (
        "my-rows: `reasoning_effort` doesn't say that of low, high: rows rendered there say medium; "
        "by their names it would be low: low, high: high\n"
    )
    assert [stderr.count(line) for stderr in (*told, silent)] == [1, 1, 0]


def test_what_is_made_lies_neither_in_an_artifact_nor_in_the_dataset(
    corpusmill: Corpusmill, chats: Path, tmp_path: Path
) -> None:
    def to(place: Path) -> Typed:
        return corpusmill(
            "nemotron", "inventory", "--dataset", chats, "--out-dir", place, "--cpu-threads", 0, cwd=tmp_path
        )

    assert to(tmp_path / "out").returncode == 0
    within = to(tmp_path / "out" / "nemotron" / "inventory-chats" / "inventory" / "chats" / "train")
    beside = to(chats / "out")

    assert (within.returncode, beside.returncode) == (2, 2)
    assert "an artifact is sealed there; give --out-dir another folder" in only_line(within)
    assert f"it lies in the dataset {chats}; give --out-dir a folder outside of it" in only_line(beside)


def test_a_source_that_changed_is_found_from_what_was_made_of_it(
    corpusmill: Corpusmill, chats: Path, tmp_path: Path
) -> None:
    arguments = ("nemotron", "inventory", "--dataset", chats, "--out-dir", tmp_path / "out", "--cpu-threads", 0)
    assert corpusmill(*arguments).returncode == 0
    inventory = tmp_path / "out" / "nemotron" / "inventory-chats" / "inventory" / "chats" / "train"

    with (chats / "train.jsonl").open("a") as lines:
        lines.write("{}\n")
    changed = corpusmill("verify", inventory, "--upstream")
    chats.rename(tmp_path / "elsewhere")
    gone = corpusmill("verify", inventory, "--upstream")

    assert changed.returncode == 1 and "the manifest lists" in changed.stdout + changed.stderr
    assert gone.returncode == 0 and f"{chats} is gone" in gone.stdout


def test_lines_and_parquet_of_one_split_are_told(corpusmill: Corpusmill, chats: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"messages": ["x"]}), chats / "train.parquet")
    arguments = ("--dataset", chats, "--domain", "math", "--max-reject-fraction", "0.5", "--out-dir", tmp_path / "out")

    result = corpusmill("nemotron", "normalize", *arguments, "--cpu-threads", 0)

    assert result.returncode == 0, result.stderr
    assert "not read, beside jsonl files of the same split: train.parquet" in result.stdout


def test_too_many_rejects_stop_a_split_and_name_the_first(wrong: Wrong, chats: Path) -> None:
    status, line = wrong("normalize", "--dataset", chats, "--domain", "math")

    assert status == 1
    assert "1 of 2 rows are rejected (1 no_messages), above --max-reject-fraction 0.05" in line
    assert "train.jsonl line 2 (byte 50): no_messages" in line
    assert "--max-reject-fraction" in line


@pytest.mark.slow
def test_a_run_of_several_splits_of_which_one_fails_builds_the_others(corpusmill: Corpusmill, tmp_path: Path) -> None:
    chats = tmp_path / "chats"
    chats.mkdir()
    for split in ("good", "poor", "right"):
        (chats / f"{split}.jsonl").write_text(json.dumps({"messages": [{"role": "user", "content": split}]}) + "\n")
    (chats / "poor.jsonl").write_text('{"messages": []}\n')
    written = corpusmill(
        "nemotron", "normalize", "--dataset", chats, "--domain", "math", "--out-dir", tmp_path / "made"
    )
    [recipe] = (tmp_path / "made" / "recipes").glob("*.yaml")

    result = corpusmill("run", recipe, "--data", tmp_path / "again")

    role, why = "nemotron/normalized_shards/chats/poor", "1 of 1 rows are rejected (1 no_messages)"
    assert written.returncode == result.returncode == 1
    [failed] = [line for line in result.stderr.splitlines() if line.startswith("FAILED ")]
    assert failed.startswith(f"FAILED {role}: ") and why in failed
    assert only_line(result) == (
        f"{recipe}: 1 of 6 artifacts failed: {role}; the lines that begin with FAILED say why; "
        "what isn't made from them is built"
    )
    built = tmp_path / "again" / "nemotron" / "normalize-chats" / "normalized_shards" / "chats"
    assert sorted(path.parent.name for path in built.glob("*/manifest.json")) == ["good", "right"]

    again = corpusmill("run", recipe, "--data", tmp_path / "again")
    assert why in only_line(again)
