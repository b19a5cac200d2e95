"""stage-a: sources of five kinds to Documents of one schema, a report on them, and why a document is in or out."""

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline_assets.commands import decontaminate, pack, stage_a_dedup, stage_a_report
from pipeline_assets.commands.build_options import (
    LOG_EVERY_S,
    THREADS,
    Inputs,
    LogEvery,
    MaxRejects,
    OutDir,
    Replace,
    Seed,
    Threads,
    Verbose,
    build,
    build_normalized,
    name_of,
    normalize_sources,
    prepare,
)
from pipeline_assets.commands.terminal import AsJson, Strict, as_typed, going_on, log_to_stderr
from pipeline_assets.commands.wrong_use import naming_options
from pipeline_assets.corpus.spine.errors import UsageError

app = typer.Typer()
stage_a_app = typer.Typer(
    help="Sources of every kind to Documents of one schema.",
    epilog="Example: corpusmill stage-a normalize --input 'notes/*.jsonl' --out-dir out --domain books --source notes",
)
app.add_typer(stage_a_app, name="stage-a", no_args_is_help=True)
stage_a_app.add_typer(stage_a_dedup.app)
stage_a_app.add_typer(decontaminate.app)
stage_a_app.add_typer(pack.app)
stage_a_app.add_typer(stage_a_report.app)
License = Annotated[str | None, typer.Option("--license", help="Tag, such as cc-by-sa-4.0.")]
Domain = Annotated[str, typer.Option("--domain", help="What kind of text.")]


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


@stage_a_app.command(
    "hf-stream",
    epilog="Example: corpusmill stage-a hf-stream --source fineweb-2 --config-name deu_Latn --out-dir out",
)
def hf_stream(
    source: Annotated[list[str], typer.Option(help="owner/name, fineweb-edu or fineweb-2; repeatable.")],
    out_dir: OutDir,
    config_name: Annotated[
        str | None, typer.Option(help="Of every --source. Default: fineweb-2 eng_Latn, others default.")
    ] = None,
    revision: Annotated[str, typer.Option(help="Branch, tag or commit; its commit is written down.")] = "main",
    max_documents: Annotated[int, typer.Option(min=1, help="Rows to read, drawn over all files.")] = 100_000,
    rule: Annotated[list[str] | None, typer.Option(help="A row must pass 'int_score >= 3'; repeatable.")] = None,
    max_reject_fraction: MaxRejects = None,
    cpu_threads: Threads = THREADS,
    log_every: LogEvery = LOG_EVERY_S,
    verbose: Verbose = False,
    seed: Seed = "0",
    replace: Replace = False,
    strict: Strict = False,
) -> None:
    """Read a sample of hub datasets at a commit."""
    from pipeline_assets.commands.stage_a_inputs import KNOWN, hub_source
    from pipeline_assets.corpus.recipes.run import hub_of

    hub = hub_of(out_dir.absolute(), os.environ)

    def sources() -> list[dict[str, Any]]:
        sections = []
        for name in source:
            repo, known = _known(name, "--source"), KNOWN.get(name)
            commit = hub.resolve(repo, revision)
            typer.echo(f"{repo} at {commit}", err=True)
            config = config_name or (known.config if known else "default")
            amount = {"documents": max_documents}
            sections.append(hub_source(hub, repo, config, commit, amount, rule or (), seed))
        return sections

    name = name_of("-".join([*(one.rpartition("/")[2] for one in source), *([config_name] if config_name else [])]))
    normalize_sources(out_dir, name, sources, max_reject_fraction, cpu_threads, log_every, verbose, replace, strict)


@stage_a_app.command(
    "ingest-manifest", epilog="Example: corpusmill stage-a ingest-manifest --manifest stage_a_v1 --out-dir out"
)
def ingest_manifest(
    manifest: Annotated[str, typer.Option(help="Name or path of a stage A recipe.")],
    out_dir: OutDir,
    cpu_threads: Threads = THREADS,
    log_every: LogEvery = LOG_EVERY_S,
    verbose: Verbose = False,
    seed: Seed = "",
    replace: Replace = False,
    strict: Strict = False,
) -> None:
    """Normalise every source of a recipe."""
    from pipeline_assets.systems.registry import recipe_path
    from pipeline_assets.systems.stage_a import StageARecipe

    run = prepare(out_dir, cpu_threads, log_every, verbose, replace)
    if seed:
        raise UsageError(f"--seed is {seed!r}", manifest, "each source of a recipe has its own `seed`: set it there")
    path = recipe_path(manifest, out_dir)
    with going_on(as_typed()):
        build_normalized(StageARecipe.read(path), path, run, strict)


@stage_a_app.command(
    "ingest-wikipedia",
    epilog="Example: corpusmill stage-a ingest-wikipedia --input extracted --dump-date 2026-11-01 --out-dir out",
)
def ingest_wikipedia(
    input: Inputs,
    out_dir: OutDir,
    dump_date: Annotated[str | None, typer.Option(help="YYYY-MM-DD, in the dump's name: tells the licence.")] = None,
    license: License = None,
    language: Annotated[str | None, typer.Option(help="Where urls don't say it, such as en.")] = None,
    source: Annotated[str, typer.Option(help="Name of the source.")] = "wikipedia",
    domain: Domain = "encyclopedia",
    max_reject_fraction: MaxRejects = None,
    cpu_threads: Threads = THREADS,
    log_every: LogEvery = LOG_EVERY_S,
    verbose: Verbose = False,
    seed: Seed = "",
    replace: Replace = False,
    strict: Strict = False,
) -> None:
    """Read what wikiextractor wrote: <doc> elements or JSON lines."""
    from pipeline_assets.commands.stage_a_inputs import folder_and_patterns

    if (dump_date is None) == (license is None):
        what = "neither --dump-date nor --license is given" if license is None else "both --dump-date and --license are"
        raise UsageError(what, "stage-a ingest-wikipedia", "give the dump's date, which tells its licence, or that")

    def sources() -> list[dict[str, Any]]:
        folder, patterns = folder_and_patterns(input, "**/wiki_*")
        section = {"kind": "wikipedia", "source": source, "path": str(folder), "files": patterns, "domain": domain}
        return [section | {"language": language, "dump_date": dump_date, "license_tag": license}]

    normalize_sources(
        out_dir, name_of(source), sources, max_reject_fraction, cpu_threads, log_every, verbose, replace, strict
    )


@stage_a_app.command(
    "ingest-stackexchange",
    epilog="Example: corpusmill stage-a ingest-stackexchange --input 'dumps/*.7z' --out-dir out",
)
def ingest_stackexchange(
    input: Inputs,
    out_dir: OutDir,
    min_question_score: Annotated[int | None, typer.Option(help="Threads below are left out.")] = None,
    min_answer_score: Annotated[int | None, typer.Option(help="Answers below are left out.")] = None,
    min_answers: Annotated[int, typer.Option(min=0, help="Threads with fewer are left out.")] = 0,
    domain: Domain = "questions",
    max_reject_fraction: MaxRejects = None,
    cpu_threads: Threads = THREADS,
    log_every: LogEvery = LOG_EVERY_S,
    verbose: Verbose = False,
    seed: Seed = "",
    replace: Replace = False,
    strict: Strict = False,
) -> None:
    """Read sites' Posts.xml or .7z: a source for each, named by its host."""
    from pipeline_assets.commands.stage_a_inputs import folder_and_patterns
    from pipeline_assets.corpus.readers.source_folder import list_files
    from pipeline_assets.corpus.readers.stackexchange.archive import site_of

    def sources() -> list[dict[str, Any]]:
        folder, patterns = folder_and_patterns(input, "Posts.xml")
        return [
            {
                "kind": "stackexchange",
                "source": site_of(file.path),
                "path": str(file.path.parent),
                "files": [file.path.name],
                "domain": domain,
                "host": site_of(file.path),
                "min_question_score": min_question_score,
                "min_answer_score": min_answer_score,
                "min_answers": min_answers,
            }
            for file in list_files(folder, patterns)
        ]

    normalize_sources(
        out_dir, "stackexchange", sources, max_reject_fraction, cpu_threads, log_every, verbose, replace, strict
    )


@stage_a_app.command(
    "normalize",
    epilog="Example: corpusmill stage-a normalize --input 'notes/*.jsonl' --out-dir out --domain books --source notes",
)
def normalize(
    input: Inputs,
    out_dir: OutDir,
    domain: Domain,
    source: Annotated[str, typer.Option(help="Name of the source.")],
    license: Annotated[str, typer.Option("--license", help="Of rows that don't say theirs.")] = "unknown",
    text_column: Annotated[str, typer.Option(help="Column, or path such as body.text.")] = "text",
    id_column: Annotated[str | None, typer.Option(help="Default: ids are derived from texts.")] = None,
    created_at_column: Annotated[str | None, typer.Option(help="Date of a row.")] = None,
    license_column: Annotated[str | None, typer.Option(help="Licence of a row.")] = None,
    text_unit: Annotated[str, typer.Option(help="Of .txt files a document is a: file, paragraph.")] = "file",
    max_reject_fraction: MaxRejects = None,
    cpu_threads: Threads = THREADS,
    log_every: LogEvery = LOG_EVERY_S,
    verbose: Verbose = False,
    seed: Seed = "",
    replace: Replace = False,
    strict: Strict = False,
) -> None:
    """Read local files: .jsonl, .parquet, .txt, compressed or not."""
    from pipeline_assets.commands.stage_a_inputs import folder_and_patterns
    from pipeline_assets.corpus.licences import licence_table

    def sources() -> list[dict[str, Any]]:
        folder, patterns = folder_and_patterns(input, "**/*")
        columns = {"text": text_column, "id": id_column, "created_at": created_at_column, "license": license_column}
        section = {"kind": "local", "source": source, "path": str(folder), "files": patterns, "domain": domain}
        tag = licence_table().tag_named(license, "--license")
        return [section | {"columns": columns, "text_unit": text_unit, "license_tag": tag}]

    normalize_sources(
        out_dir, name_of(source), sources, max_reject_fraction, cpu_threads, log_every, verbose, replace, strict
    )


@stage_a_app.command("filter", epilog="Example: corpusmill stage-a filter --filters web.yaml --out-dir out")
def filter_sources(
    filters: Annotated[Path, typer.Option(help="YAML: the `filters` of a recipe's source.")],
    out_dir: OutDir,
    source: Annotated[list[str] | None, typer.Option(help="Only this one; repeatable.")] = None,
    refuse_license: Annotated[list[str] | None, typer.Option(help="Tag of which none is kept; repeatable.")] = None,
    cpu_threads: Threads = THREADS,
    log_every: LogEvery = LOG_EVERY_S,
    verbose: Verbose = False,
    seed: Seed = "",
    replace: Replace = False,
    strict: Strict = False,
) -> None:
    """Filter what was normalised in the same --out-dir."""
    from pipeline_assets.commands.stage_a_inputs import NORMALIZED_DIR, write_recipe
    from pipeline_assets.corpus.filters.recipe import FilterRecipe
    from pipeline_assets.corpus.spine.manifest import FILE_NAME
    from pipeline_assets.corpus.spine.recipe import read_yaml
    from pipeline_assets.systems.stage_a import FILTERED

    run = prepare(out_dir, cpu_threads, log_every, verbose, replace)
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
    with going_on(as_typed()), naming_options():
        recipe, path = write_recipe(
            out_dir, name_of(f"filter-{filters.stem}"), sections, "filtered", refuse_license or (), replace
        )
        typer.echo(f"recipe {path}", err=True)
        build(recipe, path, run, strict, {FILTERED.name})


def _known(name: str, option: str) -> str:
    """The dataset that a short name, given with an option, stands for."""
    from pipeline_assets.commands.stage_a_inputs import KNOWN

    if name in KNOWN:
        return KNOWN[name].dataset
    if name.count("/") != 1:
        raise UsageError(f"{name!r} is no dataset", option, f"give owner/name, {' or '.join(KNOWN)}")
    return name
