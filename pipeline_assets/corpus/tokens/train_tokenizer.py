"""Trains the tokenizer of a mixture: draws its sample, trains on it, and measures what it makes of each corpus."""

import functools
import hashlib
import itertools
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec

from pipeline_assets.corpus.corpus_shard import CorpusShard, corpus_shards
from pipeline_assets.corpus.document import DocumentText
from pipeline_assets.corpus.document_shards import DocumentShard, read_documents
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter, read_structs
from pipeline_assets.corpus.packing.hashed_order import hashed_order
from pipeline_assets.corpus.tokens import trained_tokenizer
from pipeline_assets.corpus.tokens.describe import CHECKSUM
from pipeline_assets.corpus.tokens.families import TokenizerFile, load_tokenizer
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, load_encoder
from pipeline_assets.corpus.tokens.tokenizer import FileTokenizerRecipe, Tokenizer
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings, limit_workers, run_stage
from pipeline_assets.spine.errors import RetryableError, key
from pipeline_assets.spine.files import seeded_rank
from pipeline_assets.spine.ledger import Ledger, Reject, count_rejects, dropped_key
from pipeline_assets.spine.stage import KILLED_WORKER, Window
from pipeline_assets.spine.staging import WORK, Receipt, StagingDir, StagingView, total_counts

_UNKNOWN = 0  # the id that the trainer gives what has no piece
_MEASURED_BYTES = 2_000_000  # of each corpus
_SAMPLE, _HELD_OUT = "sample", "held_out"
_decoder = msgspec.json.Decoder(DocumentText)
_encoder = msgspec.json.Encoder()
logger = logging.getLogger("corpusmill")


@dataclass(frozen=True)
class Rate:
    """Of which documents of a corpus the sample is made: ranks below `sample`; figures: those below `held_out`, but for
    the sample's; ranks are below 2^64.
    """

    sample: int
    held_out: int


def _rates(corpora: Mapping[str, Artifact], recipe: trained_tokenizer.TrainRecipe) -> dict[str, Rate]:
    rates = {}
    for name, share in recipe.sources.items():
        available = max(corpora[name].manifest.identity.counts["text_bytes"], 1)
        sample = min(Fraction(share) * recipe.sample_bytes / available, Fraction(1))
        held_out = min(sample + Fraction(_MEASURED_BYTES, available), Fraction(1))
        rates[name] = Rate(int(sample * 2**64), int(held_out * 2**64))
    return rates


def draw_shard(
    shard: DocumentShard, window: Window, folder: StagingView, rates: Mapping[str, Rate], seed: str, zstd_level: int
) -> Receipt:
    """Texts of a shard's documents that are drawn, as JSON strings. Files: the sample's; those held out for figures.

    Args:
        rates: by the source, which the shard's path begins with.
    """
    rate, rejects = rates[shard.path.partition("/")[0]], list[Reject]()
    names = [f"{WORK}/{part}/{shard.name}{SUFFIX}" for part in (_SAMPLE, _HELD_OUT)]
    counts = {"rows": 0, "documents": 0, "bytes": 0}
    with (
        JsonlZstWriter(folder.path(names[0]), zstd_level) as sample,
        JsonlZstWriter(folder.path(names[1]), zstd_level) as held_out,
    ):
        for documents, fatal in read_documents(shard, window, _decoder):
            counts["rows"] += len(documents) + len(fatal)
            rejects += [Reject(shard.path, row, KILLED_WORKER) for row in fatal]
            for _, document in documents:
                place = int.from_bytes(seeded_rank(seed, document.doc_id)[:8], "big")
                if place < rate.sample:
                    counts["documents"] += 1
                    counts["bytes"] += len(document.text.encode())
                    sample.write_lines(_encoder.encode(document.text) + b"\n", 1)
                elif place < rate.held_out:
                    held_out.write_lines(_encoder.encode(document.text) + b"\n", 1)
    counts[dropped_key("not_drawn")] = counts["rows"] - counts["documents"] - len(rejects)
    files = [sample.output(names[0]), held_out.output(names[1])]
    return Receipt(files, counts | dict(count_rejects(rejects)))


def train_tokenizer(
    building: StagingDir, corpora: Mapping[str, Artifact], recipe: trained_tokenizer.TrainRecipe, settings: RunSettings
) -> BuildResult:
    """The files that the module names. Memory: about `MEMORY_A_BYTE` times the sample.

    Args:
        corpora: of Documents, by the names that the recipe has shares of.
    Raises:
        RetryableError: this machine has not enough memory for the sample.
        UsageError, InputError: as `train_unigram`.
    """
    shards = corpus_shards({name: corpora[name] for name in sorted(recipe.sources)})  # a manifest sorts its keys
    to_draw = [DocumentShard(one.name, f"{one.source}/{one.path}", one.file, one.rows) for one in shards]
    work = functools.partial(
        draw_shard, rates=_rates(corpora, recipe), seed=recipe.seed, zstd_level=settings.zstd_level
    )
    settings = limit_workers(building, settings, [shard.file.stat().st_size for shard in to_draw])
    receipts = list(run_stage("draw", work, to_draw, building, settings))
    counts = total_counts(receipts)
    _refuse_beyond_memory(counts["bytes"], building.target)
    lines = [line for text in _drawn(building, receipts, 0) for line in text.split("\n")]
    seed = int.from_bytes(seeded_rank(recipe.seed)[:4], "big")
    in_order = (lines[place] for place in hashed_order(len(lines), seed, "lines"))
    trained = trained_tokenizer.train_unigram(in_order, recipe)
    del lines
    sha256, name = hashlib.sha256(trained.model).hexdigest(), trained_tokenizer.model_name(recipe.vocab_size)
    files = [building.write(name, trained.model)]
    file = FileTokenizerRecipe(family="sentencepiece", sha256=sha256, end_of_document=trained_tokenizer.END_OF_DOCUMENT)
    tokenizer = load_tokenizer(TokenizerFile(file, building.path(name)))
    by_corpus = {
        corpus: {"share": recipe.sources[corpus], "sample_bytes": total_counts(of_corpus)["bytes"]}
        | measured(tokenizer, _measured_texts(building, of_corpus), settings.vocabulary)
        for corpus, of_corpus in _by_source(shards, receipts)
    }
    figures: dict[str, Any] = {
        "model": name,
        "sha256": sha256,
        "vocab_size": recipe.vocab_size,
        "end_of_document": trained_tokenizer.END_OF_DOCUMENT,
        "sample": {"documents": counts["documents"], "bytes": trained.text_bytes, "lines": trained.lines}
        | {"lines_cut": trained.cut, "lines_dropped": 0},
        "corpora": by_corpus,
    }
    checksum = {"file": name, "sha256": sha256, "bytes": len(trained.model)}
    files += [
        building.write(name.replace(".model", ".vocab"), _vocabulary(building.path(name))),
        building.write(CHECKSUM, msgspec.json.format(msgspec.json.encode(checksum), indent=1) + b"\n"),
        building.write(trained_tokenizer.FIGURES, msgspec.json.format(msgspec.json.encode(figures), indent=1) + b"\n"),
    ]
    decisions = {name: figures[name] for name in ("model", "sha256", "vocab_size", "end_of_document")}
    drawn = {name: one["sample_bytes"] for name, one in by_corpus.items()}
    told = {"ledger": Ledger.from_counts(counts).to_json(), "drawn_bytes": drawn, "lines": trained.lines}
    return BuildResult(files, told, decisions)


def _by_source(shards: Sequence[CorpusShard], receipts: Sequence[Receipt]) -> Iterator[tuple[str, list[Receipt]]]:
    pairs = zip(shards, receipts, strict=True)
    for source, of_source in itertools.groupby(pairs, key=lambda pair: pair[0].source):
        yield source, [receipt for _, receipt in of_source]


def _drawn(building: StagingDir, receipts: Sequence[Receipt], part: int) -> Iterator[str]:
    for receipt in receipts:
        yield from read_structs(building.path(receipt.files[part].path), str)


def _measured_texts(building: StagingDir, receipts: Sequence[Receipt]) -> list[str]:
    """Texts that the model didn't see; where all of a corpus is in the sample, the first of these."""
    part = 1 if any(receipt.files[1].rows for receipt in receipts) else 0
    texts, size = list[str](), 0
    for text in _drawn(building, receipts, part):
        texts.append(text)
        size += len(text.encode())
        if size >= _MEASURED_BYTES:
            break
    return texts


def measured(tokenizer: Tokenizer, texts: Sequence[str], vocabulary: Path | None = None) -> dict[str, Any]:
    """What a tokenizer makes of texts, beside o200k: bytes per token; tokens per word that blanks part (fertility,
    Rust et al. 2021, arXiv 2012.15613); of its tokens the share that is unknown; of texts the share that its tokens
    give back to the letter.
    """
    size, words = sum(len(text.encode()) for text in texts), sum(len(text.split()) for text in texts)
    own = tokenizer.encode(texts)
    unknown = int((own.ids == _UNKNOWN).sum())
    same = sum(tokenizer.decode(ids) == text for ids, text in zip(own.each(), texts, strict=True))
    other = load_encoder(VOCABULARY_SHA256, vocabulary).encode(texts)
    return {
        "measured_bytes": size,
        "round_trip": _quotient(same, len(texts)),
        "bytes_per_token": _quotient(size, len(own.ids)),
        "tokens_per_word": _quotient(len(own.ids), words),
        "unknown_rate": f"{unknown / max(len(own.ids), 1):.6f}",
        "o200k_bytes_per_token": _quotient(size, len(other.ids)),
        "o200k_tokens_per_word": _quotient(len(other.ids), words),
    }


def _quotient(part: int, of: int) -> str:
    return f"{part / max(of, 1):.4f}"


def _refuse_beyond_memory(sample_bytes: int, where: object) -> None:
    needed = trained_tokenizer.MEMORY_A_BYTE * sample_bytes
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    logger.info("training on %s bytes takes about %.1f GiB of memory", f"{sample_bytes:,}", needed / 2**30)
    if needed > there:
        what = f"training on {sample_bytes:,} bytes takes about {needed:,} bytes of memory, and there are {there:,}"
        raise RetryableError(what, where, f"lower {key('tokenizer.sample_bytes')}, or take a larger machine")


def _vocabulary(model: Path) -> bytes:
    """A line a piece, in the order of ids, and its score, as the trainer writes such files."""
    import sentencepiece

    library = sentencepiece.SentencePieceProcessor(model_file=str(model))
    pieces = (f"{library.id_to_piece(one)}\t{library.get_score(one):g}\n" for one in range(library.get_piece_size()))
    return "".join(pieces).encode()
