"""Stage `tokenizer`, which trains a tokenizer and measures it on each corpus."""

import functools
import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec

from pipeline_assets.corpus.corpus_shard import CorpusShard, corpus_shards
from pipeline_assets.corpus.document_shards import read_documents
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter, read_structs
from pipeline_assets.corpus.packing.hashed_order import hashed_order
from pipeline_assets.corpus.partial_documents import DocumentText
from pipeline_assets.corpus.tokens.describe import CHECKSUM_FILE
from pipeline_assets.corpus.tokens.families import TokenizerFile, load_tokenizer
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, load_encoder
from pipeline_assets.corpus.tokens.pinned_file import FileTokenizerRecipe
from pipeline_assets.corpus.tokens.tokenizer import Tokenizer
from pipeline_assets.corpus.tokens.trained_tokenizer import END_OF_DOCUMENT_PIECE, FIGURES_FILE, TrainRecipe, model_name
from pipeline_assets.corpus.tokens.unigram import MEMORY_PER_BYTE, train_unigram
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings, limit_workers, run_stage
from pipeline_assets.spine.errors import RetryableError
from pipeline_assets.spine.files import seeded_sort_key
from pipeline_assets.spine.ledger import Ledger, count_rejects, dropped_key
from pipeline_assets.spine.machine_memory import memory_bytes
from pipeline_assets.spine.rejects import Reject
from pipeline_assets.spine.stage import KILLED_WORKER, Window
from pipeline_assets.spine.staging import WORK_FOLDER, Receipt, StagingDir, StagingView, total_counts

_UNKNOWN_ID = 0  # the trainer's id for text without a piece
_MEASURED_BYTES = 2_000_000  # per corpus
_decoder = msgspec.json.Decoder(DocumentText)
logger = logging.getLogger("corpusmill")


def _rank_limits(corpora: Mapping[str, Artifact], recipe: TrainRecipe) -> dict[str, tuple[int, int]]:
    limits = {}
    for name, share in recipe.sources.items():
        available = max(corpora[name].manifest.identity.counts["text_bytes"], 1)
        sample = min(Fraction(share) * recipe.sample_bytes / available, Fraction(1))
        held_out = min(sample + Fraction(_MEASURED_BYTES, available), Fraction(1))
        limits[name] = int(sample * 2**64), int(held_out * 2**64)
    return limits


def draw_texts(
    shard: CorpusShard,
    window: Window,
    folder: StagingView,
    limits: Mapping[str, tuple[int, int]],
    seed: str,
    zstd_level: int,
) -> Receipt:
    """Write the texts of a shard's sampled and held-out documents as JSON strings.

    The receipt has a file of sampled texts and a file of held-out texts. A document's rank is a 64-bit hash of `seed`
    and its id. `limits` has two ranks for each source: documents with ranks below the first are sampled; other
    documents with ranks below the second are held out, for measurements.
    """
    (sample_limit, measured_limit), rejects = limits[shard.source], list[Reject]()
    names = [f"{WORK_FOLDER}/{part}/{shard.name}{SUFFIX}" for part in ("sample", "held_out")]
    counts = {"rows": 0, "documents": 0, "bytes": 0}
    with (
        JsonlZstWriter(folder.path(names[0]), zstd_level) as sample,
        JsonlZstWriter(folder.path(names[1]), zstd_level) as held_out,
    ):
        for documents, poison_rows in read_documents(shard, window, _decoder):
            counts["rows"] += len(documents) + len(poison_rows)
            rejects += [Reject(shard.path, row, KILLED_WORKER) for row in poison_rows]
            for _, document in documents:
                rank = int.from_bytes(seeded_sort_key(seed, document.doc_id)[:8], "big")
                if rank < sample_limit:
                    counts["documents"] += 1
                    counts["bytes"] += len(document.text.encode())
                    sample.write_rows([document.text])
                elif rank < measured_limit:
                    held_out.write_rows([document.text])
    counts[dropped_key("not_drawn")] = counts["rows"] - counts["documents"] - len(rejects)
    files = [sample.output(names[0]), held_out.output(names[1])]
    return Receipt(files, counts | dict(count_rejects(rejects)))


def train_tokenizer(
    staging: StagingDir, corpora: Mapping[str, Artifact], recipe: TrainRecipe, settings: RunSettings
) -> BuildResult:
    """Train a tokenizer and write the files that `trained_tokenizer` lists.

    `corpora` maps each source of `recipe.sources` to its corpus. Training needs about `MEMORY_PER_BYTE` bytes of memory
    per byte of the sample. Raise RetryableError if the machine or its container has less memory.
    """
    sources = {name: corpora[name] for name in sorted(recipe.sources)}  # as in a manifest
    shards = [shard.unnumbered for shard in corpus_shards(sources)]
    work = functools.partial(
        draw_texts, limits=_rank_limits(corpora, recipe), seed=recipe.seed, zstd_level=settings.zstd_level
    )
    settings = limit_workers(staging, settings, [shard.file.stat().st_size for shard in shards])
    receipts = list(run_stage("draw", work, shards, staging, settings))
    counts = total_counts(receipts)
    _check_memory(counts["bytes"], staging.target)
    lines = [line for text in _drawn_texts(staging, receipts, 0) for line in text.split("\n")]
    seed = int.from_bytes(seeded_sort_key(recipe.seed)[:4], "big")
    in_order = (lines[place] for place in hashed_order(len(lines), seed, "lines"))
    trained = train_unigram(in_order, recipe)
    del lines
    sha256, name = hashlib.sha256(trained.model_bytes).hexdigest(), model_name(recipe.vocab_size)
    files = [staging.write(name, trained.model_bytes)]
    file = FileTokenizerRecipe(family="sentencepiece", sha256=sha256, end_of_document=END_OF_DOCUMENT_PIECE)
    tokenizer = load_tokenizer(TokenizerFile(file, staging.path(name)))
    by_source: dict[str, list[Receipt]] = {}
    for shard, receipt in zip(shards, receipts, strict=True):
        by_source.setdefault(shard.source, []).append(receipt)
    by_corpus = {
        corpus: {"share": recipe.sources[corpus], "sample_bytes": total_counts(drawn)["bytes"]}
        | measure_tokenizer(tokenizer, _measured_texts(staging, drawn), settings.vocabulary)
        for corpus, drawn in by_source.items()
    }
    figures: dict[str, Any] = {
        "model": name,
        "sha256": sha256,
        "vocab_size": recipe.vocab_size,
        "end_of_document": END_OF_DOCUMENT_PIECE,
        "sample": {"documents": counts["documents"], "bytes": trained.text_bytes, "lines": trained.lines}
        | {"lines_cut": trained.added_lines, "lines_dropped": 0},
        "corpora": by_corpus,
    }
    checksum = {"file": name, "sha256": sha256, "bytes": len(trained.model_bytes)}
    files.append(staging.write(name.replace(".model", ".vocab"), _format_vocabulary(staging.path(name))))
    for file_name, content in ((CHECKSUM_FILE, checksum), (FIGURES_FILE, figures)):
        files.append(staging.write(file_name, msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"))
    decisions = {name: figures[name] for name in ("model", "sha256", "vocab_size", "end_of_document")}
    drawn_bytes = {corpus: values["sample_bytes"] for corpus, values in by_corpus.items()}
    manifest_counts = {"drawn_bytes": drawn_bytes, "lines": trained.lines}
    return BuildResult(files, {"ledger": Ledger.from_counts(counts).to_json(), **manifest_counts}, decisions)


def _drawn_texts(staging: StagingDir, receipts: Sequence[Receipt], file_index: int) -> Iterator[str]:
    for receipt in receipts:
        yield from read_structs(staging.path(receipt.files[file_index].path), str)


def _measured_texts(staging: StagingDir, receipts: Sequence[Receipt]) -> list[str]:
    """Return about 2 MB of held-out texts, or of sampled texts if none is held out."""
    part = 1 if any(receipt.files[1].rows for receipt in receipts) else 0
    texts, size = list[str](), 0
    for text in _drawn_texts(staging, receipts, part):
        texts.append(text)
        size += len(text.encode())
        if size >= _MEASURED_BYTES:
            break
    return texts


def measure_tokenizer(tokenizer: Tokenizer, texts: Sequence[str], o200k_file: Path | None = None) -> dict[str, Any]:
    """Measure a tokenizer on texts and compare it with o200k.

    The figures are bytes per token; tokens per word (fertility, Rust et al. 2021, arXiv 2012.15613), where whitespace
    separates words; the share of unknown tokens; and the share of texts that decoding restores exactly. For o200k, only
    bytes per token and tokens per word are measured. `o200k_file` is o200k's vocabulary; None means the shipped file.
    """
    size, words = sum(len(text.encode()) for text in texts), sum(len(text.split()) for text in texts)
    own = tokenizer.encode(texts)
    unknown = int((own.ids == _UNKNOWN_ID).sum())
    same = sum(tokenizer.decode(ids) == text for ids, text in zip(own.split(), texts, strict=True))
    other = load_encoder(VOCABULARY_SHA256, o200k_file).encode(texts)
    return {
        "measured_bytes": size,
        "round_trip": _format_quotient(same, len(texts)),
        "bytes_per_token": _format_quotient(size, len(own.ids)),
        "tokens_per_word": _format_quotient(len(own.ids), words),
        "unknown_rate": f"{unknown / max(len(own.ids), 1):.6f}",
        "o200k_bytes_per_token": _format_quotient(size, len(other.ids)),
        "o200k_tokens_per_word": _format_quotient(len(other.ids), words),
    }


def _format_quotient(numerator: int, denominator: int) -> str:
    return f"{numerator / max(denominator, 1):.4f}"


def _check_memory(sample_bytes: int, where: object) -> None:
    needed, available = MEMORY_PER_BYTE * sample_bytes, memory_bytes()
    logger.info("training on %s bytes takes about %.1f GiB of memory", f"{sample_bytes:,}", needed / 2**30)
    if needed > available:
        memory = f"about {needed:,} bytes of memory, this machine has {available:,}"
        raise RetryableError(
            f"training on {sample_bytes:,} bytes takes {memory}",
            where,
            "lower `tokenizer.sample_bytes`, or use a larger machine",
        )


def _format_vocabulary(model_file: Path) -> bytes:
    """Return a model's .vocab file: a line per piece with its score, in order of ids."""
    import sentencepiece

    library = sentencepiece.SentencePieceProcessor(model_file=str(model_file))
    ids = range(library.get_piece_size())
    pieces = (f"{library.id_to_piece(piece)}\t{library.get_score(piece):g}\n" for piece in ids)
    return "".join(pieces).encode()
