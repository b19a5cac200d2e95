"""A SentencePiece tokenizer of several corpora: its sample, drawn here; the model; what it makes of each corpus' text.

Files: `spm_<vocab>_unigram.model`; `spm_<vocab>_unigram.vocab`, a line a piece, with its score; `checksum.json`, the
sha256 of the model; `tokenizer.json`, figures of the sample and of each corpus, beside those of o200k.
"""

import functools
import hashlib
import itertools
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pydantic

from pipeline_assets.corpus.dedup.corpus_shard import CorpusShard, corpus_shards
from pipeline_assets.corpus.document import DocumentText
from pipeline_assets.corpus.document_shards import DocumentShard, read_documents
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, JsonlZstWriter, read_structs
from pipeline_assets.corpus.packing.mixture import hashed_order
from pipeline_assets.corpus.sampling.weights import Weights
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.checks import Verdict
from pipeline_assets.corpus.spine.durable import make_folder, write_durably
from pipeline_assets.corpus.spine.engine import RunSettings, run_stage, settings_for
from pipeline_assets.corpus.spine.errors import RetryableError, key
from pipeline_assets.corpus.spine.files import rank
from pipeline_assets.corpus.spine.ledger import Ledger, Reject, count_rejects, dropped_key
from pipeline_assets.corpus.spine.manifest import Manifest, StageVersion
from pipeline_assets.corpus.spine.recipe import Option
from pipeline_assets.corpus.spine.sealing import WORK
from pipeline_assets.corpus.spine.staging import BuildFolder, Receipt, StagingDir, total_counts
from pipeline_assets.corpus.spine.target import BuildResult
from pipeline_assets.corpus.spine.worker import KILLED_WORKER, Window
from pipeline_assets.corpus.tokens.encode import cached_encoder
from pipeline_assets.corpus.tokens.families import CHECKSUM, FileTokenizerRecipe, TokenizerFile, load_tokenizer
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256
from pipeline_assets.corpus.tokens.tokenizer import Sha256, Tokenizer
from pipeline_assets.corpus.tokens.train_sentencepiece import MEMORY_A_BYTE, UnigramRecipe, train_unigram

TOKENIZER_STAGE = StageVersion("tokenizer", 1)
END_OF_DOCUMENT = "</s>"
_UNKNOWN = 0  # the id that the trainer gives what has no piece
FIGURES = "tokenizer.json"
MIXTURES = "mixtures"  # the folder of figures, among the artifacts of a recipe
_MEASURED_BYTES = 2_000_000  # of each corpus
_BLOCK_BYTES = 1 << 20
_SAMPLE, _HELD_OUT = "sample", "held_out"
_decoder = msgspec.json.Decoder(DocumentText)
_texts = msgspec.json.Decoder(str)
_encoder = msgspec.json.Encoder()
logger = logging.getLogger("corpusmill")


class TrainRecipe(UnigramRecipe):
    """A tokenizer, and the sample that it is trained on.

    Attributes:
        sources: of the sample's text the share of each.
        sample_bytes: of its text, UTF-8, within what chance leaves: a document is in it by the hash of seed and id.
        seed: of the draw, and of the order of lines.
        expected_sha256: of the model; with another nothing is made of it. Changes no byte.
    """

    sources: Weights
    sample_bytes: Annotated[int, Option("Bytes of text that it is trained on, about.")] = pydantic.Field(
        100_000_000, ge=1
    )
    seed: str = "1"
    expected_sha256: Sha256 | None = None

    def training_content(self) -> dict[str, Any]:
        """What the model's bytes depend on."""
        return {key: value for key, value in self.content().items() if key != "expected_sha256"}


@dataclass(frozen=True)
class ExpectedTokenizer:
    """The sha256 that a recipe asks of a model, as a demand on its artifact."""

    sha256: str
    check: str = "model_is_expected"

    def judge(self, manifest: Manifest) -> Verdict:
        """Whether the model is that one."""
        found = manifest.identity.decisions["sha256"]
        if found == self.sha256:
            return Verdict(True, f"its sha256 is {found}, as expected")
        return Verdict(False, f"its sha256 is {found}, expected {self.sha256}: correct `tokenizer.expected_sha256`")


def model_name(vocab_size: int) -> str:
    """The model's file."""
    return f"spm_{vocab_size}_unigram.model"


def trained_file(tokenizer: Artifact) -> TokenizerFile:
    """The trained tokenizer, as it is loaded."""
    decisions = tokenizer.manifest.identity.decisions
    recipe = FileTokenizerRecipe(
        family="sentencepiece", sha256=decisions["sha256"], end_of_document=decisions["end_of_document"]
    )
    return TokenizerFile(recipe, tokenizer.path(decisions["model"]))


@dataclass(frozen=True)
class Rate:
    """Of which documents of a corpus the sample is made: ranks below `sample`; figures: those below `held_out`, but for
    the sample's; ranks are below 2^64.
    """

    sample: int
    held_out: int


def _rates(corpora: Mapping[str, Artifact], recipe: TrainRecipe) -> dict[str, Rate]:
    rates = {}
    for name, share in recipe.sources.items():
        available = max(corpora[name].manifest.identity.counts["text_bytes"], 1)
        sample = min(Fraction(share) * recipe.sample_bytes / available, Fraction(1))
        held_out = min(sample + Fraction(_MEASURED_BYTES, available), Fraction(1))
        rates[name] = Rate(int(sample * 2**64), int(held_out * 2**64))
    return rates


def draw_shard(
    shard: DocumentShard, window: Window, folder: BuildFolder, rates: Mapping[str, Rate], seed: str, zstd_level: int
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
        for block in read_documents(shard, window, _decoder, _BLOCK_BYTES):
            for row, document in zip(block.rows, block.documents, strict=True):
                counts["rows"] += 1
                if document is None:
                    rejects.append(Reject(shard.path, row, KILLED_WORKER))
                    continue
                place = int.from_bytes(rank(seed, document.doc_id)[:8], "big")
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
    building: StagingDir, corpora: Mapping[str, Artifact], recipe: TrainRecipe, settings: RunSettings
) -> BuildResult:
    """The files that the module names. Memory: about `MEMORY_A_BYTE` times the sample.

    Args:
        corpora: of Documents, by the names that the recipe has shares of.
    Raises:
        RetryableError: this machine has not enough memory for the sample.
        UsageError, InputError: as `train_unigram`.
    """
    shards = corpus_shards({name: corpora[name] for name in recipe.sources})
    to_draw = [DocumentShard(one.name, f"{one.source}/{one.path}", one.file, one.rows) for one in shards]
    work = functools.partial(
        draw_shard, rates=_rates(corpora, recipe), seed=recipe.seed, zstd_level=settings.zstd_level
    )
    settings = settings_for(building, settings, sum(shard.file.stat().st_size for shard in to_draw))
    receipts = list(run_stage("draw", work, to_draw, building, settings))
    counts = total_counts(receipts)
    _refuse_beyond_memory(counts["bytes"], building.target)
    lines = [line for text in _drawn(building, receipts, 0) for line in text.split("\n")]
    trained = train_unigram((lines[place] for place in hashed_order(len(lines), _number(recipe.seed), "lines")), recipe)
    del lines
    sha256, name = hashlib.sha256(trained.model).hexdigest(), model_name(recipe.vocab_size)
    files = [building.write(name, trained.model)]
    file = FileTokenizerRecipe(family="sentencepiece", sha256=sha256, end_of_document=END_OF_DOCUMENT)
    tokenizer = load_tokenizer(TokenizerFile(file, building.path(name)))
    figures = {
        "model": name,
        "sha256": sha256,
        "vocab_size": recipe.vocab_size,
        "end_of_document": END_OF_DOCUMENT,
        "sample": {"documents": counts["documents"], "bytes": trained.text_bytes, "lines": trained.lines}
        | {"lines_cut": trained.cut, "lines_dropped": 0},
        "corpora": {
            corpus: {"share": recipe.sources[corpus], "sample_bytes": total_counts(of_corpus)["bytes"]}
            | measured(tokenizer, _measured_texts(building, of_corpus))
            for corpus, of_corpus in _by_source(shards, receipts)
        },
    }
    checksum = {"file": name, "sha256": sha256, "bytes": len(trained.model)}
    files += [
        building.write(name.replace(".model", ".vocab"), _vocabulary(building.path(name))),
        building.write(CHECKSUM, msgspec.json.format(msgspec.json.encode(checksum), indent=1) + b"\n"),
        building.write(FIGURES, msgspec.json.format(msgspec.json.encode(figures), indent=1) + b"\n"),
    ]
    decisions = {name: figures[name] for name in ("model", "sha256", "vocab_size", "end_of_document")}
    told = {"ledger": Ledger.of(counts).to_json(), "sample_bytes": trained.text_bytes, "lines": trained.lines}
    return BuildResult(files, told, decisions)


def _number(seed: str) -> int:
    return int.from_bytes(rank(seed)[:4], "big")


def _by_source(shards: Sequence[CorpusShard], receipts: Sequence[Receipt]) -> Iterator[tuple[str, list[Receipt]]]:
    pairs = zip(shards, receipts, strict=True)
    for source, of_source in itertools.groupby(pairs, key=lambda pair: pair[0].source):
        yield source, [receipt for _, receipt in of_source]


def _drawn(building: StagingDir, receipts: Sequence[Receipt], part: int) -> Iterator[str]:
    for receipt in receipts:
        yield from read_structs(building.path(receipt.files[part].path), _texts)


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


def measured(tokenizer: Tokenizer, texts: Sequence[str]) -> dict[str, Any]:
    """What a tokenizer makes of texts, beside o200k: bytes per token; tokens per word that blanks part (fertility,
    Rust et al. 2021, arXiv 2012.15613); of its tokens the share that is unknown.
    """
    size, words = sum(len(text.encode()) for text in texts), sum(len(text.split()) for text in texts)
    own = tokenizer.encode(texts)
    unknown = int((own.ids == _UNKNOWN).sum())
    other = cached_encoder(VOCABULARY_SHA256, "gigatoken").encode(texts)
    return {
        "measured_bytes": size,
        "bytes_per_token": _quotient(size, len(own.ids)),
        "tokens_per_word": _quotient(len(own.ids), words),
        "unknown_rate": _quotient(unknown, len(own.ids)),
        "o200k_bytes_per_token": _quotient(size, len(other.ids)),
        "o200k_tokens_per_word": _quotient(len(other.ids), words),
    }


def _quotient(part: int, of: int) -> str:
    return f"{part / max(of, 1):.4f}"


def _refuse_beyond_memory(sample_bytes: int, where: object) -> None:
    needed = MEMORY_A_BYTE * sample_bytes
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


def preview_tokenizer(tokenizer: Artifact) -> list[dict[str, str]]:
    """A row a corpus."""
    figures = msgspec.json.decode(tokenizer.path(FIGURES).read_bytes())
    return [
        {"corpus": corpus} | {name: str(value) for name, value in of.items()}
        for corpus, of in figures["corpora"].items()
    ]


def write_tokenizer_figures(tokenizer: Artifact) -> Path:
    """A copy of the figures beside the recipe's artifacts: `mixtures/<recipe>_tokenizer.json`."""
    of_recipe = tokenizer.folder.parent
    path = of_recipe / MIXTURES / f"{of_recipe.name}_tokenizer.json"
    make_folder(path.parent)
    write_durably(path, tokenizer.path(FIGURES).read_bytes())
    return path
