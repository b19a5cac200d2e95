"""stage2: licensed corpora, a tokenizer of them and their token shards, by recipes."""

import datetime
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from pipeline_assets.build.files import keep_recipe, pin_recipe
from pipeline_assets.build.recipe import upstream_first
from pipeline_assets.build.recipe_paths import PROJECT_RECIPES, recipe_path
from pipeline_assets.build.rows.export import refuse_folder, write_ndjsonl, write_txt
from pipeline_assets.build.run import Run
from pipeline_assets.commands import admin
from pipeline_assets.commands.build import Build, build_recipe, build_targets
from pipeline_assets.commands.inputs import hub_source, resolved, slugify
from pipeline_assets.commands.options import Content, Section, Sets
from pipeline_assets.commands.terminal import Root, log_to_stderr, naming, pluralize, print_lines
from pipeline_assets.corpus.formats.compressors import plain_stem
from pipeline_assets.corpus.licences import UNKNOWN, licence_table
from pipeline_assets.corpus.normalize.sources import HubSource
from pipeline_assets.corpus.shards.inventory import take_inventory
from pipeline_assets.corpus.shards.mixture_figures import mixture_statistics
from pipeline_assets.corpus.shards.mixture_report import mixture_page
from pipeline_assets.corpus.shards.recipe import ExternalTokenizer
from pipeline_assets.corpus.shards.train_config import train_config as config_of
from pipeline_assets.corpus.tokens.describe import CHECKSUM
from pipeline_assets.corpus.tokens.families import TokenizerFile, load_tokenizer
from pipeline_assets.corpus.tokens.trained_tokenizer import END_OF_DOCUMENT, FIGURES
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.durable import make_folder, write_durably
from pipeline_assets.spine.errors import DeniedError, UsageError
from pipeline_assets.spine.files import file_sha256
from pipeline_assets.spine.recipe_yaml import read_yaml, section_at
from pipeline_assets.spine.section import SHARD_TEXT_BYTES, UNPINNED
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.systems.stage2_mixture import FILTERED, RAW_CORPUS, TOKEN_SHARDS, TOKENIZER, Stage2Recipe

Dataset = Annotated[str, typer.Option(help="owner/name on the hub.")]
_KEYS = ("config", "revision", "split", "amount.documents", "columns.text", "license_tag")
HubRows = Annotated[Content, Section(HubSource, _KEYS)]
LogFile = Annotated[Path | None, typer.Option(help="Log of the run; a .json file gets its statistics.")]
RecipeOf = Annotated[str, typer.Argument(metavar="MANIFEST", help="Name or path of a recipe.")]
_PAGE = Path("docs/stage2_mixture.md")
_STATISTICS = ".json"


def _hub_section(dataset: str, said: Content, run: Run, output: Path | None) -> Content:
    """Return the section of a source, named by the file that its rows are written to, else by the dataset."""
    hub, tag, config = run.require_hub("a dataset"), said.get("license_tag"), said.get("config", "default")
    tag = None if tag is None else licence_table().tag_named(tag, "--license")
    commit, column = resolved(hub, dataset, said["revision"]), said["columns"]["text"]
    section = hub_source(hub, dataset, config, commit, said["amount"], (), "1", said["split"], column)
    if tag is not None:
        section["license_tag"] = tag
    elif section["license_tag"] == UNKNOWN:
        del section["license_tag"]  # the recipe then needs a column
    return section if output is None else section | {"source": slugify(plain_stem(output.name))}


def raw(
    dataset: Dataset,
    said: HubRows,
    output: Annotated[Path | None, typer.Option(help="FILE.ndjsonl or .jsonl.gz of rows; names the source.")] = None,
    *,
    build: Build,
) -> None:
    """Example: corpusmill stage2 raw --dataset allenai/c4 --subset en --limit 1000 --output data/raw/c4.ndjsonl"""
    if output is not None:
        refuse_folder(output)
    made = _build_source(build, "raw", _hub_section(dataset, said, build.run, output), RAW_CORPUS.name)
    print_lines(
        [str(made.folder), *(f"  {made.folder / name}" for name in ("README.md", "DATASET_CARD.md", "LICENSES.md"))]
    )
    if output is not None:
        print_lines([f"{output}: {pluralize(write_ndjsonl(made, output), 'document')}"])


def filter(
    dataset: Dataset,
    said: HubRows,
    output_path: Annotated[Path, typer.Option(help="FILE.txt of what stays, a document a line.")],
    min_chars: Annotated[
        int,
        typer.Option(min=0, help="Characters that a document has at least."),
        Sets("sources.0.filters.length.min_characters"),
    ] = 200,
    max_chars: Annotated[
        int,
        typer.Option(min=1, help="Characters that it has at most."),
        Sets("sources.0.filters.length.max_characters"),
    ] = 8000,
    lang_threshold: Annotated[
        str | None,
        typer.Option(help="Least score of English; default: the detector's own."),
        Sets("sources.0.filters.language.threshold"),
    ] = None,
    *,
    build: Build,
) -> None:
    """Example: corpusmill stage2 filter --dataset allenai/c4 --subset en --limit 1000 --output-path c4.txt"""
    refuse_folder(output_path)
    if min_chars > max_chars:
        raise UsageError(f"it is {min_chars:,}, more than --max-chars", "--min-chars", "lower it")
    language = {} if lang_threshold is None else {"threshold": lang_threshold}
    length = {"min_characters": min_chars, "max_characters": max_chars}
    filters = {"windows": {}, "length": length, "language": language}
    section = _hub_section(dataset, said, build.run, output_path) | {"filters": filters}
    made = _build_source(build, "filter", section, FILTERED.name)
    print_lines([str(made.folder), f"  {made.manifest.identity.ledger}"])
    print_lines([f"{output_path}: {pluralize(write_txt(made, output_path), 'document')}"])
    print_lines([f"  a recipe reads it by {{kind: local, files: [{output_path.name}], text_unit: line}}"])


def _build_source(build: Build, step: str, section: Content, kind: str) -> Artifact:
    name = f"{step}-{section['source']}"
    content = {"system": "stage2", "name": name, "shard_text_bytes": SHARD_TEXT_BYTES, "sources": [section]}
    recipe, path = build.write(Stage2Recipe, content)
    with naming(path):
        return build.targets([recipe.target(kind, section["source"])])


def train(
    manifest: Annotated[str, typer.Option(help="Name or path of a recipe.")],
    vocab_size: Annotated[int | None, typer.Option(min=8, help="Pieces. Default: as the recipe says.")] = None,
    output_dir: Annotated[Path | None, typer.Option(help="Folder of copies of the model and its checksum.")] = None,
    log_file: LogFile = None,
    *,
    build: Build,
) -> None:
    """Example: corpusmill stage2 tokenizer train --manifest refinedweb_mixture --vocab-size 32000"""
    run = build.run
    _log_to(log_file)
    recipe, path = _pinned(manifest, run)
    if recipe.tokenizer is None or recipe.tokenizer.kind != "trained":
        raise UsageError("it trains no tokenizer", path, "give a recipe whose `tokenizer` is of kind `trained`")
    if vocab_size not in (None, recipe.tokenizer.vocab_size):
        changes = {"vocab_size": vocab_size, "expected_sha256": None}
        run = replace(run, previous_recipe=recipe)
        recipe, path = _derived(path, f"{recipe.name}-{vocab_size}", changes, build)
    with naming(path):
        made = build_targets(upstream_first([recipe.target(TOKENIZER.name)]), run, build.strict)
    decisions = made.manifest.identity.decisions
    print_lines([str(made.path(decisions["model"])), f"  sha256 {decisions['sha256']}"])
    if output_dir is not None:
        make_folder(output_dir.absolute())
        vocabulary = decisions["model"].replace(".model", ".vocab")
        for name in (decisions["model"], vocabulary, CHECKSUM, FIGURES):
            write_durably(output_dir / name, made.path(name).read_bytes())
            print_lines([str(output_dir / name)])
    _write_statistics(log_file, {"recipe": recipe.name, **json.loads(made.path(FIGURES).read_bytes())})


def check(
    tokenizer_path: Annotated[Path, typer.Option(help="A .model or .tiktoken file.")],
    expected_sha256: Annotated[str, typer.Option(help="The pinned hash; default: that in checksum.json.")] = "",
    metadata_json: Annotated[Path | None, typer.Option(help="Write what was found to this file.")] = None,
) -> None:
    """Example: corpusmill stage2 tokenizer check --tokenizer-path spm_32000_unigram.model"""
    admin.check(tokenizer_path, expected_sha256, metadata_json)


def process(
    manifest: RecipeOf,
    tokenizer_path: Annotated[Path | None, typer.Option(help="A .model in place of the recipe's tokenizer.")] = None,
    log_file: LogFile = None,
    *,
    build: Build,
) -> None:
    """Example: corpusmill stage2 process refinedweb_mixture --out-dir out"""
    run = build.run
    _log_to(log_file)
    recipe, path = _pinned(manifest, run)
    if tokenizer_path is not None:
        sha256 = _sha256_expected(recipe, tokenizer_path)
        given = {
            "kind": "file",
            "family": "sentencepiece",
            "path": str(tokenizer_path.absolute()),
            "sha256": sha256,
            "end_of_document": END_OF_DOCUMENT,
        }
        load_tokenizer(TokenizerFile(ExternalTokenizer.from_mapping(given, tokenizer_path).file(), tokenizer_path))
        run = replace(run, previous_recipe=recipe)
        recipe, path = _derived(path, f"{recipe.name}-{sha256[:8]}", given, build)
    build_recipe(recipe, path, run, strict=build.strict)
    _write_statistics(log_file, mixture_statistics(run.root / "stage2" / recipe.name))


def _sha256_expected(recipe: Stage2Recipe, file: Path) -> str:
    if not file.is_file():
        raise UsageError("there is no such file", file, "give a SentencePiece .model")
    found = file_sha256(file)
    expected = getattr(recipe.tokenizer, "expected_sha256", None) or getattr(recipe.tokenizer, "sha256", None)
    if expected not in (None, found):
        what = f"its sha256 is {found}, and {recipe.name} expects {expected}"
        raise UsageError(what, file, "give that file, or correct the recipe")
    return found


def _read(manifest: str, root: Path) -> tuple[Stage2Recipe, Path]:
    path = recipe_path(manifest, root)
    return Stage2Recipe.from_file_values(read_yaml(path), path, root), path


def _pinned(manifest: str, run: Run) -> tuple[Stage2Recipe, Path]:
    """Copy a recipe to those of the data root, and write the heads into it where it names no commits yet."""
    recipe, found = _read(manifest, run.root)
    path = keep_recipe(found, recipe.name, run.root, run.replace)
    for dataset in dict.fromkeys(name for name, revision in recipe.revisions() if revision == UNPINNED):
        try:
            commit = run.require_hub("a dataset").resolve(dataset)
            pin_recipe(path, dataset, commit, SYSTEMS)
            print_lines([f"{dataset} at {commit}"], err=True)
        except DeniedError:  # the build of this source fails with the reason
            pass
    return _read(str(path), run.root)


def _derived(path: Path, name: str, changes: Content, build: Build) -> tuple[Stage2Recipe, Path]:
    """Write a recipe like another with another tokenizer, or keys of its own changed."""
    content: Content = read_yaml(path)
    tokenizer = content["tokenizer"] if changes.get("kind", "trained") == "trained" else {}
    content |= {"name": slugify(name), "tokenizer": tokenizer | changes}
    if not tokenizer:  # a given one needs no corpora
        sharded = section_at(content, "shards", "sources")
        content["sources"] = [one for one in content["sources"] if one["source"] in sharded]
    return build.write(Stage2Recipe, content)


def _log_to(file: Path | None) -> None:
    if file is None:
        return
    refuse_folder(file)
    make_folder(file.absolute().parent)
    if file.suffix != _STATISTICS:
        handler = logging.FileHandler(file)
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        logging.getLogger("corpusmill").addHandler(handler)


def _write_statistics(file: Path | None, statistics: Content) -> None:
    if file is not None and file.suffix == _STATISTICS:
        write_durably(file, json.dumps(statistics, indent=1, ensure_ascii=False).encode() + b"\n")
        print_lines([f"statistics {file}"], err=True)


def verify(manifest: RecipeOf, data: Root = Path("data")) -> bool:
    """Example: corpusmill stage2 verify refinedweb_mixture --data out"""
    log_to_stderr()
    recipe, path = _read(manifest, data)
    taken = take_inventory(_shard_folders(recipe, path, data))
    moment = datetime.datetime.now(datetime.UTC)
    place = data / "logs" / f"data_inventory_{moment:%Y-%m-%d}_{recipe.name}"
    if place.with_suffix(".json").exists():
        place = place.with_name(f"{place.name}_{moment:%H%M%S}")
    make_folder(place.parent)
    content = taken.to_json() | {"recipe": recipe.name, "verified_at_utc": moment.isoformat(timespec="seconds")}
    write_durably(place.with_suffix(".json"), json.dumps(content, indent=1).encode() + b"\n")
    page = f"Read again on {moment:%Y-%m-%d %H:%M} UTC, for the recipe {recipe.name}.\n\n{taken.to_markdown()}"
    write_durably(place.with_suffix(".md"), page.encode())
    print_lines([f"{one.corpus}: {one.file}: {one.reason}" for one in taken.differences], err=True)
    print_lines([f"{place}.md", f"{place}.json", pluralize(len(taken.differences), "difference")])
    return not taken.differences


def _shard_folders(recipe: Stage2Recipe, path: Path, root: Path) -> dict[str, Path]:
    shards = (target for target in recipe.targets() if target.kind.name == TOKEN_SHARDS.name)
    found = {one.partition or one.name: root / one.folder for one in shards}
    if not found:
        raise UsageError("it asks for no token shards", path, "give a recipe with `shards`")
    return found


def docs(output: Annotated[Path, typer.Option(help="The page.")] = _PAGE) -> None:
    """Example: corpusmill stage2 docs"""
    recipes = [read_yaml(path) for path in sorted(PROJECT_RECIPES.glob("*.yaml"))]
    ours = [recipe for recipe in recipes if recipe["system"] == "stage2"]
    make_folder(output.absolute().parent)
    write_durably(output, mixture_page(ours, PROJECT_RECIPES.parent / "stage2", licence_table()).encode())
    print_lines([str(output)])


def train_config(manifest: RecipeOf, data: Root = Path("data")) -> None:
    """Example: corpusmill stage2 train-config refinedweb_mixture --data out"""
    recipe, path = _read(manifest, data)
    folders, weights = _shard_folders(recipe, path, data), recipe.shards.sources if recipe.shards else {}
    print_lines([config_of(folders, weights, data).rstrip("\n")])
