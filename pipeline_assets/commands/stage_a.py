"""stage-a: sources of five kinds to Documents of one schema, by recipes that are written from what is typed."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from pipeline_assets.build.files import keep_recipe
from pipeline_assets.build.recipe_paths import recipe_path
from pipeline_assets.build.run import open_hub
from pipeline_assets.commands.build import Build, OutDir, build_recipe
from pipeline_assets.commands.inputs import Inputs, folder_and_patterns, hub_source, resolved, slugify
from pipeline_assets.commands.lines import artifact_lines
from pipeline_assets.commands.options import Content, Section, Sets
from pipeline_assets.commands.terminal import AsJson, answer, echo, join_first, log_to_stderr, print_lines
from pipeline_assets.corpus.filters.recipe import FilterRecipe
from pipeline_assets.corpus.licences import UNKNOWN, licence_table
from pipeline_assets.corpus.normalize.converted import group_manifest
from pipeline_assets.corpus.normalize.sources import HubSource, LocalSource, StackExchangeSource, Step, WikipediaSource
from pipeline_assets.corpus.readers.hub_configs import matching_configs, read_configs
from pipeline_assets.corpus.readers.source_folder import list_files
from pipeline_assets.corpus.readers.stackexchange.archive import site_host
from pipeline_assets.corpus.tokens.o200k_harmony import TokenizerRecipe
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.manifest import FILE_NAME
from pipeline_assets.spine.recipe_yaml import read_yaml
from pipeline_assets.spine.section import SHARD_TEXT_BYTES
from pipeline_assets.systems.stage_a import NORMALIZED, RAW, StageARecipe

NORMALIZED_DIR = "stage_a/normalized"
_LIMIT = "max_reject_fraction"


# Datasets that have a short name, and the config where none is given.
KNOWN = {
    "fineweb-edu": ("HuggingFaceFW/fineweb-edu", "default"),
    "fineweb-2": ("HuggingFaceFW/fineweb-2", "eng_Latn"),
    "fineweb2": ("HuggingFaceFW/fineweb-2", "eng_Latn"),
}


def hf_configs(
    dataset: Annotated[str, typer.Option(help="owner/name, fineweb-edu or fineweb-2.")],
    lang: Annotated[str | None, typer.Option(help="ISO 639-3 code, matched whole: eng.")] = None,
    script: Annotated[str | None, typer.Option(help="ISO 15924 code, matched whole: Latn.")] = None,
    contains: Annotated[str | None, typer.Option("--contains", "--filter", help="A piece of the name.")] = None,
    revision: Annotated[str, typer.Option(help="Branch, tag or commit.")] = "main",
    out_dir: OutDir = Path("data"),
    as_json: AsJson = False,
) -> bool:
    """Example: corpusmill stage-a hf-configs --dataset fineweb-2 --lang asm --script Beng"""
    log_to_stderr()
    hub, (repo, _) = open_hub(out_dir.absolute(), os.environ), _known(dataset, "--dataset")
    commit = hub.resolve(repo, revision)
    configs = read_configs(hub, repo, commit)
    if not configs:
        raise UsageError("its card lists no configs", f"{repo}@{commit}", "name its files in a recipe")
    found = configs if lang is None and script is None else matching_configs(configs, lang, script)
    if contains is not None:
        found = [config for config in found if contains.lower() in config.name.lower()]
        trapped = [config.name for config in found if config.language != contains.lower()]
        if trapped:
            what = f"{contains!r} is in {len(trapped)} names whose language it is not: {join_first(trapped, 5)}"
            echo(f"warning: {what}; use --lang", err=True)
    rows = [{"name": one.name, "language": one.language, "script": one.script} for one in found]
    if not as_json:
        echo(f"{repo}@{commit}: {len(found)} of {len(configs)} configs", err=True)
    answer(as_json, {"dataset": repo, "commit": commit, "configs": rows}, [config.name for config in found])
    return bool(found)


def hf_stream(
    source: Annotated[
        list[str], typer.Option(help="owner/name, fineweb-edu or fineweb-2; repeatable."), Sets("sources.0.source")
    ],
    said: Annotated[Content, Section(HubSource, ("config", "revision", "amount.documents", "rules", "seed", _LIMIT))],
    build: Build,
) -> None:
    """Example: corpusmill stage-a hf-stream --source fineweb-2 --config-name deu_Latn --out-dir out"""
    hub, config = open_hub(build.out_dir.absolute(), os.environ), said.get("config")
    sections = []
    for name in source:
        repo, default = _known(name, "--source")
        commit = resolved(hub, repo, said["revision"])
        section = hub_source(hub, repo, config or default, commit, said["amount"], said["rules"], said["seed"])
        sections.append(section | {key: said[key] for key in said if key == _LIMIT})
    name = "-".join([*(one.rpartition("/")[2] for one in source), *([config] if config else [])])
    _build_sources(build, name, sections)


def _known(name: str, option: str) -> tuple[str, str]:
    """The dataset that a name, given with an option, stands for, and its config where none is given."""
    if name not in KNOWN and name.count("/") != 1:
        raise UsageError(f"{name!r} is no dataset", option, f"give owner/name, {' or '.join(KNOWN)}")
    return KNOWN.get(name, (name, "default"))


def ingest_manifest(
    manifest: Annotated[str, typer.Option(help="Name or path of a stage A recipe.")],
    build: Build,
) -> None:
    """Example: corpusmill stage-a ingest-manifest --manifest stage_a_v1 --out-dir out"""
    path = recipe_path(manifest, build.out_dir)
    recipe = StageARecipe.read(path)
    path = keep_recipe(path, recipe.name, build.out_dir, build.replace)
    print_lines([f"recipe {path}"], err=True)
    build_recipe(recipe, path, build.run, kinds={RAW.name, NORMALIZED.name}, strict=build.strict, lines=_lines)


def ingest_wikipedia(
    input: Inputs,
    said: Annotated[Content, Section(WikipediaSource)],
    build: Build,
) -> None:
    """Example: corpusmill stage-a ingest-wikipedia --input extracted --dump-date 2026-11-01 --out-dir out"""
    if said["dump_date"] is not None and said["license_tag"] is not None:
        what = "both --dump-date and --license are given"
        raise UsageError(what, "stage-a ingest-wikipedia", "give the dump's date, which tells its licence, or that")
    if said["dump_date"] is None and said["license_tag"] is None:
        said["license_tag"] = UNKNOWN
        print_lines(["warning: the licence is unknown: neither --dump-date nor --license is given"], err=True)
    _build_sources(build, said["source"], [_files_section("wikipedia", input, "**/wiki_*") | said])


def ingest_stackexchange(
    input: Inputs,
    said: Annotated[Content, Section(StackExchangeSource)],
    build: Build,
) -> None:
    """Example: corpusmill stage-a ingest-stackexchange --input 'dumps/*.7z' --out-dir out"""
    sections = []
    for file in list_files(*folder_and_patterns(input, "Posts.xml")):
        host = site_host(file.path)
        section = {"kind": "stackexchange", "path": str(file.path.parent), "files": [file.path.name]}
        sections.append(section | {"source": host, "host": host} | said)
    _build_sources(build, "stackexchange", sections)


def normalize(input: Inputs, said: Annotated[Content, Section(LocalSource)], build: Build) -> None:
    """Example: corpusmill stage-a normalize --input 'notes/*.jsonl' --out-dir out --domain books --source notes"""
    section = _files_section("local", input, "**/*") | said
    section["license_tag"] = licence_table().tag_named(said["license_tag"], "--license")
    normalized = build.out_dir.absolute() / NORMALIZED_DIR / said["source"]
    if Path(section["path"]).resolve().is_relative_to(normalized.resolve()):
        _print_normalized(open_artifact(normalized), section)
        return
    _build_sources(build, said["source"], [section])


def _print_normalized(source: Artifact, section: Content) -> None:
    """Print a source whose own documents are the input, as after `hf-stream`: nothing is to be built."""
    recipe = source.manifest.identity.recipe
    for key, option in (("domain", "--domain"), ("license_tag", "--license")):
        if section[key] not in (recipe.get(key), UNKNOWN):
            what = f"the documents are sealed with {recipe.get(key)!r}, got {section[key]!r}"
            raise UsageError(what, option, f"give {option} {recipe.get(key)}, or --source another name")
    print_lines([f"{source.folder} is normalised already"], err=True)
    print_lines(_lines(source))


def filter(
    filters: Annotated[Path, typer.Option(help="YAML: the `filters` of a recipe's source.")],
    said: Annotated[Content, Section(StageARecipe, ("refuse_licences",))],
    build: Build,
    source: Annotated[list[str] | None, typer.Option(help="Only this one; repeatable.")] = None,
) -> None:
    """Example: corpusmill stage-a filter --filters web.yaml --out-dir out"""
    normalized = build.out_dir / NORMALIZED_DIR
    there = sorted(path.parent.name for path in normalized.glob(f"*/{FILE_NAME}"))
    if not there:
        fix = "normalise a source first, with the same --out-dir: see corpusmill stage-a --help"
        raise UsageError("nothing is normalised there", normalized, fix)
    content = read_yaml(filters, "filter file")
    FilterRecipe.from_mapping(content, filters)
    sections = [{"kind": "normalized", "source": name, "filters": content} for name in source or there]
    _build_sources(build, f"filter-{filters.stem}", sections, "filtered", said["refuse_licences"])


def _build_sources(
    build: Build, name: str, sections: Sequence[Content], up_to: Step = "normalized", refused: Sequence[str] = ()
) -> None:
    build.recipe(StageARecipe, recipe_of_sources(slugify(name), sections, up_to, refused), _lines)


def _lines(made: Artifact) -> Iterator[str]:
    yield from artifact_lines(made)
    if made.manifest.kind == NORMALIZED.name:
        yield f"  {group_manifest(made.folder)}"


def _files_section(kind: str, inputs: Sequence[str], in_folder: str) -> Content:
    folder, patterns = folder_and_patterns(inputs, in_folder)
    return {"kind": kind, "path": str(folder), "files": patterns}


def recipe_of_sources(
    name: str, sources: Sequence[Content], up_to: Step, refuse_licences: Sequence[str] = ()
) -> Content:
    """The recipe of these sources.

    Args:
        up_to: the last step that will be built: what nobody asked for isn't missing.
    """
    return {
        "system": "stage_a",
        "name": name,
        "outputs": {"normalized_dir": NORMALIZED_DIR, "up_to": up_to},
        "refuse_licences": list(refuse_licences),
        "tokenizer": TokenizerRecipe().content(),
        "shard_text_bytes": SHARD_TEXT_BYTES,
        "sources": list(sources),
    }
