"""Token shards of a corpus: one stream of tokens, cut into rows.

The stream has the encoded documents in corpus order, each followed by the end-of-document token; readers shuffle the
rows. The remainder of the stream after the last whole row is dropped.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.corpus_shard import CorpusShard
from pipeline_assets.corpus.formats.arrow_columns import repeat_text, to_arrow
from pipeline_assets.corpus.formats.memmap import DOCUMENTS_FILE
from pipeline_assets.corpus.formats.npy_header import write_npy_header
from pipeline_assets.corpus.formats.parquet_tables import regroup_rows, write_table
from pipeline_assets.corpus.packing.drawn_documents import count_license_tokens
from pipeline_assets.corpus.packing.encoded_corpus import EncodedCorpus, EncodedShard, encode_corpus
from pipeline_assets.corpus.packing.recipe import TOKENIZER_FILE_KEY
from pipeline_assets.corpus.packing.token_reader import TokenReader
from pipeline_assets.corpus.shards.recipe import Dtype, ShardsRecipe
from pipeline_assets.corpus.tokens.families import TokenizerFile, load_tokenizer
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import InputError, RecipeKey, UsageError
from pipeline_assets.spine.ledger import Ledger
from pipeline_assets.spine.stage import Window, number_shards
from pipeline_assets.spine.staging import OutputFile, Receipt, StagingDir, StagingView, total_counts
from pipeline_assets.spine.task import Task

IN_REMAINDER = "in_remainder"
_COLUMNS = {
    **dict.fromkeys(("doc_id", "source", "shard"), pa.string()),
    "row": pa.int64(),
    "license_tag": pa.string(),
    "start": pa.int64(),
    "tokens": pa.int32(),
}
SCHEMA = pa.schema([pa.field(name, kind, nullable=False) for name, kind in _COLUMNS.items()])


def shard_corpus(
    staging: StagingDir,
    shards: Sequence[CorpusShard],
    recipe: ShardsRecipe,
    tokenizer: TokenizerFile,
    settings: RunSettings,
) -> BuildResult:
    """Encode a corpus into token shards.

    The files are `shard_00000.npy` and so on, shape (rows, seq_len), .npy format 1.0, C order; documents.parquet; and
    rejects.

    documents.parquet has a record for each document with tokens in the rows, in stream order: the document's id,
    source, shard, row and licence; `start`, the position of its first token in the stream (in row `start // seq_len`);
    and `tokens`, the number of its tokens, end token included. The last document may be only partly in the rows. A
    document entirely after the last row is dropped as `in_remainder`.

    The manifest has the ledger and counts. `sequences` counts rows, and `shards` counts files. `documents`, `tokens`
    and `license_tokens` count only the content of rows; `cut_documents` is 1 or 0. `remainder_tokens` counts the tokens
    in no row, and `text_bytes` the bytes of all encoded texts.

    Raises:
        UsageError: The vocabulary does not fit into the recipe's uint16 (raised before a text is encoded), the text is
            too short for one row, or the tokenizer lacks the end-of-document token.
        InputError: A shard or the tokenizer file is damaged, or the tokenizer returns an id beyond its vocabulary.
    """
    library = load_tokenizer(tokenizer)
    dtype = recipe.dtype_for(library.vocabulary_size)
    corpus = encode_corpus(shards, tokenizer, staging, settings)
    read = total_counts(corpus.receipts)
    rows, remainder = divmod(read.get("tokens", 0), recipe.seq_len)
    if not rows:
        raise _no_rows_error(shards, remainder, recipe.seq_len)
    tasks = [Task.bind(write_shard, shard, tokenizer, dtype) for shard in plan_token_shards(corpus, rows, recipe)]
    written = list(corpus.run_stage("shards", tasks, staging))
    in_rows, license_tokens = Counter(documents=0, cut_documents=0), Counter[str]()
    tables = _document_tables(corpus.shards, rows * recipe.seq_len, in_rows, license_tokens)
    files = [
        *(receipt.files[0] for receipt in written),
        write_table(staging.path(DOCUMENTS_FILE), DOCUMENTS_FILE, regroup_rows(tables, SCHEMA), SCHEMA),
        corpus.gather_rejects(staging, settings.zstd_level),
    ]
    ledger = Ledger.from_counts(read)
    in_remainder = ledger.out - in_rows["documents"]
    dropped = {IN_REMAINDER: in_remainder} if in_remainder else {}
    file = {} if tokenizer.explicit_path is None else {TOKENIZER_FILE_KEY: str(tokenizer.explicit_path)}
    return BuildResult(
        files=files,
        counts={
            "ledger": Ledger(ledger.rows_in, in_rows["documents"], dropped, ledger.rejected).to_json(),
            "documents": in_rows["documents"],
            "tokens": rows * recipe.seq_len,
            "sequences": rows,
            "shards": len(written),
            "cut_documents": in_rows["cut_documents"],
            "remainder_tokens": remainder,
            "text_bytes": read["bytes"],
            "license_tokens": dict(license_tokens),
        },
        decisions={
            "dtype": dtype,
            "seq_len": recipe.seq_len,
            "end_of_document": library.end_of_document_id,
            "vocabulary_size": library.vocabulary_size,
            "tokenizer_sha256": tokenizer.recipe.sha256,
            "tokenizer": tokenizer.recipe.content(),
        },
        provenance={**corpus.provenance, **file},
    )


def _no_rows_error(shards: Sequence[CorpusShard], tokens: int, seq_len: int) -> UsageError:
    """Return the error for a corpus whose `tokens` do not fill one row."""
    source = ", ".join(sorted({shard.source for shard in shards}))
    if not tokens:
        fix = f"add documents that `filters` and `dedup` keep, or remove {source} from this section"
        return UsageError(f"{source} has no documents to encode", RecipeKey("shards.sources"), fix)
    what = f"must be at most {tokens:,}, the number of tokens of {source}, got {seq_len:,}"
    return UsageError(what, RecipeKey("shards.seq_len"), "add text, set shorter rows, or remove the source")


class TokenRange(NamedTuple):
    """Tokens [start, stop) of an encoded shard."""

    shard: EncodedShard
    start: int
    stop: int


@dataclass(frozen=True)
class TokenShardPlan:
    """Plan of a token shard of shape (rows, seq_len), cut from ranges of the stream."""

    name: str
    shape: tuple[int, int]
    token_ranges: tuple[TokenRange, ...]
    rows: int = 0  # so that the engine does not search the shard for poison rows

    @property
    def path(self) -> str:
        return f"shard_{self.name}.npy"


def plan_token_shards(corpus: EncodedCorpus, rows: int, recipe: ShardsRecipe) -> list[TokenShardPlan]:
    """Plan token shards with `rows` rows in total, cut from the encoded shards."""
    # Position in the stream of each encoded shard's first token, and the total.
    starts = np.cumsum([0, *(receipt.counts["tokens"] for receipt in corpus.receipts)], dtype=np.int64)
    shards = []
    for name, first in number_shards(range(0, rows, recipe.rows_per_shard)):
        stop = min(first + recipe.rows_per_shard, rows)
        begin, end = first * recipe.seq_len, stop * recipe.seq_len
        # Encoded shards low to high - 1 overlap [begin, end); `bounds` cuts this range where each further shard starts.
        low, high = int(np.searchsorted(starts, begin, "right")) - 1, int(np.searchsorted(starts, end))
        bounds = [begin, *starts[low + 1 : high].tolist(), end]
        parts = zip(corpus.shards[low:high], starts[low:high].tolist(), itertools.pairwise(bounds), strict=True)
        ranges = (TokenRange(part, low - start, high - start) for part, start, (low, high) in parts if low < high)
        shards.append(TokenShardPlan(name, (stop - first, recipe.seq_len), tuple(ranges)))
    return shards


def write_shard(
    shard: TokenShardPlan, tokenizer: TokenizerFile, dtype: Dtype, window: Window, folder: StagingView
) -> Receipt:
    """Write a token shard; InputError for an id beyond the tokenizer's vocabulary."""
    vocabulary_size = load_tokenizer(tokenizer).vocabulary_size
    stored = np.dtype(dtype).newbyteorder("<")
    with DurableFile(folder.path(shard.path)) as file:
        write_npy_header(file, stored.str, shard.shape)
        for ids in _read_ranges(shard.token_ranges):
            wrong = (ids < 0) | (ids >= vocabulary_size)
            if wrong.any():
                what = f"tokenizer returned id {ids[wrong.argmax()]:,}, but its vocabulary has {vocabulary_size:,}"
                raise InputError(what, tokenizer.path, "use a tokenizer whose ids are all in its vocabulary")
            file.write(ids.astype(stored).data)
    output = OutputFile.uncompressed(shard.path, shard.shape[0], file)
    return Receipt([output], {"tokens": shard.shape[0] * shard.shape[1]})


def _read_ranges(token_ranges: Sequence[TokenRange]) -> Iterator[NDArray[np.int32]]:
    for token_range in token_ranges:
        with TokenReader(token_range.shard) as reader:
            yield from reader.read_blocks(token_range.start, token_range.stop)


def _document_tables(
    encoded_shards: Sequence[EncodedShard], row_tokens: int, counts: Counter[str], license_tokens: Counter[str]
) -> Iterator[pa.Table]:
    """Yield a table of documents.parquet for each Document shard, in order.

    The rows have the first `row_tokens` tokens. `counts` is updated: `documents` counts the documents with tokens in
    rows, and `cut_documents` a document only partly in them. `license_tokens` adds up tokens in rows by licence.
    """
    first = 0
    for shard in encoded_shards:
        table = shard.table
        starts = first + table.starts
        first += int(table.tokens.sum(dtype=np.int64))
        kept = int(np.searchsorted(starts, row_tokens))  # documents that start before the end of the last row
        starts, tokens, tags = starts[:kept], table.tokens[:kept], table.license_tags[:kept]
        in_rows = np.minimum(starts + tokens, row_tokens) - starts  # the last document may cross this end
        counts.update(documents=kept, cut_documents=int((in_rows < tokens).sum()))
        if kept:
            license_tokens.update(count_license_tokens(tags, in_rows.astype(np.int32)))
        columns = [
            table.doc_ids[:kept],
            repeat_text(shard.source, kept),
            repeat_text(shard.corpus_path, kept),
            to_arrow(table.rows[:kept]),
            tags,
            to_arrow(starts),
            to_arrow(tokens),
        ]
        yield pa.Table.from_arrays(columns, schema=SCHEMA)
