"""Invalid Nemotron commands exit with one line and build nothing."""

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_results import Corpusmill, Result, Wrong, only_line
from nemotron_hub import write_dataset
from tiny_scoring import build_rows, half_written, save_whole_model, write_pool

from pipeline_assets.demo.loopback_hub import LoopbackHub

AGENTIC = "nvidia/Nemotron-Agentic-v1"
NOWHERE = "folder not found; pass a folder, or owner/name"
EMPTY = "must not be empty; pass a folder, or owner/name"
PRIVATE = "dataset not found or private (HTTP 401)"
NO_POOLS = "no Parquet files found; choose pools: Parquet files with the columns id, text"
NO_SCORES = "no sealed scores found; choose an output folder of `nemotron score` or `run`"
NORMALIZE = "normalize --dataset chats --domain math"
SCORE = "score --pool pool --model {model}"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_whole_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    """Write an unknown dataset of two rows, one of them without text."""
    folder = tmp_path / "chats"
    folder.mkdir()
    message = '{"role": "user", "content": "Hi"}'
    (folder / "train.jsonl").write_text(f'{{"messages": [{message}]}}\n{{"messages": []}}\n')
    return folder


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (f"inventory --dataset {AGENTIC} --split tool_caling", "'tool_caling' not found; did you mean tool_calling?"),
        (f"inventory --dataset {AGENTIC} --revision v2", f"revision v2 not found; run `corpusmill pin {AGENTIC}`"),
        ("inventory --dataset ''", f"--dataset: {EMPTY}"),
        ("inventory --dataset chats/train.jsonl", "expected a folder, got a file; pass the folder that contains it"),
        ("inventory --dataset chat", f"chat: {NOWHERE}"),
        ("inventory --dataset ./chat", f"./chat: {NOWHERE}"),
        ("inventory --dataset my/chat", f"{PRIVATE}, and the folder my/chat was not found; check the name"),
        ("inventory --dataset chats --max-records 0", "--max-records: must be at least 1, got '0'; see"),
        (f"{NORMALIZE} --template harmony", "--template"),
        (f"{NORMALIZE} --loss all", "--loss"),
        (f"{NORMALIZE} --max-reject-fraction 2", "--max-reject-fraction"),
        (f"{NORMALIZE} --write-readme", "--write-readme: needs --hf-layout, whose folder"),
        (f"{NORMALIZE} --revision main", "a folder has no commits, got --revision; omit --revision"),
        (f"{NORMALIZE} --domain maths", "--domain"),
        ("normalize --dataset chats", "the domain of its rows is unknown; set --domain to one of math, proof, science"),
        ("normalize --dataset empty --domain math", "empty: no JSON lines or Parquet files found; choose a dataset of"),
        ("score --pool lines --model {model}", f"lines: {NO_POOLS}"),
        ("score --pool nowhere --model {model}", f"nowhere: {NOWHERE}"),
        ("score --pool pool --model no/such/folder", f"no/such/folder: {NOWHERE}"),
        (f"{SCORE} --against ''", f"--against: {EMPTY}"),
        (f"{SCORE} --dtype bfloat16", "--dtype is bfloat16 and --device cpu: a CPU needs float32"),
        (f"{SCORE} --dtype int8", "--dtype must be 'float32', 'bfloat16' or 'float16', got 'int8'"),
        (f"{SCORE} --max-length 1", "--max-length"),
        (f"{SCORE} --launcher moon", "--launcher"),
        (f"{SCORE} --pool-revision main", "a folder has no commits, got --pool-revision; omit --pool-revision"),
        *((f"{verb} --in-dir pool", NO_SCORES) for verb in ("percentiles", "subsets")),
        ("pools --in-dir pool", "no sealed rows found; choose an output folder of `nemotron normalize` or `run`"),
        ("subsets --in-dir pool --rules rules.yaml", "rules.yaml: unknown key `rule`; did you mean `rules`?"),
        ("subsets --in-dir pool --rules no.yaml", "no.yaml: rules file not found"),
    ],
)
def test_invalid_command_is_one_line_and_builds_nothing(
    wrong: Wrong, nemotron_hub: LoopbackHub, chats: Path, model: Path, tmp_path: Path, words: str, line: str
) -> None:
    write_pool(tmp_path / "pool", build_rows(3))
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "train.jsonl").write_text('{"id": "a"}\n')
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "README.md").write_text("# Rows\n")
    (tmp_path / "rules.yaml").write_text("rule: {hard: {}}")
    device = ["--device", "cpu"] if words.startswith("score") else []

    status, message = wrong(*shlex.split(words.format(model=model)), *device, HF_ENDPOINT=nemotron_hub.endpoint)

    assert (status, line in message) == (2, True), message
    assert half_written(tmp_path) == []
    assert not [*tmp_path.glob("out/nemotron/**/manifest.json")]


def test_commit_of_sealed_pools_is_refused(
    corpusmill: Corpusmill, copy_root: Callable[[str], Path], model: Path
) -> None:
    root = copy_root("nemotron")
    [pools] = root.glob("nemotron/*/candidate_pools")
    words = ("--pool", pools, "--pool-revision", "main", "--model", model, "--device", "cpu", "--out-dir", root)

    refused = corpusmill("nemotron", "score", *words, "--dry-run")

    assert refused.returncode == 2
    assert only_line(refused).endswith(": a folder has no commits, got --pool-revision; omit --pool-revision")


def test_recipe_name_has_each_split_once_and_a_hash_if_long(corpusmill: Corpusmill, tmp_path: Path) -> None:
    (tmp_path / "chats").mkdir()
    splits = ["a" * 80, "b" * 80]
    for split in splits:
        (tmp_path / "chats" / f"{split}.jsonl").write_bytes(b"{}\n")
    chosen = [word for split in [*splits, splits[0]] for word in ("--split", split)]
    words = ("--dataset", tmp_path / "chats", *chosen, "--out-dir", tmp_path / "out", "--cpu-threads", 0)

    result = corpusmill("nemotron", "inventory", *words)

    assert result.returncode == 0, result.stderr
    [recipe] = (tmp_path / "out" / "recipes").iterdir()
    assert recipe.name == f"inventory-chats-{'a' * 80}-bbb-005bedc7.yaml"


def test_too_many_rejects_stop_a_split_and_name_the_first(wrong: Wrong, chats: Path) -> None:
    status, line = wrong("normalize", "--dataset", chats, "--domain", "math")

    assert status == 1
    assert "1 of 2 rows is rejected (1 no_messages), above --max-reject-fraction 0.05" in line
    assert "train.jsonl line 2 (byte 50): no_messages" in line


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        ("subsets: {}\nscan: {}\n", "`subsets` needs scores; add `scoring`"),
        ("scoring:\n  model: {path: model}\n  treads: 2\n", "unknown key `scoring.treads`; did you mean `threads`?"),
        ("scoring: {}\n", "`scoring.model` is missing; add it"),
    ],
)
def test_invalid_recipes_are_named_by_file(corpusmill: Corpusmill, tmp_path: Path, recipe: str, expected: str) -> None:
    path = tmp_path / "recipes" / "mine.yaml"
    path.parent.mkdir()
    datasets = "datasets:\n- {dataset: mine, path: pool, splits: [train]}\n"
    path.write_text(f"system: nemotron\nname: mine\n{recipe}{datasets}")

    result = corpusmill("run", path, "--data", tmp_path)

    assert result.returncode == 2
    lines = result.stderr.splitlines()
    assert [line for line in lines if expected in line and line.startswith(f"corpusmill: {path}")] != [], result.stderr
    assert not (tmp_path / "nemotron").exists()


def test_failed_split_does_not_stop_the_other_splits(corpusmill: Corpusmill, tmp_path: Path) -> None:
    folder = tmp_path / "chats"
    folder.mkdir()
    (folder / "bad.parquet").write_bytes(b"no parquet")
    (folder / "good.jsonl").write_bytes(b"{}\n")

    result = corpusmill("nemotron", "inventory", "--dataset", folder, "--out-dir", tmp_path / "out", "--cpu-threads", 0)

    assert result.returncode == 1
    assert "FAILED nemotron/inventory/chats/bad: " in result.stderr
    assert "the Parquet footer cannot be read" in result.stderr
    assert only_line(result).endswith(
        "1 of 4 artifacts failed: nemotron/inventory/chats/bad; lines that start with FAILED give the reasons; "
        "artifacts that do not depend on these are built"
    )
    assert "inventory/chats/good\n" in result.stdout and "1 row in = 1 document" in result.stdout


def test_other_options_for_the_same_rows_need_replace(corpusmill: Corpusmill, tmp_path: Path) -> None:
    folder = tmp_path / AGENTIC.partition("/")[2]
    write_dataset(folder, AGENTIC)
    arguments = ("nemotron", "inventory", "--dataset", folder, "--out-dir", tmp_path / "out", "--cpu-threads", 0)
    assert corpusmill(*arguments).returncode == 0

    again = corpusmill(*arguments, "--max-records", "2")
    replaced = corpusmill(*arguments, "--max-records", "2", "--replace")

    assert again.returncode == 2
    assert "--max-records" in only_line(again) and "--replace" in only_line(again)
    assert replaced.returncode == 0 and "2 rows in = 2 documents" in replaced.stdout


def test_missing_efforts_are_reported_once_before_a_build(corpusmill: Corpusmill, tmp_path: Path) -> None:
    folder, recipe = tmp_path / "my-rows", tmp_path / "recipes" / "mine.yaml"
    folder.mkdir()
    recipe.parent.mkdir()
    for split in ("low", "high"):
        row = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": split}]}
        (folder / f"{split}.jsonl").write_text(json.dumps(row))
    section = {"dataset": "my-rows", "path": str(folder), "splits": ["low", "high"], "domain": "math"}
    content = {"system": "nemotron", "name": "mine", "rows": {}, "datasets": [section]}
    recipe.write_text(json.dumps(content))

    messages = [corpusmill(verb, "mine", "--data", tmp_path, "--workers", "0").stderr for verb in ("plan", "run")]
    section["reasoning_effort"] = {"low": "low", "high": "high"}
    recipe.write_text(json.dumps(content))
    silent = corpusmill("plan", "mine", "--data", tmp_path).stderr

    line = (
        "my-rows: `reasoning_effort` lacks low, high: their rendered rows have effort medium; "
        "their names suggest low: low, high: high\n"
    )
    assert [stderr.count(line) for stderr in (*messages, silent)] == [1, 1, 0]


def test_output_inside_an_artifact_or_dataset_is_refused(corpusmill: Corpusmill, chats: Path, tmp_path: Path) -> None:
    def run_inventory(place: Path) -> Result:
        words = ("nemotron", "inventory", "--dataset", chats, "--out-dir", place, "--cpu-threads", 0)
        return corpusmill(*words, cwd=tmp_path)

    assert run_inventory(tmp_path / "out").returncode == 0
    in_artifact = run_inventory(tmp_path / "out" / "nemotron" / "inventory-chats" / "inventory" / "chats" / "train")
    in_dataset = run_inventory(chats / "out")

    assert (in_artifact.returncode, in_dataset.returncode) == (2, 2)
    assert "expected a data root, got an artifact; set --out-dir to another folder" in only_line(in_artifact)
    inside = f"the output folder is inside the dataset {chats}; set --out-dir to a folder outside of it"
    assert inside in only_line(in_dataset)


def test_ignored_parquet_files_of_a_jsonl_split_are_listed(corpusmill: Corpusmill, chats: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"messages": ["x"]}), chats / "train.parquet")
    arguments = ("--dataset", chats, "--domain", "math", "--max-reject-fraction", "0.5", "--out-dir", tmp_path / "out")

    result = corpusmill("nemotron", "normalize", *arguments, "--cpu-threads", 0)

    assert result.returncode == 0, result.stderr
    assert "not read, because the split has jsonl files: train.parquet" in result.stdout


@pytest.mark.parametrize("device", [(), pytest.param(("--device", "cuda"), marks=pytest.mark.slow)], ids=str)
def test_missing_torch_is_reported_with_its_install_command(
    corpusmill: Corpusmill, model: Path, tmp_path: Path, device: tuple[str, ...]
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None\n")
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    words = ("--pool", write_pool(tmp_path / "pool", build_rows(3)), "--model", model, "--out-dir", tmp_path / "out")

    result = corpusmill("nemotron", "score", *words, *device, env={"PYTHONPATH": path})

    assert result.returncode == 2
    line = only_line(result)
    assert line.startswith("scoring: torch is not installed; in the project's folder run ")
    assert line.endswith("-e '.[scoring]'")
    assert half_written(tmp_path) == []
