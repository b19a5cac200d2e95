"""nemotron: what the rows of the Nemotron datasets are, their texts, and others of their layout."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from pipeline_assets.commands import build, options
from pipeline_assets.commands.terminal import as_command, counted, echo, tell
from pipeline_assets.corpus.document_shards import REJECTS_FILE
from pipeline_assets.corpus.harmony.prompt import GPT_OSS_SYSTEM
from pipeline_assets.corpus.nemotron.inventory import COVERAGE_MD, INVENTORY_JSON, read_inventory
from pipeline_assets.corpus.nemotron.schema import DROPPED_FILE, PoolsRecipe
from pipeline_assets.corpus.nemotron.sections import (
    DOMAINS,
    EFFORTS,
    SHARD_BYTES,
    DatasetSection,
    DeduplicateRecipe,
    Domain,
    HubLayout,
    RowsRecipe,
    Scan,
    known_domain,
)
from pipeline_assets.corpus.nemotron.split_pin import splits_of_folder, splits_on_hub
from pipeline_assets.corpus.nemotron.splits import dataset_key, no_such_split, partition_key
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.recipes.files import write_recipe_of
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact
from pipeline_assets.corpus.spine.errors import DeniedError, InputError, RetryableError, UsageError
from pipeline_assets.corpus.spine.lineage import Lineage, root_of
from pipeline_assets.corpus.spine.manifest import FILE_NAME
from pipeline_assets.corpus.spine.recipe import UNPINNED, read_yaml, upstream_first
from pipeline_assets.corpus.spine.target import Target
from pipeline_assets.corpus.tokens.o200k_harmony import TokenizerRecipe
from pipeline_assets.systems.nemotron import (
    CANDIDATE_POOLS,
    DEDUPLICATED,
    HF_LAYOUT,
    NORMALIZED_SHARDS,
    POOL_REPORT,
    NemotronRecipe,
    pools_of,
    rows_that_stay,
)
from pipeline_assets.systems.registry import KINDS, PROJECT_RECIPES

_FLAGS = ("unknown_channels", "control_characters", "stalled_calls")
_ALL = "nemotron_all"  # the recipe that run-all writes
Dataset = Annotated[str, typer.Option("--dataset", help="owner/name on the hub, or a folder here of the same layout.")]


def inventory(
    dataset: Dataset,
    out_dir: build.OutDir,
    said: Annotated[options.Content, options.Section(DatasetSection, ("revision", "splits"))],
    scan: Annotated[options.Content, options.Section(Scan)],
    flags: build.StrictFlags,
) -> None:
    """Example: corpusmill nemotron inventory --dataset my/folder --out-dir out"""
    _build("inventory", dataset, out_dir, said, {"scan": scan}, flags)


def normalize(
    dataset: Dataset,
    out_dir: build.OutDir,
    said: Annotated[options.Content, options.Section(DatasetSection)],
    rows: Annotated[options.Content, options.Section(RowsRecipe)],
    layout: Annotated[options.Content, options.Section(HubLayout)],
    *,
    system: Annotated[bool, typer.Option(help="With gpt-oss's system message, or none.")] = True,
    hf_layout: Annotated[
        bool, typer.Option("--hf-layout", help="All splits in one folder, as a hub has them.")
    ] = False,
    flags: build.StrictFlags,
) -> None:
    """Example: corpusmill nemotron normalize --dataset my/folder --domain math --out-dir out"""
    if layout["readme"] and not hf_layout:
        what = "it is the card of the folder that --hf-layout makes"
        raise UsageError(what, "--write-readme", "give --hf-layout too")
    is_all = rows["loss"]["mode"] == "assistant_all"
    gpt_oss = {key: value for key, value in vars(GPT_OSS_SYSTEM).items() if key != "tools"}
    gpt_oss |= {"valid_channels": list(GPT_OSS_SYSTEM.valid_channels)}
    whole = rows | {
        "loss": rows["loss"] | ({"analysis": True, "calls": True} if is_all else {}),
        "system": gpt_oss if system else None,
        "keep_user_names": False,
        "keep_urls": False,
        "shard_bytes": SHARD_BYTES,
        "tokenizer": TokenizerRecipe().content(),
    }
    _build("normalize", dataset, out_dir, said, {"rows": whole} | ({"hf_layout": layout} if hf_layout else {}), flags)


def pools(
    in_dir: Annotated[Path, typer.Option("--in-dir", help="Folder of rows, or around some.")],
    out_dir: build.OutDir,
    flags: build.StrictFlags,
) -> None:
    """Example: corpusmill nemotron pools --in-dir out/nemotron/mine/normalized_shards --out-dir out"""
    run = flags.run(_root_beside(out_dir, ""))
    deduplicated, normalised = given_rows(in_dir)
    left = [*deduplicated, *rows_that_stay("pools", normalised, DeduplicateRecipe.model_validate({}))]
    targets = upstream_first(pools_of("pools", left, PoolsRecipe.model_validate({}), None))

    def lines(made: Artifact) -> list[str]:
        told = made.manifest.kind in (DEDUPLICATED.name, CANDIDATE_POOLS.name)
        return [f"{made.folder}  {made.manifest.identity.ledger}"] if told else []

    build.build_targets(targets, run, flags.strict, lines)
    of_datasets = [target for target in targets if target.kind == CANDIDATE_POOLS.name]
    words = (as_command("nemotron", "publish", f"OWNER/{one.partition}", run.root / one.folder) for one in of_datasets)
    tell(["to publish them, with HF_TOKEN set:", *(f"  {line}" for line in words)])


def run_all(
    out_dir: build.OutDir,
    max_records: Annotated[int | None, typer.Option(min=1, help="Rows of a split at most, from all over it.")] = None,
    *,
    flags: build.StrictFlags,
) -> None:
    """Example: corpusmill nemotron run-all --max-records 1000 --out-dir out"""
    run = flags.run(_root_beside(out_dir, ""))
    content: dict[str, Any] = read_yaml(PROJECT_RECIPES / "nemotron_v1.yaml")
    place = run.root / "recipes" / f"{_ALL}.yaml"
    known = NemotronRecipe.read(place).datasets if place.exists() and not flags.replace else ()
    pinned = {one.dataset: one for one in known if one.revision != UNPINNED}
    for section in content["datasets"]:
        earlier = pinned.get(section["dataset"])
        if earlier is not None:
            section |= {"revision": earlier.revision, "splits": list(earlier.splits)}
        else:
            section |= _at_head(section, run.hub_for("a dataset"))
        efforts = set(EFFORTS.get(section["dataset"], {}).values())
        section["reasoning_effort"] = {
            split: effort for split in section["splits"] for effort in efforts if split.startswith(effort)
        }
        echo(f"{section['dataset']} at {section['revision']}", err=True)
    content["scan"] |= {"max_rows": max_records}
    content["rows"] |= {"max_rows": max_records}
    recipe, path = write_recipe_of(NemotronRecipe, content | {"name": _ALL}, run.root, "nemotron", run.replace)
    try:
        build.build_recipe(recipe, path, run, strict=flags.strict)
    except InputError as error:
        if _spares_others(error):
            _report_on_built(recipe, run)
        raise


def _spares_others(error: InputError) -> bool:
    """Check whether an error concerns its own dataset alone: a retry does not help, and others can be built."""
    return isinstance(error, DeniedError) or not isinstance(error, RetryableError)


def _at_head(section: Mapping[str, Any], hub: HubFiles) -> dict[str, Any]:
    """Return the commit and the splits that a dataset of the shipped recipe has now.

    A dataset that cannot be read keeps its splits, or has no commit: its own build fails with the reason, others go on.
    """
    revision = UNPINNED
    try:
        revision = hub.resolve(section["dataset"])
        there = list(splits_on_hub(hub, section["dataset"], revision))
    except InputError as error:
        if not _spares_others(error):
            raise
        tell([f"{section['dataset']}: {error}"], err=True)
        return {"revision": revision}
    shipped = [split for split in section["splits"] if split in there]
    return {"revision": revision, "splits": [*shipped, *(split for split in there if split not in shipped)]}


def _report_on_built(recipe: NemotronRecipe, run: Run) -> None:
    """Build the report of the datasets whose pools are sealed, in a folder of its own; print which are missing."""
    sealed = [target for target in recipe.targets() if target.is_settled(run.root)]
    missing = {dataset_key(section.dataset) for section in recipe.datasets}
    missing -= {str(target.partition) for target in sealed if target.kind == CANDIDATE_POOLS.name}
    pools = [target for target in sealed if target.kind == CANDIDATE_POOLS.name]
    if pools:
        report = POOL_REPORT.target(f"{recipe.name}_partial", {}, pools)
        made = build.build_targets([report], replace(run, replace=True))
        tell([f"{made.folder}  without {', '.join(sorted(missing))}"])


def given_rows(folder: Path) -> tuple[list[Target], list[Target]]:
    """(deduplicated, normalised) rows that are sealed in a folder or below it; of a split that is there as both, those
    that are deduplicated. Of a folder as a hub has it, the rows that it was laid out from.

    Raises:
        UsageError: there are none, or two of a split.
    """
    found: dict[str, dict[str, Target]] = {DEDUPLICATED.name: {}, NORMALIZED_SHARDS.name: {}}
    for place in options.sealed_below(folder):
        laid_out = open_artifact(place)
        artifacts = [laid_out] if laid_out.manifest.kind in found else []
        if laid_out.manifest.kind == HF_LAYOUT.name:
            lineage = Lineage(root_of(place) or place.parent)
            artifacts = [lineage.locate(str(one["digest"])) for one in laid_out.manifest.identity.upstream]
        for artifact in artifacts:
            manifest = artifact.manifest
            partition, of_kind = manifest.name.partition("/")[2], found[manifest.kind]
            if partition in of_kind and of_kind[partition].folder != artifact.folder:
                what = f"{of_kind[partition].folder} is of {partition} too"
                raise UsageError(what, artifact.folder, "give the folder of one recipe")
            of_kind[partition] = options.as_sealed(
                artifact.folder.absolute(), KINDS[manifest.kind], partition=partition
            )
    deduplicated, normalised = found.values()
    if not deduplicated and not normalised:
        raise UsageError("no rows are sealed there", folder, "give a folder that `nemotron normalize` or `run` made")
    return [*deduplicated.values()], [one for name, one in normalised.items() if name not in deduplicated]


def _build(
    verb: str, dataset: str, out_dir: Path, said: options.Content, sections: Mapping[str, Any], flags: build.StrictFlags
) -> None:
    """Writes the recipe of the dataset; builds split after split, then what is made of all of them.

    Args:
        said: of the dataset, beside what is found.
        sections: of the recipe.
    Raises:
        UsageError, InputError: from `_dataset_section`, `build_parts`; or what came out is not as it should be.
    """
    run = flags.run(_root_beside(out_dir, dataset))
    section = _dataset_section(dataset, said["revision"], said["splits"], run.hub_for("a dataset"))
    section |= {"domain": said["domain"]} if said.get("domain") is not None else {}
    if "rows" in sections and not (said.get("domain") or known_domain(section["dataset"])):
        domains = ", ".join(get_args(Domain))
        raise UsageError("nobody knows what its rows are about", dataset, f"give --domain one of {domains}")
    if sections.get("rows", {}).get("system"):
        known = {dataset_key(name): efforts for name, efforts in EFFORTS.items()}
        efforts = known.get(dataset_key(section["dataset"]), {})
        section["reasoning_effort"] = {split: one for split, one in efforts.items() if split in section["splits"]}
    name = "-".join(
        [verb, options.name_of(section["dataset"].rpartition("/")[2]), *map(options.name_of, said["splits"])]
    )
    content = {"system": "nemotron", "name": name, **sections, "datasets": [section]}
    recipe, path = write_recipe_of(NemotronRecipe, content, run.root, "nemotron", run.replace)
    tell([f"recipe {path}", *recipe.remarks()], err=True)
    parts = {split: partition_key(section["dataset"], split) for split in section["splits"]}
    targets = recipe.targets()
    of_splits = {target.kind for target in targets if target.partition in parts.values()}
    of_all = {target.kind for target in targets} - of_splits
    with build.warning_last(targets, run.root, flags.strict):
        build.build_parts(recipe, path, run, parts, "splits", of_splits, _lines, of_all)


def _root_beside(out_dir: Path, dataset: str) -> Path:
    """The data root of what is made.

    Raises:
        UsageError: it is a file, lies in what is sealed, or in the dataset, whose files it would become.
    """
    root, folder = build.Place.at(out_dir).folder, Path(dataset).absolute()
    if (root / FILE_NAME).is_file():
        raise UsageError("an artifact is sealed there", out_dir, "give --out-dir another folder")
    if dataset and folder.is_dir() and root.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"it lies in the dataset {dataset}", out_dir, "give --out-dir a folder outside of it")
    return root


def _dataset_section(dataset: str, revision: str | None, splits: Sequence[str], hub: HubFiles) -> dict[str, Any]:
    """The dataset as a recipe has it, with the commit that it has now and the splits that are there.

    Raises:
        UsageError: there is no such dataset, commit, folder or split, or it holds no rows.
        InputError: from the hub; or its card can't be read.
    """
    known = {dataset_key(name): name for name in DOMAINS}  # of these the owner can be left out
    is_folder = options.folder_named(dataset, "--dataset") is not None
    repo = dataset if is_folder else known.get(dataset.lower(), dataset)
    section = options.folder_or_commit(hub, repo, "--dataset", revision)
    if is_folder:
        path = Path(section["path"])
        section, there = {"dataset": path.name, **section}, list(splits_of_folder(path))
    else:
        section, there = {"dataset": repo, **section}, list(splits_on_hub(hub, repo, section["revision"]))
    if not there:
        raise UsageError("it has no JSON lines and no Parquet", dataset, "give a dataset of rows")
    unknown = next((split for split in splits if split not in there), None)
    if unknown is not None:
        raise no_such_split(unknown, there, dataset)
    return section | {"splits": list(dict.fromkeys(splits)) or there}


def _lines(made: Artifact) -> Iterator[str]:
    """Its folder, its digest, what is in it; of a pin, which holds no files, what it leaves out."""
    step, decisions = made.manifest.kind.partition("/")[2], made.manifest.identity.decisions
    if step == "raw":
        if decisions["left_out"]:
            left_out = ", ".join(decisions["left_out"])
            yield f"not read, beside {decisions['format']} files of the same split: {left_out}"
        return
    yield f"{made.folder}\n  {made.manifest.digest}"
    match step:
        case "inventory":
            yield from _of_inventory(made)
        case "normalized_shards":
            yield from _of_rows(made)
        case "hf_layout":
            counts, files = made.manifest.identity.counts, len(made.manifest.storage)
            parts = counted(files, "file"), counted(counts["splits"], "split"), counted(counts["documents"], "row")
            yield f"  {', '.join(parts)}, {counts['tokens']:,} tokens"
        case _:
            for file in made.manifest.identity.files:
                yield f"  {made.path(file.path)}"


def _of_inventory(made: Artifact) -> Iterator[str]:
    found = read_inventory(made)
    scan = "all rows" if found["scan"]["kind"] == "full" else "a sample"
    optional = f", {len(found['optional_columns'])} of them optional" * bool(found["optional_columns"])
    parts = (
        counted(len(found["files"]), "file"),
        counted(found["rows_counted"], "row"),
        counted(len(found["columns"]), "column"),
    )
    yield f"  {parts[0]}, {parts[1]} ({scan}), {parts[2]}{optional}"
    yield from _kept_aside("rows that can't be read", found["rejected"], made.path(REJECTS_FILE))
    yield from (f"  {made.path(name)}" for name in (INVENTORY_JSON, COVERAGE_MD))


def _of_rows(made: Artifact) -> Iterator[str]:
    identity = made.manifest.identity
    counts, ledger = identity.counts, identity.ledger
    yield (
        f"  {counted(ledger.out, 'row')} of {ledger.rows_in:,}, {counts['tokens']:,} tokens, "
        f"{counts['completion_tokens']:,} of them completion"
    )
    if counts["analysis_given"] != counts["analysis_rendered"]:
        yield f"  analysis: {counts['analysis_rendered']:,} of {counts['analysis_given']:,} messages are in the texts"
    if counts["empty_messages"]:
        yield f"  empty: {counted(counts['empty_messages'], 'message')} before the last of a conversation"
    if counts.get("messages_as_json"):
        yield f"  as JSON: {counted(counts['messages_as_json'], 'message')} whose content is no text"
    yield from _by_name("no Harmony, rows by reason", counts.get("invalid_harmony", {}))
    yield from _by_name("message keys that are not read", counts.get("unread_message_keys", {}))
    yield from _by_name("messages with <think> tags", counts.get("think_tags", {}))
    flags = {name.replace("_", " "): counts[name] for name in _FLAGS if counts.get(name)}
    yield from _by_name("flagged, but kept", flags)
    yield from _kept_aside("rows that give no text", ledger.rejected, made.path(REJECTS_FILE))
    yield from _kept_aside("rows that are left out", ledger.dropped, made.path(DROPPED_FILE))


def _by_name(what: str, counts: Mapping[str, int]) -> Iterator[str]:
    if counts:
        yield f"  {what}: {', '.join(f'{count:,} {name}' for name, count in counts.items())}"


def _kept_aside(what: str, by_reason: Mapping[str, int], file: Path) -> Iterator[str]:
    if by_reason:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in by_reason.items())
        yield f"  {what}: {reasons}; {file} has them"
