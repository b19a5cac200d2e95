"""Exports that the loaders of trainers read."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from command_results import Corpusmill, Export, refused
from nemotron_rows import LOOKUP
from tiny_tokenizer import save_tokenizer, token_id

from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.formats.jsonl_zst import read_structs
from pipeline_assets.corpus.formats.megatron import read_indexed_dataset
from pipeline_assets.corpus.sealed_shards import rows_by_shard
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, load_encoder
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.nemotron import NemotronRecipe

END = 199_999


def read_documents(corpus: Path) -> list[Document]:
    artifact = open_artifact(corpus)
    return [document for shard in rows_by_shard(artifact) for document in read_structs(artifact.path(shard), Document)]


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
    files = (pq.ParquetFile(path) for path in paths)
    groups = ([file.read_row_group(group) for group in range(file.num_row_groups)] for file in files)
    train, valid = ([text for table in tables for text in table["text"].to_pylist()] for tables in groups)
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
