"""The commands of `nemotron` that describe, normalize and pool rows."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from pipeline_assets.build.pins.split_pin import find_folder_splits, find_hub_splits
from pipeline_assets.build.recipe_paths import PROJECT_RECIPES_FOLDER
from pipeline_assets.build.run import Run
from pipeline_assets.build.target import Target
from pipeline_assets.commands.build import BuildOptions, build_recipe, build_targets
from pipeline_assets.commands.inputs import (
    folder_or_commit,
    join_names,
    local_folder,
    sealed_targets,
    slugify,
    upstream_targets,
)
from pipeline_assets.commands.lines import artifact_lines
from pipeline_assets.commands.options import RecipeContent, SectionOptions
from pipeline_assets.commands.terminal import echo, format_command, print_lines
from pipeline_assets.corpus.nemotron import dataset_section, sections
from pipeline_assets.corpus.nemotron.pools_recipe import PoolsRecipe
from pipeline_assets.corpus.nemotron.rows_recipe import RowsRecipe
from pipeline_assets.corpus.nemotron.splits import dataset_key, unknown_split_error
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.errors import DeniedError, InputError, RetryableError, UsageError
from pipeline_assets.spine.key_types import UNPINNED
from pipeline_assets.spine.recipe_yaml import read_yaml
from pipeline_assets.systems import nemotron

_RUN_ALL_RECIPE_NAME = "nemotron_all"
DatasetName = Annotated[str, typer.Option("--dataset", help="owner/name on the hub, or a folder with the same layout.")]


def inventory(
    dataset: DatasetName,
    dataset_keys: Annotated[RecipeContent, SectionOptions(dataset_section.DatasetSection, ("revision", "splits"))],
    scan_keys: Annotated[RecipeContent, SectionOptions(sections.Scan)],
    options: BuildOptions,
) -> None:
    """Describe the rows of each split: files, columns, types, metadata.

    Example: corpusmill nemotron inventory --dataset my/folder --out-dir out
    """
    _build_dataset("inventory", dataset, dataset_keys, {"scan": scan_keys}, options)


def normalize(
    dataset: DatasetName,
    dataset_keys: Annotated[RecipeContent, SectionOptions(dataset_section.DatasetSection)],
    row_keys: Annotated[RecipeContent, SectionOptions(RowsRecipe)],
    layout_keys: Annotated[RecipeContent, SectionOptions(sections.HubLayoutSection)],
    *,
    system: Annotated[bool, typer.Option(help="Add gpt-oss's system message, or omit it.")] = True,
    hf_layout: Annotated[
        bool, typer.Option("--hf-layout", help="Write all splits to one folder, as on a hub.")
    ] = False,
    options: BuildOptions,
) -> None:
    """Write rows as Parquet: Harmony texts with exact token counts.

    Example: corpusmill nemotron normalize --dataset my/folder --domain math --out-dir out
    """
    if layout_keys["readme"] and not hf_layout:
        raise UsageError("needs --hf-layout, whose folder has a card", "--write-readme", "pass --hf-layout too")
    row_keys |= {} if system else {"system": None}
    content = {"rows": row_keys} | ({"hf_layout": layout_keys} if hf_layout else {})
    _build_dataset("normalize", dataset, dataset_keys, content, options)


def pools(
    in_dir: Annotated[Path, typer.Option("--in-dir", help="Folder of normalized rows, or a parent folder.")],
    options: BuildOptions,
) -> None:
    """Build pools from sealed rows, deduplicating them first if needed.

    Example: corpusmill nemotron pools --in-dir out/nemotron/mine/normalized_shards --out-dir out
    """
    options = options.with_absolute_root()
    deduplicated, normalised = find_row_targets(in_dir)
    rules = sections.DeduplicateRecipe.model_validate({})
    kept = [*deduplicated, *nemotron.deduplicated_targets("pools", normalised, rules, None)]
    targets = nemotron.pool_targets("pools", kept, PoolsRecipe.model_validate({}), None)

    options.build_targets(targets, artifact_lines)
    print_lines(["to publish them, with HF_TOKEN set:"])
    for target in (target for target in targets if target.kind.name == nemotron.CANDIDATE_POOLS.name):
        repo, folder = f"OWNER/{target.partition}", options.out_dir / target.folder
        print_lines([f"  {format_command('nemotron', 'publish', repo, folder)}"])


def run_all(
    max_records: Annotated[
        int | None, typer.Option(min=1, help="Maximum rows per split, sampled over all files.")
    ] = None,
    *,
    options: BuildOptions,
) -> None:
    """Build pools from the latest commits of the six shipped datasets.

    Later runs reuse these commits; a run with --replace looks up the latest commits.

    Example: corpusmill nemotron run-all --max-records 1000 --out-dir out
    """
    options = options.with_absolute_root()
    content: dict[str, Any] = read_yaml(PROJECT_RECIPES_FOLDER / "nemotron_v1.yaml")
    recipe_file = options.out_dir / "recipes" / f"{_RUN_ALL_RECIPE_NAME}.yaml"
    known = nemotron.NemotronRecipe.read(recipe_file).datasets if recipe_file.exists() and not options.replace else ()
    pinned = {section.dataset: section for section in known if section.revision != UNPINNED}
    for section in content["datasets"]:
        if (earlier := pinned.get(section["dataset"])) is not None:
            section |= {"revision": earlier.revision, "splits": list(earlier.splits)}
        else:
            section |= _head_keys(section, options.run.require_hub("a dataset"))
        efforts = set(dataset_section.EFFORTS.get(section["dataset"], {}).values())
        section["reasoning_effort"] = {
            split: effort for split in section["splits"] for effort in efforts if split.startswith(effort)
        }
        echo(f"{section['dataset']} at {section['revision']}", err=True)
    content["scan"] |= {"max_rows": max_records}
    content["rows"] |= {"max_rows": max_records}
    recipe, path = options.write_recipe(nemotron.NemotronRecipe, content | {"name": _RUN_ALL_RECIPE_NAME})
    try:
        build_recipe(recipe, path, options.run, strict=options.strict)
    except InputError as error:
        if _affects_one_dataset(error):
            _build_partial_report(recipe, options.run)
        raise


def _affects_one_dataset(error: InputError) -> bool:
    """Check whether the other datasets can be built in spite of an error in one."""
    return isinstance(error, DeniedError) or not isinstance(error, RetryableError)


def _head_keys(section: Mapping[str, Any], hub: HubFiles) -> dict[str, Any]:
    """Return recipe keys for a dataset's latest commit: `revision` and `splits`.

    If an error affects only this dataset, print it and omit `splits`; raise other errors. `revision` is UNPINNED if the
    latest commit cannot be found.
    """
    revision = UNPINNED
    try:
        revision = hub.resolve(section["dataset"])
        available = list(find_hub_splits(hub, section["dataset"], revision))
    except InputError as error:
        if not _affects_one_dataset(error):
            raise
        print_lines([f"{section['dataset']}: {error}"], err=True)
        return {"revision": revision}
    shipped = [split for split in section["splits"] if split in available]
    return {"revision": revision, "splits": [*shipped, *(split for split in available if split not in shipped)]}


def _build_partial_report(recipe: nemotron.NemotronRecipe, run: Run) -> None:
    """Build a report on up-to-date pools, if any; print the missing datasets."""
    all_pools = [target for target in recipe.targets() if target.kind.name == nemotron.CANDIDATE_POOLS.name]
    if pools := [target for target in all_pools if target.is_up_to_date(run.root)]:
        missing = {dataset_key(section.dataset) for section in recipe.datasets} - {pool.partition for pool in pools}
        report = nemotron.POOL_REPORT.target(f"{recipe.name}_partial", {}, pools)
        artifact = build_targets([report], replace(run, replace=True))
        print_lines([f"{artifact.folder}  without {', '.join(sorted(missing))}"])


def find_row_targets(folder: Path) -> tuple[list[Target], list[Target]]:
    """Return (deduplicated splits, other normalized splits) below a folder.

    For a folder in hub layout, return the splits from which it was built. Raise UsageError if no rows are sealed.
    """
    targets = sealed_targets(folder, nemotron.DEDUPLICATED, nemotron.NORMALIZED_SHARDS, nemotron.HF_LAYOUT)
    for layout in [target for target in targets.values() if target.kind.name == nemotron.HF_LAYOUT.name]:
        for rows in upstream_targets(open_artifact(layout.folder), nemotron.DEDUPLICATED, nemotron.NORMALIZED_SHARDS):
            targets.setdefault(rows.role, rows)
    deduplicated = [target for target in targets.values() if target.kind.name == nemotron.DEDUPLICATED.name]
    normalised = [target for target in targets.values() if target.kind.name == nemotron.NORMALIZED_SHARDS.name]
    if not deduplicated and not normalised:
        fix = "choose an output folder of `nemotron normalize` or `run`"
        raise UsageError("no sealed rows found", folder, fix)
    splits = {target.partition for target in deduplicated}
    return deduplicated, [target for target in normalised if target.partition not in splits]


def _build_dataset(
    command_name: str, dataset: str, dataset_keys: RecipeContent, content: Mapping[str, Any], options: BuildOptions
) -> None:
    options = options.with_absolute_root()
    revision, domain = dataset_keys["revision"], dataset_keys.get("domain")
    splits = list(dict.fromkeys(dataset_keys["splits"]))
    section = _draft_section(dataset, revision, splits, options.run.require_hub("a dataset"))
    if "path" in section and options.out_dir.resolve().is_relative_to(Path(section["path"]).resolve()):
        what = f"the output folder is inside the dataset {dataset}"
        raise UsageError(what, options.out_dir, "set --out-dir to a folder outside of it")
    section |= {"domain": domain} if domain is not None else {}
    if "rows" in content and not (domain or dataset_section.known_domain(section["dataset"])):
        domains = ", ".join(get_args(dataset_section.Domain))
        raise UsageError("the domain of its rows is unknown", dataset, f"set --domain to one of {domains}")
    if "rows" in content and "system" not in content["rows"]:
        known = {dataset_key(name): efforts for name, efforts in dataset_section.EFFORTS.items()}
        efforts = known.get(dataset_key(section["dataset"]), {})
        section["reasoning_effort"] = {split: effort for split, effort in efforts.items() if split in section["splits"]}
    name = join_names([command_name, slugify(section["dataset"].rpartition("/")[2]), *map(slugify, splits)])
    recipe = {"system": "nemotron", "name": name, **content, "datasets": [section]}
    options.build_recipe(nemotron.NemotronRecipe, recipe, artifact_lines)


def _draft_section(dataset: str, revision: str | None, splits: Sequence[str], hub: HubFiles) -> dict[str, Any]:
    """Return the recipe section of a dataset: its name, commit or path, and splits."""
    known = {dataset_key(name): name for name in dataset_section.DOMAINS}  # these can be typed without their owner
    repo = known.get(dataset.lower(), dataset) if local_folder(dataset, "--dataset") is None else dataset
    section = folder_or_commit(hub, repo, "--dataset", revision)
    path = Path(section["path"]) if "path" in section else None
    available = list(find_hub_splits(hub, repo, section["revision"]) if path is None else find_folder_splits(path))
    if not available:
        raise UsageError("no JSON lines or Parquet files found", dataset, "choose a dataset of rows")
    unknown = next((split for split in splits if split not in available), None)
    if unknown is not None:
        raise unknown_split_error(unknown, available, dataset)
    return {"dataset": path.name if path else repo, **section, "splits": splits or available}
