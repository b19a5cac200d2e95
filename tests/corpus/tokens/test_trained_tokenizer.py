"""Trained tokenizers: shares of their sample, memory, drawn documents and figures."""

import hashlib
import json
from pathlib import Path

import pytest
from document_corpus import seal_corpus
from refusals import refusal
from stage2_build import INLINE, write_local_mixture

from pipeline_assets.build.recipe import upstream_first
from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.corpus.corpus_shard import CorpusShard
from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.corpus.formats.jsonl_zst import read_structs
from pipeline_assets.corpus.sealed_shards import rows_by_shard
from pipeline_assets.corpus.tokens import train_tokenizer
from pipeline_assets.corpus.tokens.families import TokenizerFile, load_tokenizer
from pipeline_assets.corpus.tokens.pinned_file import FileTokenizerRecipe
from pipeline_assets.corpus.tokens.train_tokenizer import draw_texts, measure_tokenizer
from pipeline_assets.corpus.tokens.trained_tokenizer import shares_are_kept
from pipeline_assets.corpus.tokens.unigram import UnigramRecipe, train_unigram
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import RetryableError
from pipeline_assets.spine.manifest import Identity, Manifest, StageVersion
from pipeline_assets.spine.stage import WHOLE_SHARD
from pipeline_assets.spine.staging import StagingView


@pytest.mark.parametrize(
    ("drawn", "because"),
    [
        ({"web": 7_000, "code": 2_400}, "every corpus has its share of the sample"),
        ({"web": 7_000, "code": 2_399}, "code has 2,399 of 3,000 bytes"),
        ({"web": 0, "code": 0}, "web has 0 of 7,000 bytes; code has 0 of 3,000 bytes"),
    ],
)
def test_a_corpus_with_less_than_four_fifths_of_its_share_is_named(drawn: dict[str, int], because: str) -> None:
    recipe = {"tokenizer": {"sources": {"web": "0.7", "code": "0.3"}, "sample_bytes": 10_000}}
    identity = Identity(StageVersion("tokenizer", 1), recipe, [], None, {}, {"drawn_bytes": drawn}, [])

    verdict = shares_are_kept(Artifact(Path("nowhere"), Manifest("stage2/tokenizer", "made", identity, [], {})))

    assert (verdict.passed, verdict.because) == (because.startswith("every"), because)


def test_a_sample_that_needs_more_memory_than_the_machine_has_is_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sentencepiece", reason="needs the extra `tokenizers`")
    monkeypatch.setattr(train_tokenizer, "MEMORY_PER_BYTE", 1 << 50)
    targets = write_local_mixture(tmp_path).targets()

    message = refusal(lambda: list(run_targets(targets, Run(tmp_path, INLINE))), RetryableError)

    assert " bytes of memory, this machine has " in message
    assert message.endswith("; lower `tokenizer.sample_bytes`, or use a larger machine")


def document(doc_id: str) -> Document:
    return Document(f"text of {doc_id}", "notes", "books", doc_id, "cc0-1.0", "", Meta("a.jsonl", 0))


def test_documents_with_ranks_below_the_limits_are_sampled_or_held_out(tmp_path: Path) -> None:
    """A document with a rank equal to a limit is not below it."""
    corpus = seal_corpus(tmp_path, "notes", [document(name) for name in ("doc-0", "doc-2", "doc-3")], 3)
    [path] = rows_by_shard(corpus)
    shard, folder = CorpusShard("notes-0", path, corpus.path(path), 3, "notes", 0), StagingView(tmp_path)
    ranks = {"doc-0": 11103873842851061227, "doc-2": 7414904407924236797, "doc-3": 2184618185775307692}
    limits = {"notes": (ranks["doc-2"], ranks["doc-0"])}

    receipt = draw_texts(shard, WHOLE_SHARD, folder, limits, "1", 3)

    drawn = [list(read_structs(folder.path(file.path), str)) for file in receipt.files]
    assert drawn == [["text of doc-3"], ["text of doc-2"]]
    assert receipt.counts == {"rows": 3, "documents": 1, "bytes": 13, "dropped/not_drawn": 2}


def test_a_tokenizer_is_measured_on_about_the_requested_bytes_of_each_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sentencepiece", reason="needs the extra `tokenizers`")
    monkeypatch.setattr(train_tokenizer, "_MEASURED_BYTES", 600)
    target = write_local_mixture(tmp_path).target("stage2/tokenizer")

    assert all(outcome.failure is None for outcome in run_targets(upstream_first([target]), Run(tmp_path, INLINE)))

    corpora = json.loads((tmp_path / target.folder / "tokenizer.json").read_bytes())["corpora"]
    assert {name: figures["measured_bytes"] for name, figures in corpora.items()} == {"first": 413, "second": 851}


def test_unknown_tokens_are_a_share_of_all_tokens(tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece", reason="needs the extra `tokenizers`")
    lines = ["an apple a day", "a day in may", "may I eat an apple"] * 20
    trained, path = train_unigram(lines, UnigramRecipe(vocab_size=19)), tmp_path / "small.model"
    path.write_bytes(trained.model_bytes)
    sha256 = hashlib.sha256(trained.model_bytes).hexdigest()
    file = FileTokenizerRecipe(family="sentencepiece", sha256=sha256, end_of_document="</s>")
    tokenizer = load_tokenizer(TokenizerFile(file, path))

    shares = [measure_tokenizer(tokenizer, texts)["unknown_rate"] for texts in ([], ["an apple"], ["a ☃ day"])]

    assert shares == ["0.000000", "0.000000", "0.250000"]
