"""System with one Kind: token shards of a stage A corpus."""

from pipeline_assets.build.build_target import build_target
from pipeline_assets.build.checks import FILES_CHECK
from pipeline_assets.build.rows.token_rows import TokenShardRows
from pipeline_assets.build.run import Run
from pipeline_assets.build.target import Kind, Target
from pipeline_assets.corpus.corpus_shard import corpus_shards
from pipeline_assets.corpus.packing.recipe import TOKENIZER_FILE_KEY
from pipeline_assets.corpus.shards.mixture_figures import preview_token_shards
from pipeline_assets.corpus.shards.recipe import SHARDS_STAGE, ShardsRecipe
from pipeline_assets.corpus.shards.shard_corpus import shard_corpus
from pipeline_assets.corpus.tokens.families import TokenizerFile
from pipeline_assets.corpus.tokens.pinned_file import FileTokenizerRecipe
from pipeline_assets.spine.artifact import Artifact, open_artifact

MODEL = "tokenizer.model"  # below the data root


def _build(target: Target, run: Run) -> Artifact:
    recipe = ShardsRecipe.from_content(target.recipe["shards"])
    tokenizer = TokenizerFile(FileTokenizerRecipe.from_content(target.tokenizer or {}), run.root / MODEL)
    corpora = {corpus.partition or corpus.name: open_artifact(run.root / corpus.folder) for corpus in target.upstream}

    def make(building):
        result = shard_corpus(building, corpus_shards(corpora), recipe, tokenizer, run.settings)
        result.provenance[TOKENIZER_FILE_KEY] = MODEL
        return result

    return build_target(target, run.root, make, False, {})


SHARDS = Kind(
    "made/token_shards",
    SHARDS_STAGE,
    _build,
    "Token shards.",
    (FILES_CHECK,),
    row_store_class=TokenShardRows,
    preview=preview_token_shards,
)
RECIPE = None
KINDS = (SHARDS,)
