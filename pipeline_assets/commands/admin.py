"""init, recipes, pin, tokenizer, manifests: what builds are made from, and what of them is kept in git."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from pipeline_assets.build.recipe_paths import recipe_path, recipe_paths
from pipeline_assets.commands.inputs import Inputs, folder_and_patterns, slugify
from pipeline_assets.commands.status import KnownRecipe
from pipeline_assets.commands.terminal import AsJson, Root, aligned, answer, as_command, echo, log_to_stderr, pluralize
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.source_folder import SourceFolder
from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.files import file_sha256
from pipeline_assets.spine.manifest import MANIFEST_FILE, Manifest
from pipeline_assets.systems.registry import SYSTEMS

if TYPE_CHECKING:
    from pipeline_assets.corpus.normalize.drafts import Draft

_HEAD = """\
# {name}: text of {folders} → Documents of one schema → without duplicates → packed rows of tokens, and a report.
# Everything here but `path` changes bytes. Keys that aren't here have defaults: corpusmill recipes --schema stage_a.
system: stage_a
name: {name}
# refuse_licences: [proprietary]  # tags of which no document is kept

sources:
"""
_TAIL = """
dedup: {}  # exact and near duplicates over all sources, the first one stays; leave it out to keep every document

# What trainers have been asked, to be kept out of the corpus:
# decontamination:
#   evaluation: [{name: mmlu, path: /where/it/lies, files: ["*.jsonl"], columns: {text: [question]}}]

pack:  # every document once; `weights` by source and `num_seqs` rows ask for a mixture
  seq_len: 2048
"""
_FILTERS = "# filters: {length: {min_words: 20}}  # which documents are kept, and what is changed in them"
_REJECTS = '# max_reject_fraction: "0.01"  # more bad rows than this stop the build; if unsaid, 0.001'


def pin(
    dataset: Annotated[str, typer.Argument(help="owner/name on the hub.")],
    model: Annotated[bool, typer.Option("--model", help="It is a model; its commit is printed.")] = False,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit; default: the recipe's, or main.")] = None,
    recipe: Annotated[str | None, typer.Option(help="Write the commit into this recipe.")] = None,
    tries: Annotated[int, typer.Option(min=1, envvar="CORPUSMILL_HUB_TRIES", help="Tries of a call to the hub.")] = 6,
    data: Root = Path("data"),
    as_json: AsJson = False,
) -> None:
    """Example: corpusmill pin HuggingFaceFW/fineweb-edu --recipe healing_text_v1"""
    from pipeline_assets.build.files import is_commit, pin_recipe, revision_in

    log_to_stderr()
    if model and recipe is not None:
        raise UsageError("no recipe is pinned to a model", "--recipe", "leave it out, and write there what is printed")
    path = None if recipe is None else recipe_path(recipe, data)
    before = None if path is None else revision_in(path, dataset, SYSTEMS)
    asked = revision or (before if before and not is_commit(before) else "main")
    hub = HubFiles(data / "hub_cache", tries=tries)
    commit = (hub.for_models() if model else hub).resolve(dataset, asked)
    if path is not None:
        pin_recipe(path, dataset, commit, SYSTEMS)
    answer(as_json, {"dataset": dataset, "commit": commit, "before": before}, [commit])
    if before is not None and not as_json:
        moved = f"{before or 'no revision'} → {commit}"
        echo(f"{recipe}: {moved if before != commit else 'already there'}", err=True)


def export(
    to: Annotated[Path, typer.Option(help="Folder in git.")] = Path("manifests"),
    data: Root = Path("data"),
) -> None:
    """Example: corpusmill manifests export"""
    sources = sorted((data / "manifests").glob("*.json"))
    if not sources:
        raise UsageError("no manifest was built here", data / "manifests", "run a recipe first")
    to.mkdir(parents=True, exist_ok=True)
    for source in sources:
        written = MANIFEST_FILE.read_raw(source)
        manifest = Manifest.from_bytes(written, source)
        durable.write_durably(to / source.name, written)
        echo(f"{to / source.name}  {manifest.digest}")
    for inventory in sorted((data / "stage2").glob("*/inventory/inventory.json")):
        _export_mixture(inventory, to / "stage2", data)


def _export_mixture(inventory: Path, to: Path, data: Path) -> None:
    of_recipe = inventory.parents[1]
    version = to / of_recipe.name
    recipe = recipe_path(of_recipe.name, data)
    targets = SYSTEMS.read_recipe(recipe).targets()
    if not any(target.kind.name == "stage2/inventory" and target.matches_recipe(data) for target in targets):
        echo(f"left out {of_recipe.name}: its recipe was changed since it was built", err=True)
        return
    version.mkdir(parents=True, exist_ok=True)
    figures = sorted((of_recipe / "mixtures").glob("*.json"))
    for source in (recipe, *figures, inventory, inventory.with_suffix(".md")):
        name = source.name.removeprefix(f"{of_recipe.name}_") if source in figures else source.name
        durable.write_durably(version / name, source.read_bytes())
    echo(f"{version}  recipe, inventory and {len(figures)} files of figures")


def check(
    path: Annotated[Path, typer.Argument(help="A .tiktoken vocabulary file, or a SentencePiece .model.")],
    expected_sha256: Annotated[
        str, typer.Option(help="The pinned hash; default: that of the shipped file, of a .model in its checksum.json.")
    ] = "",
    metadata_json: Annotated[Path | None, typer.Option(help="Write what was found to this file.")] = None,
) -> None:
    """Example: corpusmill tokenizer check o200k_base.tiktoken"""
    from pipeline_assets.corpus.tokens.describe import describe_sentencepiece, describe_tokenizer, expected_hash
    from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256

    if not path.is_file():
        raise UsageError("there is no such file", path, "give a .tiktoken or .model file")
    is_model = path.suffix == ".model"
    expected = expected_hash(path, expected_sha256) if is_model else expected_sha256 or VOCABULARY_SHA256
    refusal: InputError | None = None
    try:
        description = describe_sentencepiece(path, expected) if is_model else describe_tokenizer(path, expected)
    except InputError as error:
        if isinstance(error, UsageError):
            raise
        refusal, sha256 = error, file_sha256(path)
        description = {"file": path.name, "bytes": path.stat().st_size, "sha256": sha256, "expected_sha256": expected}
        description |= {"is_expected": sha256 == expected, "error": str(error)}
    text = json.dumps(description, indent=1, sort_keys=True)
    if metadata_json is not None:
        durable.write_durably(metadata_json, text.encode() + b"\n")
    if refusal is not None:
        raise refusal
    echo(text)


def init(
    name: Annotated[str, typer.Argument(help="Of the recipe, and of what is made.")],
    input: Inputs,
    data: Root = Path("data"),
) -> None:
    """Example: corpusmill init notes --input ~/notes --input ~/papers"""
    from pipeline_assets.corpus.normalize.drafts import draft_sources

    if not name or slugify(name) != name:
        raise UsageError(f"{name!r} is no name", "init", f"write it as recipes have it: {slugify(name) or 'notes'}")
    path = data / "recipes" / f"{name}.yaml"
    if path.exists():
        raise UsageError("a recipe of that name is there", path, "edit it, or choose another name")
    drafts: list[Draft] = []
    for one in dict.fromkeys(input):
        folder, patterns = folder_and_patterns([one], "**/*")
        sections, not_read = draft_sources(SourceFolder(folder, tuple(patterns)), slugify(folder.name) or name)
        drafts += sections
        for ending, files in not_read.items():
            echo(f"not read in {folder}: {ending}" + (f", {files:,} files" if files > 1 else ""), err=True)
    text = (
        _HEAD.format(name=name, folders=", ".join(input) if len(input) < 3 else f"{len(input)} places")
        + "\n".join(_sections(drafts))
        + _TAIL
    )
    durable.make_folder(path.parent)
    durable.write_durably(path, text.encode())
    try:
        recipe = SYSTEMS.read_recipe(path)
    except UsageError:
        durable.remove(path)
        raise
    lines = [f"wrote {path}: {pluralize(len(drafts), 'source')}; edit it, then"]
    for verb in ("plan", "run"):
        lines.append("  " + as_command(verb, recipe.name, *([] if data == Path("data") else ["--data", data])))
    echo("\n".join(lines))


def recipes(
    data: Root = Path("data"),
    schema: Annotated[str | None, typer.Option(help="Print the JSON Schema of a system's recipes: stage_a.")] = None,
    as_json: AsJson = False,
) -> None:
    """Example: corpusmill recipes --data data/demo"""
    if schema is not None:
        if schema not in SYSTEMS.pages:
            raise UsageError(f"there is no system {schema!r}", "--schema", f"give {', '.join(SYSTEMS.pages)}")
        echo(json.dumps(SYSTEMS.recipe_class(schema).model_json_schema(), indent=1))
        return
    found = [KnownRecipe.found(name, path, data) for name, path in recipe_paths(data).items()]
    rows = [_row(one) for one in found]
    cells = [(row["recipe"], row["state"], str(row["path"])) for row in rows]
    answer(as_json, rows, aligned([("recipe", "artifacts", "file"), *cells]))


def _row(one: KnownRecipe) -> dict[str, Any]:
    counts = Counter(holding.condition for holding in one.locked)
    state = ", ".join(f"{count} {condition}" for condition, count in counts.items())
    return {
        "recipe": one.name,
        "path": one.path,
        "artifacts": counts,
        "error": one.error,
        "state": "can't be read" if one.error else state,
    }


def _sections(drafts: "Sequence[Draft]") -> Iterator[str]:
    """Sections as YAML, a key a line with its remark; two of one name are told apart."""
    taken: Counter[str] = Counter()
    for draft in drafts:
        content = dict(draft.content)
        taken[content["source"]] += 1
        if taken[content["source"]] > 1:
            content["source"] += f"-{taken[content['source']]}"
        for number, (key, value) in enumerate(content.items()):
            remark = f"  # {draft.notes[key]}" if key in draft.notes else ""
            as_yaml = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True)
            as_yaml = as_yaml.removesuffix("...\n").strip()
            yield f"{'  - ' if number == 0 else '    '}{key}: {as_yaml}{remark}"
        yield from () if "filters" in content else [f"    {_FILTERS}"]
        yield f"    {_REJECTS}"
        yield ""
