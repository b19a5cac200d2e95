"""The commands of `stage-a` that read, normalize and filter sources."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from pipeline_assets.build.recipe_paths import recipe_path
from pipeline_assets.build.recipe_writing import copy_recipe
from pipeline_assets.build.run import open_hub
from pipeline_assets.commands.build import BuildOptions, OutDir, build_recipe
from pipeline_assets.commands.inputs import (
    Inputs,
    folder_and_patterns,
    hub_source_section,
    join_names,
    resolve_commit,
    slugify,
)
from pipeline_assets.commands.lines import artifact_lines
from pipeline_assets.commands.options import RecipeContent, SectionOptions, SetsKeys
from pipeline_assets.commands.terminal import AsJson, echo, join_first, log_to_stderr, print_answer, print_lines
from pipeline_assets.corpus.filters.recipe import FilterRecipe
from pipeline_assets.corpus.licences import UNKNOWN, licence_table
from pipeline_assets.corpus.normalize.sources import HubSource, LocalSource, StackExchangeSource, Step, WikipediaSource
from pipeline_assets.corpus.readers.hub_configs import matching_configs, read_configs
from pipeline_assets.corpus.readers.source_folder import list_files
from pipeline_assets.corpus.readers.stackexchange.archive import OtherTableError, site_host
from pipeline_assets.corpus.tokens.o200k_harmony import HarmonyRecipe
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.key_types import SHARD_TEXT_BYTES
from pipeline_assets.spine.manifest import MANIFEST_FILE
from pipeline_assets.spine.recipe_yaml import read_yaml
from pipeline_assets.systems.stage_a import NORMALIZED, RAW, StageARecipe, manifest_copy_path

NORMALIZED_DIR = "stage_a/normalized"
_REJECT_LIMIT_KEY = "max_reject_fraction"
# Datasets with a short name, each with its default config.
_DATASET_BY_SHORT_NAME = {
    "fineweb-edu": ("HuggingFaceFW/fineweb-edu", "default"),
    "fineweb-2": ("HuggingFaceFW/fineweb-2", "eng_Latn"),
    "fineweb2": ("HuggingFaceFW/fineweb-2", "eng_Latn"),
}


def hf_configs(
    dataset: Annotated[str, typer.Option(help="owner/name, fineweb-edu or fineweb-2.")],
    lang: Annotated[str | None, typer.Option(help="ISO 639-3 code, matched exactly: eng.")] = None,
    script: Annotated[str | None, typer.Option(help="ISO 15924 code, matched exactly: Latn.")] = None,
    contains: Annotated[str | None, typer.Option("--contains", "--filter", help="Part of a config's name.")] = None,
    revision: Annotated[str, typer.Option(help="Branch, tag or commit.")] = "main",
    out_dir: OutDir = Path("data"),
    as_json: AsJson = False,
) -> bool:
    """List a dataset's configs by language and script, matched exactly.

    Exit status 1: no config matches.

    Example: corpusmill stage-a hf-configs --dataset fineweb-2 --lang asm --script Beng
    """
    log_to_stderr()
    hub, (repo, _) = open_hub(out_dir.absolute(), os.environ), _resolve_short_name(dataset, "--dataset")
    commit = hub.resolve(repo, revision)
    configs = read_configs(hub, repo, commit)
    if not configs:
        raise UsageError("the dataset's card lists no configs", f"{repo}@{commit}", "name its files in a recipe")
    matches = configs if lang is None and script is None else matching_configs(configs, lang, script)
    if contains is not None:
        matches = [config for config in matches if contains.lower() in config.name.lower()]
        names = [config.name for config in matches if config.language not in (None, contains.lower())]
        if names:
            what = f"{contains!r} also occurs in names of other languages: {join_first(names, 5)}"
            echo(f"warning: {what}; use --lang", err=True)
    rows = [{"name": config.name, "language": config.language, "script": config.script} for config in matches]
    if not as_json:
        echo(f"{repo}@{commit}: {len(matches)} of {len(configs)} configs", err=True)
    print_answer(as_json, {"dataset": repo, "commit": commit, "configs": rows}, [config.name for config in matches])
    return bool(matches)


def hf_stream(
    source: Annotated[
        list[str], typer.Option(help="owner/name, fineweb-edu or fineweb-2; repeatable."), SetsKeys("sources.0.source")
    ],
    source_keys: Annotated[
        RecipeContent,
        SectionOptions(HubSource, ("config", "revision", "amount.documents", "rules", "seed", _REJECT_LIMIT_KEY)),
    ],
    options: BuildOptions,
) -> None:
    """Read samples of hub datasets, each at one commit.

    Example: corpusmill stage-a hf-stream --source fineweb-2 --config-name deu_Latn --out-dir out
    """
    hub, config = open_hub(options.out_dir.absolute(), os.environ), source_keys.get("config")
    sections = []
    for name in source:
        repo, default = _resolve_short_name(name, "--source")
        commit = resolve_commit(hub, repo, source_keys["revision"])
        section = hub_source_section(
            hub, repo, config or default, commit, source_keys["amount"], source_keys["rules"], source_keys["seed"]
        )
        sections.append(section | {key: source_keys[key] for key in source_keys if key == _REJECT_LIMIT_KEY})
    name = join_names([*(repo.rpartition("/")[2] for repo in source), *([config] if config else [])])
    _build_sources(options, name, sections)


def _resolve_short_name(name: str, option: str) -> tuple[str, str]:
    """Resolve a dataset's name or short name; return the full name and default config."""
    if name not in _DATASET_BY_SHORT_NAME and name.count("/") != 1:
        fix = f"pass owner/name, {' or '.join(_DATASET_BY_SHORT_NAME)}"
        raise UsageError(f"must be a dataset, got {name!r}", option, fix)
    return _DATASET_BY_SHORT_NAME.get(name, (name, "default"))


def ingest_manifest(
    manifest: Annotated[str, typer.Option(help="Name or path of a stage A recipe.")], options: BuildOptions
) -> None:
    """Normalize every source of a recipe.

    Example: corpusmill stage-a ingest-manifest --manifest stage_a_v1 --out-dir out
    """
    path = recipe_path(manifest, options.out_dir)
    recipe = StageARecipe.read(path)
    kinds = {RAW.name, NORMALIZED.name}
    recipe.check_prerequisites(options.out_dir, [target for target in recipe.targets() if target.kind.name in kinds])
    path = copy_recipe(path, recipe.name, options.out_dir, options.replace)
    print_lines([f"recipe {path}"], err=True)
    build_recipe(recipe, path, options.run, kinds=kinds, strict=options.strict, format_lines=_source_lines)


def ingest_wikipedia(
    input: Inputs, source_keys: Annotated[RecipeContent, SectionOptions(WikipediaSource)], options: BuildOptions
) -> None:
    """Read the output of wikiextractor: <doc> elements or JSON lines.

    Example: corpusmill stage-a ingest-wikipedia --input extracted --dump-date 2026-11-01 --out-dir out
    """
    if source_keys["dump_date"] is not None and source_keys["license_tag"] is not None:
        fix = "pass only --dump-date, which determines the licence, or only --license"
        raise UsageError("--dump-date excludes --license", "stage-a ingest-wikipedia", fix)
    if source_keys["dump_date"] is None and source_keys["license_tag"] is None:
        source_keys["license_tag"] = UNKNOWN
        print_lines(["warning: the licence is unknown without --dump-date or --license"], err=True)
    _build_sources(options, source_keys["source"], [_files_section("wikipedia", input, "**/wiki_*") | source_keys])


def ingest_stackexchange(
    input: Inputs, source_keys: Annotated[RecipeContent, SectionOptions(StackExchangeSource)], options: BuildOptions
) -> None:
    """Read Posts.xml files or .7z dumps; each site is one source.

    Example: corpusmill stage-a ingest-stackexchange --input 'dumps/*.7z' --out-dir out
    """
    sections, errors = [], list[OtherTableError]()
    for file in list_files(*folder_and_patterns(input, "Posts.xml")):
        try:
            host = site_host(file.path)
        except OtherTableError as error:
            errors.append(error)
            continue
        section = {"kind": "stackexchange", "path": str(file.path.parent), "files": [file.path.name]}
        sections.append(section | {"source": host, "host": host} | source_keys)
    if errors and not sections:
        raise errors[0]
    print_lines((f"left out: {error.where}: {error.what}" for error in errors), err=True)
    _build_sources(options, "stackexchange", sections)


def normalize(
    input: Inputs, source_keys: Annotated[RecipeContent, SectionOptions(LocalSource)], options: BuildOptions
) -> None:
    """Read local files of rows or texts, compressed or not.

    Example: corpusmill stage-a normalize --input 'notes/*.jsonl' --out-dir out --domain books --source notes
    """
    section = _files_section("local", input, "**/*") | source_keys
    section["license_tag"] = licence_table().require_tag(source_keys["license_tag"], "--license")
    normalized = options.out_dir.absolute() / NORMALIZED_DIR / source_keys["source"]
    if Path(section["path"]).resolve().is_relative_to(normalized.resolve()):
        _print_normalized(open_artifact(normalized), section)
    else:
        _build_sources(options, source_keys["source"], [section])


def _print_normalized(source: Artifact, section: RecipeContent) -> None:
    """Print the summary lines of a source that is already normalized.

    Raise UsageError if --domain or --license in `section` contradicts the recipe of `source`.
    """
    recipe = source.manifest.identity.recipe
    for key, option in (("domain", "--domain"), ("license_tag", "--license")):
        if section[key] not in (recipe.get(key), UNKNOWN):
            what = f"the documents are sealed with {recipe.get(key)!r}, got {section[key]!r}"
            raise UsageError(what, option, f"pass {option} {recipe.get(key)}, or another name as --source")
    print_lines([f"{source.folder} is normalized already"], err=True)
    print_lines(_source_lines(source))


def filter(
    filters: Annotated[Path, typer.Option(help="YAML file with the `filters` of a source.")],
    recipe_keys: Annotated[RecipeContent, SectionOptions(StageARecipe, ("refuse_licences",))],
    options: BuildOptions,
    source: Annotated[list[str] | None, typer.Option(help="Filter only this source; repeatable.")] = None,
) -> None:
    """Filter the normalized sources in --out-dir.

    Example: corpusmill stage-a filter --filters web.yaml --out-dir out
    """
    normalized = options.out_dir / NORMALIZED_DIR
    names = sorted(path.parent.name for path in normalized.glob(f"[!.]*/{MANIFEST_FILE}"))  # without leftovers
    if not names:
        fix = "normalize a source first, with the same --out-dir: see corpusmill stage-a --help"
        raise UsageError("no normalized sources found", normalized, fix)
    content = read_yaml(filters, "filter file")
    FilterRecipe.from_mapping(content, filters)
    sections = [{"kind": "normalized", "source": name, "filters": content} for name in source or names]
    _build_sources(options, f"filter-{filters.stem}", sections, "filtered", recipe_keys["refuse_licences"])


def _build_sources(
    options: BuildOptions,
    name: str,
    sections: Sequence[RecipeContent],
    last_step: Step = "normalized",
    refuse_licences: Sequence[str] = (),
) -> None:
    content = stage_a_recipe(slugify(name), sections, last_step, refuse_licences)
    options.build_recipe(StageARecipe, content, _source_lines)


def _source_lines(artifact: Artifact) -> Iterator[str]:
    yield from artifact_lines(artifact)
    if artifact.manifest.kind == NORMALIZED.name:
        yield f"  {manifest_copy_path(artifact.folder)}"


def _files_section(kind: str, inputs: Sequence[str], folder_pattern: str) -> RecipeContent:
    folder, patterns = folder_and_patterns(inputs, folder_pattern)
    return {"kind": kind, "path": str(folder), "files": patterns}


def stage_a_recipe(
    name: str, sources: Sequence[RecipeContent], last_step: Step, refuse_licences: Sequence[str] = ()
) -> RecipeContent:
    """Return the content of a stage A recipe that ends with `last_step`.

    Later steps are not in the recipe, so `status` does not report their artifacts as missing.
    """
    return {
        "system": "stage_a",
        "name": name,
        "outputs": {"normalized_dir": NORMALIZED_DIR, "up_to": last_step},
        "refuse_licences": list(refuse_licences),
        "tokenizer": HarmonyRecipe().content(),
        "shard_text_bytes": SHARD_TEXT_BYTES,
        "sources": list(sources),
    }
