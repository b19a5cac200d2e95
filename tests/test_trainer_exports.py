"""Trainers' own loaders read exports, whose bytes depend on no worker."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from command_results import Corpusmill, only_line, refused
from crash_points import kill_at
from nemotron_rows import LOOKUP
from paused_runs import pause_at, wait_for
from subset_pools import build_subsets, scored, talk
from tiny_tokenizer import save_tokenizer, token_id
from word_tokenizer import write_tokenizer

from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.build.trainer_exports import KINDS
from pipeline_assets.commands.inputs import sealed_target
from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.formats.jsonl_zst import read_structs
from pipeline_assets.corpus.formats.megatron import read_indexed_dataset
from pipeline_assets.corpus.sealed_shards import shard_rows
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, HarmonyRecipe, load_encoder
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.nemotron import NemotronRecipe
from pipeline_assets.systems.registry import SYSTEMS

Export = Callable[..., Path]
END = 199_999


@pytest.fixture
def corpus(notes_root: Path) -> Path:
    return notes_root / "stage_a" / "mixed" / "filtered" / "notes"


@pytest.fixture
def subsets(tmp_path: Path) -> Artifact:
    """Build subsets of six conversations; `c` exceeds short rows."""
    rows = [
        talk(name, answer) for name, answer in zip("abcdef", ["4", "four", "4 " * 40, "5", "six", "7"], strict=True)
    ]
    splits = [scored(tmp_path / "scores", "chat/train", rows, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6])]
    return build_subsets(
        tmp_path / "nemotron", splits, {"all": {}, "easy": {"percentile": [0, 50]}}, tokens=True, disjoint=False
    )


@pytest.fixture
def export(corpusmill: Corpusmill, tmp_path: Path) -> Export:
    """Return a function that runs an export and returns its folder."""

    def run_export(source: Path, to: str, *options: object, **env: str) -> Path:
        out = tmp_path / f"out_{len([*tmp_path.glob('out_*')])}"
        data = () if "stage_a" in source.parts else ("--data", tmp_path)
        result = corpusmill("export", source, "--to", to, "--out", out, *data, *options, env=env)
        assert result.returncode == 0, result.stderr
        return out

    return run_export


def read_documents(corpus: Path) -> list[Document]:
    artifact = open_artifact(corpus)
    return [document for shard in shard_rows(artifact) for document in read_structs(artifact.path(shard), Document)]


def run_python(script: str, *arguments: object, path: Path | None = None) -> list[Any]:
    """Run a script without hooks or network; return the JSON that it prints."""
    extra = {} if path is None else {"PYTHONPATH": str(path)}
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", **extra}
    command = [sys.executable, "-c", script, *map(str, arguments)]
    result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stderr
    output: list[Any] = json.loads(result.stdout.splitlines()[-1])
    return output


def test_megatron_core_reads_every_document(corpus: Path, export: Export) -> None:
    indexed_dataset = pytest.importorskip("megatron.core.datasets.indexed_dataset", reason="megatron-core is not here")
    documents, encoder = read_documents(corpus), load_encoder(VOCABULARY_SHA256)

    out = export(corpus, "megatron")

    dataset = indexed_dataset.IndexedDataset(str(out / "tokens"))
    expected = [[*encoder.encode([document.text]).ids.tolist(), END] for document in documents]
    assert [dataset[number].tolist() for number in range(len(dataset))] == expected
    assert pq.read_table(out / "documents.parquet")["doc_id"].to_pylist() == [document.doc_id for document in documents]


def test_a_tokenizer_file_encodes_and_is_pinned(corpus: Path, export: Export, tmp_path: Path) -> None:
    save_tokenizer(tmp_path, ("<|end|>",))

    out = export(corpus, "megatron", "--tokenizer", tmp_path / "tokenizer.json", "--end-of-document", "<|end|>")

    dataset, manifest = read_indexed_dataset(out / "tokens"), open_artifact(out).manifest
    assert dataset.document(0)[:-1].tolist() == [
        token_id(letter) for letter in read_documents(corpus)[0].text.replace(" ", "Ġ")
    ]
    assert dataset.document(0)[-1] == manifest.identity.decisions["end_of_document"] == 256
    assert manifest.identity.tokenizer["family"] == "hf_tokenizer"


def test_a_tokenizer_that_loses_much_text_fails_above_the_limit(
    corpus: Path, export: Export, corpusmill: Corpusmill, tmp_path: Path
) -> None:
    options = ("--tokenizer", write_tokenizer(tmp_path), "--end-of-document", "<end>")
    failed = corpusmill("export", corpus, "--to", "olmo", "--out", tmp_path / "out_0", *options)

    assert failed.returncode == 1
    line = failed.stderr.splitlines()[-1]
    assert line.startswith(f"corpusmill: {tmp_path / 'out_0'}: ") and line.endswith("; or raise --max-unknown-fraction")
    assert " characters are lost (100.00%), above --max-unknown-fraction (0.05); " in line
    args = ("export", corpus, "--to", "olmo", "--out", tmp_path / "out_0", *options, "--max-unknown-fraction", "1")
    accepted = corpusmill(*args)
    assert accepted.returncode == 0 and "\nWARNING: " in f"\n{accepted.stderr}"


def test_olmo_has_the_same_tokens_without_a_header(corpus: Path, export: Export) -> None:
    flat = np.fromfile(export(corpus, "olmo") / "tokens.npy", "<u4")

    tokens = np.fromfile(export(corpus, "megatron") / "tokens.bin", "<i4")
    assert np.array_equal(flat, tokens)
    assert np.count_nonzero(flat == END) == len(read_documents(corpus))


OLMO = """
import json, sys
from olmo_core.data import NumpyFSLDatasetConfig, TokenizerConfig
ids = TokenizerConfig(vocab_size=201088, eos_token_id=199999, pad_token_id=199999)
data = NumpyFSLDatasetConfig(
    paths=[sys.argv[1]], dtype="uint32", sequence_length=64, tokenizer=ids, work_dir=sys.argv[2]
)
rows = data.build()
rows.prepare()
print(json.dumps([row["input_ids"].tolist() for row in rows]))
"""
OLMO_CORE = "ai2-olmo-core==3.0.0 bettermap cached-path dataclass-extensions importlib_resources"
GOOGLE = (
    "google-cloud-storage google-api-core google-auth google-cloud-core google-resumable-media google-crc32c"
    " googleapis-common-protos proto-plus protobuf pyasn1 pyasn1-modules cachetools rsa"
)


@pytest.mark.proof
def test_olmo_core_reads_the_tokens(corpus: Path, export: Export, tmp_path: Path) -> None:
    """Install into a separate folder.

    OLMo-core forbids the pinned filelock, and imports Google's client.
    """
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(tmp_path / "peers")]
    subprocess.run([*command, *OLMO_CORE.split(), *GOOGLE.split()], check=True, timeout=600)
    out = export(corpus, "olmo")

    rows = run_python(OLMO, out / "tokens.npy", tmp_path / "work", path=tmp_path / "peers")

    tokens = np.fromfile(out / "tokens.npy", "<u4")
    assert rows == tokens[: len(tokens) // 64 * 64].reshape(-1, 64).tolist()


def test_nanochat_reads_the_last_file_for_validation(corpus: Path, export: Export) -> None:
    """Read files as nanochat's `dataset.py` does.

    It sorts the Parquet files by name, uses the last for validation, and reads texts by row group.
    """
    out = export(corpus, "nanochat")

    paths = sorted(out.glob("*.parquet"))
    assert [path.name for path in paths] == ["shard_00000.parquet", "shard_00001.parquet"]
    train, valid = ([
        text
        for group in range(file.num_row_groups)
        for text in file.read_row_group(group).column("text").to_pylist()
    ] for file in map(pq.ParquetFile, paths))  # fmt: skip
    texts = [document.text for document in read_documents(corpus)]
    assert (train, valid) == ([text for number, text in enumerate(texts) if number % 100], texts[::100])


MESSAGES = """
import json, sys
import datasets
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from trl.data_utils import apply_chat_template, is_conversational

template = (
    "{% for m in messages %}[{{ m.role }}{% if m.thinking %} {{ m.thinking }}{% endif %}: {{ m.content }}"
    "{% for c in m.tool_calls or [] %} {{ c.function.name }}{{ c.function.arguments }}{% endfor %}]{% endfor %}"
)
tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), chat_template=template)
rows = datasets.load_dataset(sys.argv[1], sys.argv[2], split=sys.argv[3], cache_dir=sys.argv[4])
texts = [apply_chat_template({"messages": row["messages"]}, tokenizer)["text"] for row in rows]
print(json.dumps([list(map(is_conversational, rows)), texts]))
"""


@pytest.mark.slow
def test_trl_reads_the_messages(subsets: Artifact, export: Export, tmp_path: Path) -> None:
    pytest.importorskip("trl")

    out = export(subsets.folder, "messages")

    are_conversational, texts = run_python(MESSAGES, out, "easy", "chat_train", tmp_path / "cache")
    call = 'lookup{"word": "2 + 2"}'
    assert are_conversational == [True, True, True]
    assert texts[0] == f"[user: 2 + 2?][assistant think of 4:  {call}][tool: 4][assistant: 4]"


def test_tools_of_messages_are_found_in_an_explicit_root(corpusmill: Corpusmill, tmp_path: Path) -> None:
    root, copied_pools = tmp_path / "data", tmp_path / "other" / "nemotron" / "small" / "pools"
    messages = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]
    (root / "mine").mkdir(parents=True)
    (root / "mine" / "train.jsonl").write_text(json.dumps({"messages": messages, "uuid": "a", "tools": [LOOKUP]}))
    dataset = {"dataset": "mine", "path": "mine", "splits": ["train"], "domain": "chat_if"}
    content: dict[str, Any] = {"system": "nemotron", "name": "small", "rows": {}, "datasets": [dataset]}
    content |= {"deduplicate": {"min_completion_tokens": 0}, "pools": {"rules": {"all": ["stats_tokens > 0"]}}}
    targets = NemotronRecipe.from_mapping(content, "the test").targets()
    list(run_targets(targets, Run(root, RunSettings(workers=0))))
    [pools] = [target.folder for target in targets if target.kind.name == "nemotron/candidate_pools"]
    shutil.copytree(root / pools, copied_pools)

    args = ("export", copied_pools, "--to", "messages", "--out")
    assert "or pass their data root with --data" in refused(corpusmill(*args, tmp_path / "refused"), 1)
    assert corpusmill(*args, tmp_path / "out", "--data", root).returncode == 0

    [file] = (tmp_path / "out").rglob("*.parquet")
    assert json.loads(pq.read_table(file)["tools"][0].as_py()) == [LOOKUP]


PACKED = """
import json, sys
import datasets
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling
rows = datasets.load_dataset(sys.argv[1], "all", split="train", cache_dir=sys.argv[2])
batch = DataCollatorForLanguageModeling(pad_token_id=199999, padding_free=True)([rows[0], rows[1]])
print(json.dumps([batch["input_ids"][0].tolist(), batch["labels"][0].tolist(), batch["cu_seq_lens_q"].tolist()]))
"""


@pytest.mark.slow
def test_trl_collates_packed_rows_with_their_bounds_and_loss(subsets: Artifact, export: Export, tmp_path: Path) -> None:
    pytest.importorskip("trl")

    out = export(subsets.folder, "sft", "--seq-len", 100)

    ids, labels, bounds = run_python(PACKED, out, tmp_path / "cache")
    rows = pq.read_table(out / "subset_all" / "train-00000-of-00001.parquet").to_pylist()
    assert ids == rows[0]["input_ids"] + rows[1]["input_ids"]
    lengths = rows[0]["seq_lengths"] + rows[1]["seq_lengths"]
    assert bounds == np.cumsum([0, *lengths]).tolist()
    starts = set(bounds)
    expected = rows[0]["labels"] + rows[1]["labels"]
    assert labels == [-100 if position in starts else label for position, label in enumerate(expected)]
    assert sum(label != -100 for label in labels) > 20


FORMATS = ["megatron", "olmo", "nanochat"]


@pytest.mark.parametrize("to", FORMATS)
def test_workers_change_no_byte(corpus: Path, export: Export, to: str) -> None:
    folders = [export(corpus, to, CORPUSMILL_WORKERS=workers) for workers in ("0", "2")]

    first, second = ({file.path: file.sha256 for file in open_artifact(folder).manifest.storage} for folder in folders)
    assert first == second
    [source] = open_artifact(folders[0]).manifest.identity.inputs
    assert source == {"name": "stage_a/filtered/notes", "digest": open_artifact(corpus).manifest.digest}


@pytest.mark.slow
def test_a_killed_export_leaves_no_folder_and_continues(corpus: Path, tmp_path: Path) -> None:
    """Kill the export before each seventh step on disk; its digest does not change."""
    tokenizer, root = HarmonyRecipe().content(), corpus.parents[3]

    def build(out: Path) -> str:
        upstream = [sealed_target(corpus, *SYSTEMS.kinds.values())]
        target = KINDS["megatron"].target("x", {"to": "megatron"}, upstream, folder=out, tokenizer=tokenizer)
        return target.kind.build(target, Run(root, RunSettings(), None)).manifest.digest

    expected, out = build(tmp_path / "whole"), tmp_path / "killed"
    steps = 1
    while kill_at(steps, lambda: build(out)) is not None:
        assert not (out / "manifest.json").exists() or open_artifact(out).manifest.digest == expected
        steps += 7
    assert steps > 20
    assert build(out) == expected
    assert [*tmp_path.glob(".killed.building.*")] == []


@pytest.mark.slow
def test_a_second_command_finishes_a_killed_export(
    corpus: Path, corpusmill: Corpusmill, started: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = started("export", corpus, "--to", "olmo", "--out", out, env=pause_at("/manifest.json"))
    wait_for(process, tmp_path, ".out.building.*/tokens.npy")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()

    result = corpusmill("export", corpus, "--to", "olmo", "--out", out)

    assert result.returncode == 0, result.stderr
    assert corpusmill("verify", out).returncode == 0
    assert [*tmp_path.glob(".out*")] == []


def test_a_trace_of_an_export_names_its_source(corpus: Path, export: Export, corpusmill: Corpusmill) -> None:
    out = export(corpus, "megatron")

    message = only_line(corpusmill("trace", out, "--row", 0, "--data", corpus.parents[3]))

    digest = open_artifact(corpus).manifest.digest
    assert message == (
        f"{out}: export/megatron has no rows of text or tokens; "
        f"choose its source, stage_a/filtered/notes with the digest {digest}"
    )
    assert open_artifact(out).manifest.identity.counts["ledger"]["dropped"] == {}


def test_an_export_leaves_no_siblings_even_if_refused(
    corpus: Path, export: Export, corpusmill: Corpusmill, tmp_path: Path
) -> None:
    bad = tmp_path / "tokenizer.json"
    bad.write_text("{}")
    options = ("--to", "olmo", "--tokenizer", bad, "--end-of-document", "x", "--out", tmp_path / "bad")

    out = export(corpus, "nanochat")

    assert refused(corpusmill("export", corpus, *options), 1).startswith(f"{bad}: not a tokenizer.json (")
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".") or path.name == "bad"]
    assert out.is_dir()


def test_an_export_writes_nothing_into_the_data_root(corpus: Path, export: Export) -> None:
    root = corpus.parents[3]
    before = sorted(root.rglob("*"))

    export(corpus, "megatron")

    assert sorted(root.rglob("*")) == before


def test_an_export_is_rebuilt_from_its_manifest(
    corpus: Path, export: Export, corpusmill: Corpusmill, tmp_path: Path
) -> None:
    save_tokenizer(tmp_path, ("<|end|>",))
    out = export(corpus, "megatron", "--tokenizer", tmp_path / "tokenizer.json", "--end-of-document", "<|end|>")

    rebuilt = corpusmill("rebuild", out, "--data", corpus.parents[3])

    assert rebuilt.stdout.splitlines()[0] == f"identical   {out}", rebuilt.stderr


def test_an_exported_copy_is_not_accepted_as_the_artifact(corpus: Path, corpusmill: Corpusmill, tmp_path: Path) -> None:
    corpusmill("export", corpus, "--out", tmp_path / "copy")
    line = f"{tmp_path / 'copy'}: these files are an exported copy of stage_a/filtered mixed/notes; "
    line += f"pass the folder that they were exported from, {open_artifact(corpus).manifest.digest}"

    for command in ("rebuild", "verify", "peek", "dropped"):
        assert refused(corpusmill(command, tmp_path / "copy")) == line
    assert refused(corpusmill("publish", "me/set", tmp_path / "copy", "--data", tmp_path)) == line


def test_the_card_names_licences_the_source_and_how_to_read(corpus: Path, export: Export) -> None:
    card = (export(corpus, "olmo") / "README.md").read_text()

    assert open_artifact(corpus).manifest.digest in card
    assert "license:\n- cc0-1.0\n- mit\n- cc-by-sa-4.0\n- unknown\n" in card
    assert 'NumpyFSLDatasetConfig(paths=["this/folder/tokens.npy"], dtype="uint32"' in card


@pytest.mark.parametrize("to", ["megatron", "nanochat"])
def test_the_card_has_a_title_each_step_and_the_tokenizer(to: str, corpus: Path, export: Export) -> None:
    card = (export(corpus, to) / "README.md").read_text()

    assert "pretty_name: notes\n" in card and "\n# notes\n" in card
    steps = [
        line.split("`")[1] for line in card.splitlines() if line.startswith("| `stage_a/") and line.count("|") == 6
    ]
    assert steps == ["stage_a/normalized", "stage_a/filtered"]
    assert '"tokenizer": null' not in card
    tokenizer = f'{{"family": "o200k_harmony", "sha256": "{VOCABULARY_SHA256}"}}'
    assert (f"Tokenizer `{tokenizer}`; `{END}` ends each document." in card) is (to == "megatron")


def test_the_card_of_packed_rows_claims_no_columns_that_they_lack(subsets: Artifact, export: Export) -> None:
    packed = (export(subsets.folder, "sft") / "README.md").read_text()
    messages = (export(subsets.folder, "messages") / "README.md").read_text()

    names_rows = "Each row names the row of the source dataset"
    assert names_rows in messages and names_rows not in packed
    assert "Each row lists the splits and ids of its conversations, as in the artifact above." in packed
    assert "Each row keeps the licence" not in packed
    assert "The rows of the exported artifact state these licences:" in packed


def test_the_card_of_an_artifact_without_a_partition_has_its_name(subsets: Artifact, export: Export) -> None:
    card = (export(subsets.folder, "messages") / "README.md").read_text()

    assert f"pretty_name: {subsets.manifest.name}\n" in card and f"\n# {subsets.manifest.name}\n" in card


def test_wrong_use_is_reported_in_one_line(
    corpus: Path, subsets: Artifact, demo_root: Path, corpusmill: Corpusmill, tmp_path: Path
) -> None:
    def refused_line(source: Path, to: str, *options: object) -> str:
        out = tmp_path / "refused"
        data = () if source == corpus else ("--data", tmp_path)
        result = corpusmill("export", source, "--to", to, "--out", out, *data, *options)
        assert not out.exists()
        return only_line(result)

    assert refused_line(corpus, "messages").endswith(
        "--to messages takes nemotron rows (normalized_shards, deduplicated, candidate_pools, training_subsets), "
        "got stage_a/filtered; choose such a folder, or for this one --to parquet "
        "or --to jsonl or --to hf or --to megatron or --to olmo or --to nanochat"
    )
    assert refused_line(subsets.folder, "olmo").endswith(
        "--to olmo takes documents (normalized, filtered, deduplicated, …), got nemotron/training_subsets; "
        "choose such a folder, or for this one --to parquet or --to jsonl or --to hf or --to messages or --to sft"
    )
    assert refused_line(demo_root / "megatron" / "healing_text_v1" / "train", "nanochat", "--data", demo_root).endswith(
        "takes documents (normalized, filtered, deduplicated, …), got healing/megatron_split; choose such a folder"
    )
    assert refused_line(corpus, "olmo", "--seq-len", 8) == (
        "--seq-len: --to olmo does not use --seq-len; omit it, or choose another --to"
    )
    assert refused_line(corpus, "parquet", "--seq-len", 8) == (
        "--seq-len: --to parquet does not use --seq-len; omit it, or choose another --to"
    )
    assert refused_line(corpus, "olmo", "--end-of-document", "x") == (
        "--end-of-document: o200k Harmony has its own end of a document; omit it, or pass a --tokenizer"
    )
    save_tokenizer(tmp_path, ("<|end|>",))
    tokenizer = ("--tokenizer", tmp_path / "tokenizer.json")
    assert refused_line(corpus, "olmo", *tokenizer) == (
        "--end-of-document: tokenizer.json needs the token that ends a document; pass its text, such as '</s>'"
    )
    assert refused_line(corpus, "olmo", *tokenizer, "--end-of-document", "<eod>").startswith(
        "--end-of-document: '<eod>' is not a special token of tokenizer.json; name the token that ends a document"
    )
    assert refused_line(corpus, "olmo", "--tokenizer", tmp_path / "no.json", "--end-of-document", "x") == (
        f"{tmp_path / 'no.json'}: cannot read the tokenizer file (No such file or directory); "
        "pass a tokenizer.json or a .model file"
    )
    assert refused_line(subsets.folder, "sft", "--seq-len", 5) == (
        "--seq-len: all conversations have more than 5 tokens; pass a longer row"
    )
    assert refused_line(subsets.folder, "sft", "--seq-len", (1 << 20) + 1) == (
        "--seq-len: must be at most 1048576, got '1048577'; see corpusmill export --help"
    )


def test_rows_of_several_subsets_are_counted_as_repeats(
    subsets: Artifact, corpusmill: Corpusmill, tmp_path: Path
) -> None:
    result = corpusmill("export", subsets.folder, "--to", "jsonl", "--out", tmp_path / "copy")

    assert result.stdout.startswith(f"{tmp_path / 'copy'}: 9 rows in 2 files, ")
    assert result.stderr == (
        "warning: 3 of 9 rows repeat rows that are in several pools or subsets; "
        f"each pool or subset has its own folder in {subsets.folder}\n"
    )


@pytest.mark.parametrize("to", ["hf", "olmo"])
def test_a_file_in_place_of_the_folder_is_named_by_its_plain_path(
    to: str, corpus: Path, corpusmill: Corpusmill, tmp_path: Path
) -> None:
    (tmp_path / "ex").write_text("mine")
    (tmp_path / "broken").symlink_to("nowhere")
    fix = "expected a folder, got a file; choose another folder, or move the file away"

    results = [
        corpusmill("export", corpus, "--to", to, "--out", tmp_path / "clone" / ".." / name)
        for name in ("ex", "broken", "ex/inside")
    ]

    assert [*map(refused, results)] == [f"{tmp_path / name}: {fix}" for name in ("ex", "broken", "ex")]
    assert {path.name for path in tmp_path.iterdir()} >= {"ex", "broken"}
    assert [path.name for path in tmp_path.iterdir() if ".building." in path.name or ".tmp" in path.name] == []


def test_another_folder_is_never_replaced(corpus: Path, export: Export, corpusmill: Corpusmill, tmp_path: Path) -> None:
    out = export(corpus, "olmo")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("mine")

    refused_format = corpusmill("export", corpus, "--to", "nanochat", "--out", out)
    repeated = corpusmill("export", corpus, "--to", "olmo", "--out", out)
    result = corpusmill("export", corpus, "--to", "olmo", "--out", mine)

    assert repeated.returncode == 0
    assert refused(refused_format) == f"{out}: folder already exists; choose another folder, or remove this one"
    assert refused(result) == f"{mine}: folder already exists; choose another folder, or remove this one"
    assert (mine / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize("to", ["parquet", "jsonl", "hf"])
def test_damaged_rows_are_not_copied(to: str, subsets: Artifact, corpusmill: Corpusmill, tmp_path: Path) -> None:
    path = sorted(subsets.folder.rglob("*.parquet"))[0]
    path.chmod(0o644)
    path.write_bytes(b"Q" + path.read_bytes()[1:])  # readers of Parquet ignore the first bytes

    result = corpusmill("export", subsets.folder, "--to", to, "--out", tmp_path / "copy", "--data", tmp_path)

    assert refused(result, 1).startswith(f"{path}: sha256 is ")
    assert not [*tmp_path.glob("*copy*")]
