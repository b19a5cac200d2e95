"""Stage A's second page: rows of tokens, drawn of what is left in the end.

What is compiled is imported where it is used: most commands build nothing.
"""

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.formats.memmap import META
from pipeline_assets.corpus.packing.recipe import (
    PACK_STAGE,
    TOKENIZER_FILE,
    PackRecipe,
    PackSection,
    TokenizerPath,
    refuse_beyond_text,
    refuse_emptied,
    tokenizer_path,
)
from pipeline_assets.corpus.packing.summary import (
    deduplicated_before,
    draws_are_deduplicated,
    preview_packed,
    shares_reached,
)
from pipeline_assets.corpus.recipes.kind import FILES, LEDGER, Job, Kind, check, check_beside, seals_files
from pipeline_assets.corpus.rows.packed import PackedRows
from pipeline_assets.corpus.spine.target import BuildResult, Target
from pipeline_assets.corpus.trust.figures import Limit


def packed_target(section: PackSection, name: str, folder: Path, corpora: Sequence[Target], **more: Any) -> Target:
    """Rows of tokens, drawn of what corpora hold of each source."""
    path, content = section.tokenizer_path, {"pack": section.rows_content()}
    outside = None if path is None else TokenizerPath(Path(path))
    return PACKED.target(
        name, content, corpora, folder=folder, tokenizer=section.tokenizer.content(), outside=outside, **more
    )


def _pack(job: Job) -> BuildResult:
    from pipeline_assets.corpus.dedup.corpus_shard import corpus_shards
    from pipeline_assets.corpus.packing.pack_corpus import pack_corpus

    corpora, root = job.upstream_by_name(), job.run.root
    recipe = PackRecipe.from_content({**job.recipe["pack"], "tokenizer": job.target.tokenizer})
    refuse_emptied(corpora, deduplicated_before(job.upstream[0], root), recipe.weights or ())
    refuse_beyond_text(corpora, recipe)
    path = job.target.outside.path if isinstance(job.target.outside, TokenizerPath) else None
    now, file = datetime.datetime.now(datetime.UTC), None if path is None else root / path
    content = pack_corpus(job.building, corpus_shards(corpora), recipe, job.run.settings, now, file)
    if path is None:
        return content
    return replace(content, provenance={**content.provenance, TOKENIZER_FILE: str(path)})


def _rows(recipe: Mapping[str, Any]) -> Limit:
    if recipe["pack"]["num_seqs"] is None:
        return Limit("pack.num_seqs")
    tokens = recipe["pack"]["num_seqs"] * recipe["pack"]["seq_len"]
    return Limit("pack.num_seqs", tokens=tokens, passes=math.inf)  # how much of a row is padding depends on the texts


PACKED = Kind(
    "stage_a/packed",
    PACK_STAGE,
    seals_files(_pack),
    """Rows of tokens of one length, drawn of all sources by weight, and what tells where each token is from.

    Waits until all that it is drawn from is there.""",
    formats=frozenset({"numpy"}),
    rows=PackedRows,
    preview=preview_packed,
    limit=_rows,
    outside=tokenizer_path,
    labels=(META,),
    checks=(
        FILES,
        LEDGER,
        check(shares_reached, is_blocking=False),
        check_beside(draws_are_deduplicated, is_blocking=False),
    ),
)
