"""nemotron: what the rows of the Nemotron datasets are, their texts, and others of their layout."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from pipeline_assets.commands.build_options import (
    LOG_EVERY_S,
    THREADS,
    LogEvery,
    OutDir,
    Replace,
    Threads,
    Verbose,
    build_each,
    name_of,
    place_for,
    prepare,
    warning_last,
)
from pipeline_assets.commands.nemotron_dataset import Dataset, MaxRecords, Revision, Splits, dataset_section
from pipeline_assets.commands.nemotron_lines import lines_of
from pipeline_assets.commands.terminal import Strict, as_typed, going_on
from pipeline_assets.commands.wrong_use import naming_options
from pipeline_assets.corpus.spine.errors import UsageError

if TYPE_CHECKING:
    from pipeline_assets.corpus.recipes.run import Run

MAX_REJECT_FRACTION = "0.05"
SHARD_BYTES = 1 << 27

app = typer.Typer()
nemotron_app = typer.Typer(
    help="Rows of the Nemotron datasets, and of others of their layout.",
    epilog="Example: corpusmill nemotron inventory --dataset my/folder --out-dir out",
)
app.add_typer(nemotron_app, name="nemotron", no_args_is_help=True)


@nemotron_app.callback()
def nemotron() -> None:
    """Rows of the Nemotron datasets, and of others of their layout."""


@nemotron_app.command("inventory", epilog="Example: corpusmill nemotron inventory --dataset my/folder --out-dir out")
def inventory(
    dataset: Dataset,
    out_dir: OutDir,
    revision: Revision = None,
    split: Splits = None,
    max_records: MaxRecords = None,
    cpu_threads: Threads = THREADS,
    log_every: LogEvery = LOG_EVERY_S,
    verbose: Verbose = False,
    replace: Replace = False,
    strict: Strict = False,
) -> None:
    """Tell what the rows of each split are: files, columns and types, and which share of them has which metadata."""
    run = prepare(_root_beside(out_dir, dataset), cpu_threads, log_every, verbose, replace)
    sections = {"scan": {"max_rows": max_records}}
    _build("inventory", dataset, revision, split or (), {}, sections, run, strict)


@nemotron_app.command(
    "normalize", epilog="Example: corpusmill nemotron normalize --dataset my/folder --domain math --out-dir out"
)
def normalize(
    dataset: Dataset,
    out_dir: OutDir,
    revision: Revision = None,
    split: Splits = None,
    domain: Annotated[
        str | None, typer.Option(help="math, proof, science, agentic or chat_if; of the five it is known.")
    ] = None,
    template: Annotated[str, typer.Option(help="harmony/1 or plain/1, of texts that are rendered.")] = "harmony/1",
    analysis: Annotated[str, typer.Option(help="Reasoning: keep, drop or auto_drop.")] = "keep",
    loss: Annotated[str, typer.Option(help="The completion: assistant_all or assistant_last.")] = "assistant_all",
    system: Annotated[bool, typer.Option(help="With gpt-oss's system message, or none.")] = True,
    hf_layout: Annotated[
        bool, typer.Option("--hf-layout", help="All splits in one folder, as a hub has them.")
    ] = False,
    write_readme: Annotated[bool, typer.Option("--write-readme", help="With the dataset's card in it.")] = False,
    drop_invalid_harmony: Annotated[
        bool, typer.Option("--drop-invalid-harmony", help="Leave out rows whose own text is no Harmony.")
    ] = False,
    drop_empty_completion: Annotated[
        bool, typer.Option("--drop-empty-completion", help="Leave out rows that don't end with the assistant's words.")
    ] = False,
    max_records: MaxRecords = None,
    max_reject_fraction: Annotated[
        str, typer.Option(help="More bad rows of a split than this stop it.")
    ] = MAX_REJECT_FRACTION,
    cpu_threads: Threads = THREADS,
    log_every: LogEvery = LOG_EVERY_S,
    verbose: Verbose = False,
    replace: Replace = False,
    strict: Strict = False,
) -> None:
    """Render the rows of each split as Harmony texts, with metadata, quality and exact token counts, as Parquet."""
    from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256

    run = prepare(_root_beside(out_dir, dataset), cpu_threads, log_every, verbose, replace)
    if write_readme and not hf_layout:
        raise UsageError(
            "it is the card of the folder that --hf-layout makes", "--write-readme", "give --hf-layout too"
        )
    rows = {
        "template": template,
        "analysis": analysis,
        "loss": {"mode": loss} | ({"analysis": True, "calls": True} if loss == "assistant_all" else {}),
        "system": _gpt_oss_system(has_channels=template != "plain/1") if system else None,
        "drop_invalid_harmony": drop_invalid_harmony,
        "drop_empty_completion": drop_empty_completion,
        "keep_user_names": False,
        "keep_urls": False,
        "max_rows": max_records,
        "shard_bytes": SHARD_BYTES,
        "max_reject_fraction": max_reject_fraction,
        "tokenizer": {"family": "o200k_harmony", "sha256": VOCABULARY_SHA256},
    }
    sections: dict[str, Any] = {"rows": rows}
    if hf_layout:
        sections["hf_layout"] = {"readme": write_readme}
    said = {} if domain is None else {"domain": domain}
    _build("normalize", dataset, revision, split or (), said, sections, run, strict)


def _efforts(section: Mapping[str, Any]) -> dict[str, str]:
    """What is known of the splits."""
    from pipeline_assets.corpus.nemotron.rows_recipe import EFFORTS
    from pipeline_assets.corpus.nemotron.splits import dataset_key

    known = {dataset_key(dataset): efforts for dataset, efforts in EFFORTS.items()}
    efforts = known.get(dataset_key(section["dataset"]), {})
    return {split: effort for split, effort in efforts.items() if split in section["splits"]}


def _gpt_oss_system(has_channels: bool) -> dict[str, Any]:
    from pipeline_assets.corpus.harmony.prompt import GPT_OSS_SYSTEM

    content = {key: value for key, value in vars(GPT_OSS_SYSTEM).items() if key != "tools"}
    channels = list(GPT_OSS_SYSTEM.valid_channels) if has_channels else []
    return content | {"valid_channels": channels, "channel_required": has_channels}


def _build(
    command: str,
    dataset: str,
    revision: str | None,
    splits: Sequence[str],
    said: Mapping[str, Any],
    sections: Mapping[str, Any],
    run: "Run",
    strict: bool,
) -> None:
    """Writes the recipe of the dataset; builds split after split, then what is made of all of them.

    Args:
        said: of the dataset, beside what is found.
        sections: of the recipe.
    Raises:
        UsageError, InputError: from `dataset_section`, `build_each`; or what came out is not as it should be.
    """
    from pipeline_assets.corpus.nemotron.rows_recipe import Domain
    from pipeline_assets.corpus.nemotron.splits import partition_key
    from pipeline_assets.corpus.recipes.written import write_recipe_of
    from pipeline_assets.corpus.spine.artifact import open_artifact
    from pipeline_assets.launch import run_targets
    from pipeline_assets.systems.nemotron import NemotronRecipe, known_domain

    with going_on(as_typed()), naming_options():
        section = {**dataset_section(dataset, revision, splits, run.hub_for("a dataset")), **said}
        if "rows" in sections and not (said or known_domain(section["dataset"])):
            domains = ", ".join(get_args(Domain))
            raise UsageError("nobody knows what its rows are about", dataset, f"give --domain one of {domains}")
        if sections.get("rows", {}).get("system"):
            section["reasoning_effort"] = _efforts(section)
        name = "-".join([command, name_of(section["dataset"].rpartition("/")[2]), *map(name_of, splits)])
        content = {"system": "nemotron", "name": name, **sections, "datasets": [section]}
        recipe, path = write_recipe_of(NemotronRecipe, content, run.root, "nemotron", run.replace)
        typer.echo(f"recipe {path}", err=True)
        split_of = {partition_key(section["dataset"], split): split for split in section["splits"]}
        of_splits = {target.kind for target in recipe.targets() if target.partition in split_of}
        of_all = {target.kind for target in recipe.targets()} - of_splits

        def build_all(partition: str | None, kinds: Collection[str]) -> None:
            for outcome in run_targets(recipe, run, partition, kinds):
                for line in lines_of(open_artifact(run.root / outcome.target.folder)):
                    typer.echo(line)

        def build_split(split: str) -> None:
            build_all(partition_key(section["dataset"], split), of_splits)

        with warning_last(recipe.targets(), run.root, strict):
            build_each(list(split_of.values()), build_split, "splits", path)
            build_all(None, of_all)


def _root_beside(out_dir: Path, dataset: str) -> Path:
    """The data root of what is made.

    Raises:
        UsageError: it is a file, lies in what is sealed, or in the dataset, whose files it would become.
    """
    from pipeline_assets.corpus.spine.manifest import FILE_NAME

    root, folder = place_for(out_dir), Path(dataset).absolute()
    if (root / FILE_NAME).is_file():
        raise UsageError("an artifact is sealed there", out_dir, "give --out-dir another folder")
    if dataset and folder.is_dir() and root.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"it lies in the dataset {dataset}", out_dir, "give --out-dir a folder outside of it")
    return root
