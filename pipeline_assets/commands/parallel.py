"""The commands of `parallel`, which sample, encode and inspect sentence pairs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline_assets.build.recipe_paths import recipe_path
from pipeline_assets.build.recipe_writing import restore_if_refused
from pipeline_assets.commands.build import BuildOptions
from pipeline_assets.commands.inputs import folder_or_commit, slugify
from pipeline_assets.commands.options import RecipeContent, SectionOptions, is_typed
from pipeline_assets.commands.terminal import AsJson, Root, align, explain_recipe_keys, print_answer
from pipeline_assets.corpus.parallel_text.encode_recipe import EncodeRecipe
from pipeline_assets.corpus.parallel_text.pair_model import MODEL_HINT, parse_model
from pipeline_assets.corpus.parallel_text.sample import SAMPLE_FILE, SampleRecipe, read_sample
from pipeline_assets.corpus.parallel_text.token_cache import open_cache
from pipeline_assets.corpus.tokens.losses import losses_to_provenance
from pipeline_assets.corpus.tokens.sealed_losses import read_losses
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.files import file_sha256
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.spine.recipe_yaml import read_yaml
from pipeline_assets.systems.parallel_text import SAMPLE, TOKEN_CACHE, ParallelRecipe

ParallelRecipeName = Annotated[str, typer.Argument(metavar="RECIPE", help="Name or path of a recipe of parallel text.")]
_DEFAULT_FILES, _DEFAULT_SPLITS = ["fr-en/{split}-*.parquet"], ["train", "validation"]


def sample(
    sample_keys: Annotated[RecipeContent, SectionOptions(SampleRecipe)],
    dataset: Annotated[
        str, typer.Option(help="owner/name on the hub, or a folder with the same layout.")
    ] = "wmt/wmt14",
    files: Annotated[list[str], typer.Option(help="Pattern of files with {split}; repeatable.")] = _DEFAULT_FILES,
    split: Annotated[list[str], typer.Option(help="Split to read; repeatable, in order.")] = _DEFAULT_SPLITS,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit. Default: main.")] = None,
    *,
    options: BuildOptions,
) -> None:
    """Draw a sample of a translation dataset, and split it.

    By default, the sample has 120 pairs of WMT14 fr-en. Its splits are train, val and test.

    Example: corpusmill parallel sample --dataset my/pairs --src de --tgt en --split train --files '{split}-*'
    """
    run = options.run
    keys = folder_or_commit(run.require_hub("pairs"), dataset, "--dataset", revision)
    keys = keys if "path" in keys else {"dataset": dataset, **keys}
    source: RecipeContent = {"splits": split, "files": files, **keys}
    languages = sample_keys["languages"]
    if not (set_name := slugify(Path(keys.get("path", dataset)).name)):
        what = "the folder names the recipe, so its name must contain an ASCII letter or digit"
        raise UsageError(what, dataset, "rename it")
    name = slugify(f"{set_name}-{languages['src']}-{languages['tgt']}")
    content: RecipeContent = {"system": "parallel_text", "name": name, "source": source, "sample": sample_keys}
    path = run.root / "recipes" / f"{name}.yaml"
    existing: RecipeContent = read_yaml(path) if path.exists() else {}
    if existing == content | {"encode": existing.get("encode")}:  # the same sample, which `encode` extended
        content = existing
    options.build_recipe(ParallelRecipe, content)


def encode(
    recipe: ParallelRecipeName,
    encode_keys: Annotated[RecipeContent, SectionOptions(EncodeRecipe)],
    spm_model: Annotated[Path | None, typer.Option(help="SentencePiece model. Default: train one.")] = None,
    *,
    options: BuildOptions,
) -> None:
    """Encode a sample's pairs with a trained or an external model.

    Example: corpusmill parallel encode wmt14-fr-en --seq-len 128 --out-dir out
    """
    run = options.run
    path = recipe_path(recipe, run.root)
    content: dict[str, Any] = read_yaml(path)
    with explain_recipe_keys(path):
        name = ParallelRecipe.from_mapping(content, path).name
    if spm_model is not None:
        if not spm_model.is_file():
            raise UsageError("file not found", spm_model, MODEL_HINT)
        if is_typed("vocab_size"):
            raise UsageError("cannot be combined with --spm-model", "--vocab-size", "omit it")
        encode_keys.pop("vocab_size", None)
        parse_model(spm_model.read_bytes(), spm_model)
        encode_keys |= {"model": str(spm_model.absolute()), "model_sha256": file_sha256(spm_model)}
    with restore_if_refused(run.root, name, "encode.vocab_size"):
        options.build_recipe(ParallelRecipe, content | {"encode": encode_keys})


def inspect(recipe: ParallelRecipeName, data: Root = Path("data"), as_json: AsJson = False) -> None:
    """Show a sample, its tokens, and the padding of its batches.

    Example: corpusmill parallel inspect wmt14-fr-en --data out
    """
    from pipeline_assets.corpus.parallel_text.batches import Order, padding_share

    parallel = ParallelRecipe.read(recipe_path(recipe, data))
    drawn = read_sample(data / parallel.target(SAMPLE.name).folder / SAMPLE_FILE)
    first_pairs = drawn.pairs[:3]
    content: dict[str, Any] = {"sample": drawn.meta, "pairs": [(pair.src_text, pair.tgt_text) for pair in first_pairs]}
    pairs, rows = pluralize(drawn.meta.k, "pair"), pluralize(drawn.meta.rows_seen, "row")
    lines = [f"{pairs} of {rows}: {_list_counts(drawn.meta.split_sizes)}"]
    lines += align([(pair.split, pair.src_text, pair.tgt_text) for pair in first_pairs])
    if parallel.encode is not None:
        folder = data / parallel.target(TOKEN_CACHE.name).folder
        cache, losses = open_cache(folder), read_losses(open_artifact(folder).manifest) or {}
        lengths = cache.lengths("pair")[cache.pair_numbers("train")]
        waste = {
            name: round(padding_share(lengths, [step[0] for step in order.steps(lengths, 0)]), 4)
            for name, order in (("random", Order()), ("bucketed", Order(bucket_steps=20)))
        }
        content |= {"cache": cache.meta, "pad_waste": waste, **losses_to_provenance(losses)}
        lines += [
            f"{cache.meta.vocab_size:,} pieces; tokens: {_list_counts(cache.meta.tokens)}",
            f"pairs cut: {_list_counts(cache.meta.truncated)}",
            f"padding in batches of 16: {waste['random']:.1%} in random order, {waste['bucketed']:.1%} in buckets",
            *(f"{side}: {lost}" for side, lost in losses.items()),
        ]
    print_answer(as_json, content, lines)


def _list_counts(counts: Mapping[Any, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())
