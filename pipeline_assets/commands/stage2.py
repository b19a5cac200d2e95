"""The commands of `stage2` for licensed corpora, their tokenizer and token shards."""

import contextlib
import datetime
import glob
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from pipeline_assets.build.recipe import upstream_first
from pipeline_assets.build.recipe_paths import PROJECT_RECIPES_FOLDER, recipe_path
from pipeline_assets.build.recipe_pins import pin_recipe
from pipeline_assets.build.recipe_writing import copy_recipe, restore_if_refused
from pipeline_assets.build.rows.text_export import check_output_file, check_output_format, write_ndjsonl, write_txt
from pipeline_assets.build.run import Run
from pipeline_assets.commands import admin
from pipeline_assets.commands.build import BuildOptions, build_recipe, build_targets, resolve_output_folder
from pipeline_assets.commands.inputs import hub_source_section, resolve_commit, slugify
from pipeline_assets.commands.options import RecipeContent, SectionOptions, SetsKeys, is_typed, option_finder
from pipeline_assets.commands.terminal import Root, explain_recipe_keys, log_to_stderr, print_lines
from pipeline_assets.corpus.formats.compressors import plain_stem
from pipeline_assets.corpus.licences import UNKNOWN, licence_table
from pipeline_assets.corpus.normalize.sources import HubSource
from pipeline_assets.corpus.shards.inventory import take_inventory
from pipeline_assets.corpus.shards.mixture_figures import mixture_statistics
from pipeline_assets.corpus.shards.mixture_report import mixture_page
from pipeline_assets.corpus.shards.recipe import ExternalTokenizerSection
from pipeline_assets.corpus.shards.train_config import train_config as format_config
from pipeline_assets.corpus.tokens.describe import CHECKSUM_FILE
from pipeline_assets.corpus.tokens.families import TokenizerFile, load_tokenizer
from pipeline_assets.corpus.tokens.trained_tokenizer import END_OF_DOCUMENT_PIECE, FIGURES_FILE
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.damage import errors_as_damage
from pipeline_assets.spine.durable import make_folder, write_durably
from pipeline_assets.spine.errors import DeniedError, UsageError
from pipeline_assets.spine.files import file_sha256
from pipeline_assets.spine.key_types import SHARD_TEXT_BYTES, UNPINNED
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.spine.recipe_yaml import inline_yaml, read_yaml, section_at
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.systems.stage2_mixture import FILTERED, RAW_CORPUS, TOKEN_SHARDS, TOKENIZER, Stage2Recipe

DatasetName = Annotated[str, typer.Option(help="owner/name on the hub.")]
_REJECT_LIMIT_KEY = "max_reject_fraction"
_HUB_KEYS = ("config", "revision", "split", "amount.documents", "columns.text", "license_tag", _REJECT_LIMIT_KEY)
HubKeys = Annotated[RecipeContent, SectionOptions(HubSource, _HUB_KEYS)]
LogFile = Annotated[Path | None, typer.Option(help="Log file; .json receives statistics instead.")]
RecipeArgument = Annotated[str, typer.Argument(metavar="MANIFEST", help="Name or path of a recipe.")]
_DOCS_PAGE = Path("docs/stage2_mixture.md")
_STATISTICS_SUFFIX = ".json"


def _hub_section(dataset: str, hub_keys: RecipeContent, run: Run, output_file: Path | None) -> RecipeContent:
    """Return a hub source's section; the output file, or else the dataset, names it."""
    name = None if output_file is None else slugify(plain_stem(output_file.name))
    if name == "":
        what = "the file names the source, so its name must contain an ASCII letter or digit"
        raise UsageError(what, output_file, "rename it")
    hub, tag, config = run.require_hub("a dataset"), hub_keys.get("license_tag"), hub_keys.get("config", "default")
    tag = None if tag is None else licence_table().require_tag(tag, "--license")
    commit, column = resolve_commit(hub, dataset, hub_keys["revision"]), hub_keys["columns"]["text"]
    section = hub_source_section(hub, dataset, config, commit, hub_keys["amount"], (), "1", hub_keys["split"], column)
    if tag is not None:
        section["license_tag"] = tag
    elif section["license_tag"] == UNKNOWN:
        del section["license_tag"]  # the recipe then needs a licence column
    if is_typed(_REJECT_LIMIT_KEY):
        section[_REJECT_LIMIT_KEY] = hub_keys[_REJECT_LIMIT_KEY]
    return section if name is None else section | {"source": name}


def raw(
    dataset: DatasetName,
    hub_keys: HubKeys,
    output: Annotated[Path | None, typer.Option(help="Output file (.ndjsonl or .jsonl.gz); names the source.")] = None,
    *,
    options: BuildOptions,
) -> None:
    """Store rows of a hub dataset as a raw corpus with licence notes.

    README.md names the source and commit, DATASET_CARD.md is the dataset's card, and LICENSES.md counts documents by
    licence.

    Example: corpusmill stage2 raw --dataset allenai/c4 --subset en --limit 1000 --output data/raw/c4.ndjsonl
    """
    if output is not None:
        check_output_format(output, "--output", "lines")
    corpus = _build_source(options, "raw", _hub_section(dataset, hub_keys, options.run, output), RAW_CORPUS.name)
    pages = (f"  {corpus.folder / name}" for name in ("README.md", "DATASET_CARD.md", "LICENSES.md"))
    print_lines([str(corpus.folder), *pages])
    if output is not None:
        print_lines([f"{output}: {pluralize(write_ndjsonl(corpus, output), 'document')}"])


def filter(
    dataset: DatasetName,
    hub_keys: HubKeys,
    output_path: Annotated[Path, typer.Option(help="Output file (.txt), one kept document per line.")],
    min_chars: Annotated[
        int,
        typer.Option(min=0, help="Minimum characters per document."),
        SetsKeys("sources.0.filters.length.min_characters"),
    ] = 200,
    max_chars: Annotated[
        int,
        typer.Option(min=1, help="Maximum characters per document."),
        SetsKeys("sources.0.filters.length.max_characters"),
    ] = 8000,
    lang_threshold: Annotated[
        str | None,
        typer.Option(help="Minimum score of English. Default: the detector's."),
        SetsKeys("sources.0.filters.language.threshold"),
    ] = None,
    *,
    options: BuildOptions,
) -> None:
    """Filter rows of a hub dataset by repetition, length and language.

    Example: corpusmill stage2 filter --dataset allenai/c4 --subset en --limit 1000 --output-path c4.txt
    """
    check_output_format(output_path, "--output-path", "text")
    if min_chars > max_chars:
        what = f"must be at most --max-chars ({max_chars:,}), got {min_chars:,}"
        raise UsageError(what, "--min-chars", "lower it")
    language = {} if lang_threshold is None else {"threshold": lang_threshold}
    length = {"min_characters": min_chars, "max_characters": max_chars}
    filters = {"windows": {}, "length": length, "language": language}
    section = _hub_section(dataset, hub_keys, options.run, output_path) | {"filters": filters}
    corpus = _build_source(options, "filter", section, FILTERED.name)
    print_lines([str(corpus.folder), f"  {corpus.manifest.identity.ledger}"])
    print_lines([f"{output_path}: {pluralize(write_txt(corpus, output_path), 'document')}"])
    files = inline_yaml([glob.escape(output_path.name)])
    print_lines([f"  to read it in a recipe: {{kind: local, files: {files}, text_unit: line}}"])


def _build_source(options: BuildOptions, command_name: str, section: RecipeContent, kind_name: str) -> Artifact:
    name = f"{command_name}-{section['source']}"
    content = {"system": "stage2", "name": name, "shard_text_bytes": SHARD_TEXT_BYTES, "sources": [section]}
    recipe, _ = options.write_recipe(Stage2Recipe, content)
    return options.build_targets([recipe.target(kind_name, section["source"])])


def train(
    manifest: Annotated[str, typer.Option(help="Name or path of a recipe.")],
    vocab_size: Annotated[int | None, typer.Option(min=8, help="Vocabulary size. Default: the recipe's.")] = None,
    output_dir: Annotated[Path | None, typer.Option(help="Folder to copy the model and checksum to.")] = None,
    log_file: LogFile = None,
    *,
    options: BuildOptions,
) -> None:
    """Train the SentencePiece tokenizer that a recipe describes.

    Example: corpusmill stage2 tokenizer train --manifest refinedweb_mixture --vocab-size 32000
    """
    run = options.run
    if output_dir is not None:
        check_output_file(resolve_output_folder(output_dir) / CHECKSUM_FILE)
    _log_to_file(log_file)
    recipe, path = _pin_recipe_copy(manifest, run)
    if recipe.tokenizer is None or recipe.tokenizer.kind != "trained":
        fix = "use a recipe with `kind: trained` in its `tokenizer`"
        raise UsageError("the recipe does not train a tokenizer", path, fix)
    options_by_key = {} if vocab_size is None else {"tokenizer.vocab_size": "--vocab-size"}
    is_changed = vocab_size not in (None, recipe.tokenizer.vocab_size)
    name = slugify(f"{recipe.name}-{vocab_size}") if is_changed else recipe.name
    with restore_if_refused(run.root, name, "tokenizer.vocab_size"):
        if is_changed:
            changes = {"vocab_size": vocab_size, "expected_sha256": None}
            run = replace(run, find_previous_folder=recipe.folder)
            recipe, path = _write_derived_recipe(path, name, changes, options)
        with explain_recipe_keys(path, option_finder({}, options_by_key)):
            tokenizer = build_targets(upstream_first([recipe.target(TOKENIZER.name)]), run, options.strict)
    decisions = tokenizer.manifest.identity.decisions
    print_lines([str(tokenizer.path(decisions["model"])), f"  sha256 {decisions['sha256']}"])
    if output_dir is not None:
        make_folder(output_dir.absolute())
        for name in (model := decisions["model"], model.replace(".model", ".vocab"), CHECKSUM_FILE, FIGURES_FILE):
            write_durably(output_dir / name, tokenizer.path(name).read_bytes())
            print_lines([str(output_dir / name)])
    with errors_as_damage(figures := tokenizer.path(FIGURES_FILE), "table of figures"):
        statistics = {"recipe": recipe.name, **json.loads(figures.read_bytes())}
    _write_statistics(log_file, statistics)


def check(
    tokenizer_path: Annotated[Path, typer.Option(help="Tokenizer file: .model or .tiktoken.")],
    expected_sha256: Annotated[str, typer.Option(help="Pinned sha256. Default: from checksum.json.")] = "",
    metadata_json: Annotated[Path | None, typer.Option(help="Output file for the description (JSON).")] = None,
) -> None:
    """Check a tokenizer file against its pinned hash.

    Example: corpusmill stage2 tokenizer check --tokenizer-path spm_32000_unigram.model
    """
    admin.check(tokenizer_path, expected_sha256, metadata_json)


def process(
    manifest: RecipeArgument,
    tokenizer_path: Annotated[Path | None, typer.Option(help="Use this .model, not the recipe's tokenizer.")] = None,
    log_file: LogFile = None,
    *,
    options: BuildOptions,
) -> None:
    """Build a whole recipe, up to verified token shards.

    Example: corpusmill stage2 process refinedweb_mixture --out-dir out
    """
    run = options.run
    _log_to_file(log_file)
    recipe, path = _pin_recipe_copy(manifest, run)
    if tokenizer_path is not None:
        if recipe.shards is None:
            raise _no_shards_error(path)
        if not tokenizer_path.is_file():
            raise UsageError("file not found", tokenizer_path, "pass a SentencePiece .model")
        sha256 = file_sha256(tokenizer_path)
        expected = getattr(recipe.tokenizer, "expected_sha256", None) or getattr(recipe.tokenizer, "sha256", None)
        if expected not in (None, sha256):
            what = f"sha256 is {sha256}, but {recipe.name} expects {expected}"
            raise UsageError(what, tokenizer_path, "use the expected file, or correct the recipe")
        section = {
            "kind": "file",
            "family": "sentencepiece",
            "path": str(tokenizer_path.absolute()),
            "sha256": sha256,
            "end_of_document": END_OF_DOCUMENT_PIECE,
        }
        recipe_section = ExternalTokenizerSection.from_mapping(section, tokenizer_path).without_path()
        load_tokenizer(TokenizerFile(recipe_section, tokenizer_path, section="tokenizer"))
        run = replace(run, find_previous_folder=recipe.folder)
        recipe, path = _write_derived_recipe(path, f"{recipe.name}-{sha256[:8]}", section, options)
    build_recipe(recipe, path, run, strict=options.strict)
    for target in recipe.targets():
        if target.kind.after_build is not None:  # pulled artifacts, for example, lack these figures
            target.kind.after_build(open_artifact(run.root / target.folder))
    _write_statistics(log_file, mixture_statistics(run.root / "stage2" / recipe.name))


def _read_recipe(recipe_name: str, root: Path) -> tuple[Stage2Recipe, Path]:
    path = recipe_path(recipe_name, root)
    return Stage2Recipe.from_file_values(read_yaml(path), path, root), path


def _pin_recipe_copy(recipe_name: str, run: Run) -> tuple[Stage2Recipe, Path]:
    """Copy a recipe to the data root and pin its datasets; return recipe and path.

    Each unpinned dataset is pinned to its latest commit, except datasets to which the hub denies access.
    """
    recipe, source = _read_recipe(recipe_name, run.root)
    path = copy_recipe(source, recipe.name, run.root, run.replace)
    for dataset in dict.fromkeys(name for name, revision in recipe.revisions() if revision == UNPINNED):
        with contextlib.suppress(DeniedError):  # the build of this source fails with the reason
            commit = run.require_hub("a dataset").resolve(dataset)
            pin_recipe(path, dataset, commit, SYSTEMS)
            print_lines([f"{dataset} at {commit}"], err=True)
    return _read_recipe(str(path), run.root)


def _write_derived_recipe(
    path: Path, name: str, tokenizer_changes: RecipeContent, options: BuildOptions
) -> tuple[Stage2Recipe, Path]:
    """Write a copy of a recipe under a new name with a changed `tokenizer` section."""
    content: RecipeContent = read_yaml(path)
    tokenizer = content["tokenizer"] if tokenizer_changes.get("kind", "trained") == "trained" else {}
    content |= {"name": slugify(name), "tokenizer": tokenizer | tokenizer_changes}
    if not tokenizer:  # an external tokenizer needs no training corpora
        sharded = section_at(content, "shards", "sources")
        content["sources"] = [source for source in content["sources"] if source["source"] in sharded]
    return options.write_recipe(Stage2Recipe, content)


def _log_to_file(file: Path | None) -> None:
    if file is None:
        return
    check_output_file(file)
    make_folder(file.absolute().parent)
    if file.suffix != _STATISTICS_SUFFIX:
        handler = logging.FileHandler(file)
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        logging.getLogger("corpusmill").addHandler(handler)


def _write_statistics(file: Path | None, statistics: RecipeContent) -> None:
    if file is not None and file.suffix == _STATISTICS_SUFFIX:
        write_durably(file, json.dumps(statistics, indent=1, ensure_ascii=False).encode() + b"\n")
        print_lines([f"statistics {file}"], err=True)


def verify(manifest: RecipeArgument, data: Root = Path("data")) -> bool:
    """Read every token shard of a recipe and write a dated inventory.

    Exit status 1: a file differs from its manifest.

    Example: corpusmill stage2 verify refinedweb_mixture --data out
    """
    log_to_stderr()
    recipe, path = _read_recipe(manifest, data)
    inventory = take_inventory(_shard_folders(recipe, path, data))
    moment = datetime.datetime.now(datetime.UTC)
    folder, name = data / "logs", f"data_inventory_{moment:%Y-%m-%d}_{recipe.name}"
    if (folder / f"{name}.json").exists():
        name += f"_{moment:%H%M%S}"
    report, page = folder / f"{name}.json", folder / f"{name}.md"  # a name may have dots, so no `with_suffix`
    make_folder(folder)
    content = inventory.to_json() | {"recipe": recipe.name, "verified_at_utc": moment.isoformat(timespec="seconds")}
    write_durably(report, json.dumps(content, indent=1).encode() + b"\n")
    text = f"Verified on {moment:%Y-%m-%d %H:%M} UTC, for the recipe {recipe.name}.\n\n{inventory.to_markdown()}"
    write_durably(page, text.encode())
    print_lines([f"{item.corpus}: {item.file}: {item.reason}" for item in inventory.differences], err=True)
    print_lines([str(page), str(report), pluralize(len(inventory.differences), "difference")])
    return not inventory.differences


def _shard_folders(recipe: Stage2Recipe, path: Path, root: Path) -> dict[str, Path]:
    shards = (target for target in recipe.targets() if target.kind.name == TOKEN_SHARDS.name)
    folders = {target.partition or target.name: root / target.folder for target in shards}
    if not folders:
        raise _no_shards_error(path)
    return folders


def _no_shards_error(path: Path) -> UsageError:
    return UsageError("the recipe has no token shards", path, "use a recipe with `shards`")


def docs(output: Annotated[Path, typer.Option(help="Output file (Markdown).")] = _DOCS_PAGE) -> None:
    """Write the docs page on the shipped mixtures.

    Example: corpusmill stage2 docs
    """
    check_output_file(output)
    recipes = map(read_yaml, sorted(PROJECT_RECIPES_FOLDER.glob("*.yaml")))
    mixtures = [recipe for recipe in recipes if recipe["system"] == "stage2"]
    make_folder(output.absolute().parent)
    write_durably(output, mixture_page(mixtures, PROJECT_RECIPES_FOLDER.parent / "stage2", licence_table()).encode())
    print_lines([str(output)])


def train_config(manifest: RecipeArgument, data: Root = Path("data")) -> None:
    """Print a trainer's configuration for the shards, as YAML.

    Example: corpusmill stage2 train-config refinedweb_mixture --data out
    """
    recipe, path = _read_recipe(manifest, data)
    folders, weights = _shard_folders(recipe, path, data), recipe.shards.sources if recipe.shards else {}
    print_lines([format_config(folders, weights, data).rstrip("\n")])
