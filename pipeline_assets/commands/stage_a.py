"""stage-a: sources of five kinds to Documents of one schema, a report on them, and why a document is in or out."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from pipeline_assets.commands import decontaminate, dedup, pack, report
from pipeline_assets.commands.building import Inputs, OutDir, StrictFlags, build, build_normalized, name_of
from pipeline_assets.commands.sections import NAMES, Content, Section, command
from pipeline_assets.commands.terminal import AsJson, log_to_stderr
from pipeline_assets.corpus.spine.errors import UsageError

app = typer.Typer()
_EXAMPLE = "stage-a normalize --input 'notes/*.jsonl' --out-dir out --domain books --source notes"
stage_a_app = typer.Typer(
    help="Sources of every kind to Documents of one schema.", epilog=f"Example: corpusmill {_EXAMPLE}"
)
app.add_typer(stage_a_app, name="stage-a", no_args_is_help=True)
for group in (dedup.stage_a_app, decontaminate.app, pack.app, report.app):
    stage_a_app.add_typer(group)
_LIMIT = "max_reject_fraction"


@stage_a_app.command(
    "hf-configs", epilog="Example: corpusmill stage-a hf-configs --dataset fineweb-2 --lang asm --script Beng"
)
def hf_configs(
    dataset: Annotated[str, typer.Option(help="owner/name, fineweb-edu or fineweb-2.")],
    lang: Annotated[str | None, typer.Option(help="ISO 639-3 code, matched whole: eng.")] = None,
    script: Annotated[str | None, typer.Option(help="ISO 15924 code, matched whole: Latn.")] = None,
    contains: Annotated[str | None, typer.Option(help="A piece of the name; for looking around only.")] = None,
    revision: Annotated[str, typer.Option(help="Branch, tag or commit.")] = "main",
    out_dir: OutDir = Path("data"),
    as_json: AsJson = False,
) -> None:
    """List a dataset's configs by language and script, matched exactly."""
    from pipeline_assets.corpus.readers.hub_configs import containing, matching, read_configs, traps
    from pipeline_assets.corpus.recipes.run import hub_of

    log_to_stderr()
    hub, repo = hub_of(out_dir.absolute(), os.environ), _known(dataset, "--dataset")
    commit = hub.resolve(repo, revision)
    configs = read_configs(hub, repo, commit)
    if not configs:
        raise UsageError("its card lists no configs", f"{repo}@{commit}", "name its files in a recipe")
    found = configs if lang is None and script is None else matching(configs, lang, script)
    if contains is not None:
        found = [config for config in containing(configs, contains) if config in found]
        trapped = traps(found, contains)
        if trapped:
            names = ", ".join(config.name for config in trapped[:5]) + (", …" if len(trapped) > 5 else "")
            typer.echo(
                f"warning: {contains!r} is in {len(trapped)} names whose language it is not: {names}; use --lang",
                err=True,
            )
    if as_json:
        rows = [{"name": one.name, "language": one.language, "script": one.script} for one in found]
        typer.echo(json.dumps({"dataset": repo, "commit": commit, "configs": rows}, indent=1))
    else:
        typer.echo(f"{repo}@{commit}: {len(found)} of {len(configs)} configs", err=True)
        for config in found:
            typer.echo(config.name)
    raise typer.Exit(0 if found else 1)


@command(
    stage_a_app,
    "hf-stream",
    "stage-a hf-stream --source fineweb-2 --config-name deu_Latn --out-dir out",
    NAMES | {"sources.0.hub.source": "--source"},
)
def hf_stream(
    source: Annotated[list[str], typer.Option(help="owner/name, fineweb-edu or fineweb-2; repeatable.")],
    out_dir: OutDir,
    said: Annotated[
        Content,
        Section(
            "corpus.normalize.sources.HubSource", ("config", "revision", "amount.documents", "rules", "seed", _LIMIT)
        ),
    ],
    flags: StrictFlags,
) -> None:
    """Read a sample of hub datasets at a commit."""
    from pipeline_assets.commands.stage_a_inputs import KNOWN, hub_source
    from pipeline_assets.corpus.recipes.run import hub_of

    hub, config = hub_of(out_dir.absolute(), os.environ), said.get("config")
    sections = []
    for name in source:
        repo, known = _known(name, "--source"), KNOWN.get(name)
        commit = hub.resolve(repo, said["revision"])
        typer.echo(f"{repo} at {commit}", err=True)
        of_name = config or (known.config if known else "default")
        section = hub_source(hub, repo, of_name, commit, said["amount"], said["rules"], said["seed"])
        sections.append(section | {key: said[key] for key in said if key == _LIMIT})
    name = name_of("-".join([*(one.rpartition("/")[2] for one in source), *([config] if config else [])]))
    _build_sources(out_dir, name, sections, flags)


@command(stage_a_app, "ingest-manifest", "stage-a ingest-manifest --manifest stage_a_v1 --out-dir out", {})
def ingest_manifest(
    manifest: Annotated[str, typer.Option(help="Name or path of a stage A recipe.")],
    out_dir: OutDir,
    flags: StrictFlags,
) -> None:
    """Normalise every source of a recipe."""
    from pipeline_assets.systems.registry import recipe_path
    from pipeline_assets.systems.stage_a import StageARecipe

    path = recipe_path(manifest, out_dir)
    build_normalized(StageARecipe.read(path), path, flags.run(out_dir), flags.strict)


@command(
    stage_a_app,
    "ingest-wikipedia",
    "stage-a ingest-wikipedia --input extracted --dump-date 2026-11-01 --out-dir out",
)
def ingest_wikipedia(
    input: Inputs,
    out_dir: OutDir,
    said: Annotated[Content, Section("corpus.normalize.sources.WikipediaSource")],
    flags: StrictFlags,
) -> None:
    """Read what wikiextractor wrote: <doc> elements or JSON lines."""
    from pipeline_assets.commands.stage_a_inputs import folder_and_patterns

    if (said["dump_date"] is None) == (said["license_tag"] is None):
        is_none = said["license_tag"] is None
        what = "neither --dump-date nor --license is given" if is_none else "both --dump-date and --license are"
        raise UsageError(what, "stage-a ingest-wikipedia", "give the dump's date, which tells its licence, or that")
    folder, patterns = folder_and_patterns(input, "**/wiki_*")
    section = {"kind": "wikipedia", "source": said["source"], "path": str(folder), "files": patterns}
    _build_sources(out_dir, name_of(said["source"]), [section | said], flags)


@command(stage_a_app, "ingest-stackexchange", "stage-a ingest-stackexchange --input 'dumps/*.7z' --out-dir out")
def ingest_stackexchange(
    input: Inputs,
    out_dir: OutDir,
    said: Annotated[Content, Section("corpus.normalize.sources.StackExchangeSource")],
    flags: StrictFlags,
) -> None:
    """Read sites' Posts.xml or .7z: a source for each, named by its host."""
    from pipeline_assets.commands.stage_a_inputs import folder_and_patterns
    from pipeline_assets.corpus.readers.source_folder import list_files
    from pipeline_assets.corpus.readers.stackexchange.archive import site_of

    folder, patterns = folder_and_patterns(input, "Posts.xml")
    sections = []
    for path in (file.path for file in list_files(folder, patterns)):
        host = site_of(path)
        section = {"kind": "stackexchange", "source": host, "path": str(path.parent), "files": [path.name]}
        sections.append(section | {"domain": said["domain"], "host": host} | said)
    _build_sources(out_dir, "stackexchange", sections, flags)


@command(stage_a_app, "normalize", _EXAMPLE)
def normalize(
    input: Inputs,
    out_dir: OutDir,
    said: Annotated[Content, Section("corpus.normalize.sources.LocalSource")],
    flags: StrictFlags,
) -> None:
    """Read local files: .jsonl, .parquet, .txt, compressed or not."""
    from pipeline_assets.commands.stage_a_inputs import folder_and_patterns
    from pipeline_assets.corpus.licences import licence_table

    folder, patterns = folder_and_patterns(input, "**/*")
    section = {"kind": "local", "source": said["source"], "path": str(folder), "files": patterns}
    section |= {key: said[key] for key in ("domain", "columns", "text_unit")} | said
    section["license_tag"] = licence_table().tag_named(said["license_tag"], "--license")
    _build_sources(out_dir, name_of(said["source"]), [section], flags)


@command(stage_a_app, "filter", "stage-a filter --filters web.yaml --out-dir out")
def filter_sources(
    filters: Annotated[Path, typer.Option(help="YAML: the `filters` of a recipe's source.")],
    out_dir: OutDir,
    said: Annotated[Content, Section("systems.stage_a.StageARecipe", ("refuse_licences",))],
    *,
    source: Annotated[list[str] | None, typer.Option(help="Only this one; repeatable.")] = None,
    flags: StrictFlags,
) -> None:
    """Filter what was normalised in the same --out-dir."""
    from pipeline_assets.commands.stage_a_inputs import NORMALIZED_DIR, write_recipe
    from pipeline_assets.corpus.filters.recipe import FilterRecipe
    from pipeline_assets.corpus.spine.manifest import FILE_NAME
    from pipeline_assets.corpus.spine.recipe import read_yaml
    from pipeline_assets.systems.stage_a import FILTERED

    run = flags.run(out_dir)
    there = sorted(path.parent.name for path in (out_dir / NORMALIZED_DIR).glob(f"*/{FILE_NAME}"))
    unknown = sorted(set(source or ()) - set(there))
    if not there:
        fix = "normalise a source first, with the same --out-dir: see corpusmill stage-a --help"
        raise UsageError("nothing is normalised there", out_dir / NORMALIZED_DIR, fix)
    if unknown:
        raise UsageError(f"{unknown[0]} is not normalised there", out_dir / NORMALIZED_DIR, f"give {', '.join(there)}")
    content = read_yaml(filters, "filter file")
    FilterRecipe.of(content, filters)
    sections = [{"kind": "normalized", "source": name, "filters": content} for name in source or there]
    name, refused = name_of(f"filter-{filters.stem}"), said["refuse_licences"]
    recipe, path = write_recipe(out_dir, name, sections, "filtered", refused, flags.replace)
    typer.echo(f"recipe {path}", err=True)
    build(recipe, path, run, flags.strict, {FILTERED.name})


def _build_sources(out_dir: Path, name: str, sections: Sequence[Content], flags: StrictFlags) -> None:
    """Writes the recipe of the sources and builds them, up to their Documents."""
    from pipeline_assets.commands.stage_a_inputs import write_recipe

    run = flags.run(out_dir)
    recipe, path = write_recipe(out_dir, name, sections, "normalized", replace=flags.replace)
    typer.echo(f"recipe {path}", err=True)
    build_normalized(recipe, path, run, flags.strict)


def _known(name: str, option: str) -> str:
    """The dataset that a short name, given with an option, stands for."""
    from pipeline_assets.commands.stage_a_inputs import KNOWN

    if name in KNOWN:
        return KNOWN[name].dataset
    if name.count("/") != 1:
        raise UsageError(f"{name!r} is no dataset", option, f"give owner/name, {' or '.join(KNOWN)}")
    return name
