"""The commands `init`, `recipes`, `pin`, `tokenizer check` and `manifests export`."""

import glob
import itertools
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline_assets.build.recipe_paths import PROJECT_RECIPES_FOLDER, recipe_path, recipe_paths
from pipeline_assets.build.run import HUB_TRIES
from pipeline_assets.commands import terminal
from pipeline_assets.commands.inputs import Inputs, folder_and_patterns, join_names, open_interactive_hub, slugify
from pipeline_assets.commands.status import RecipeStatus
from pipeline_assets.corpus.readers.file_patterns import is_excluded, matching_names
from pipeline_assets.corpus.readers.source_folder import SourceFolder
from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.files import file_sha256
from pipeline_assets.spine.folder_lock import lock_folder
from pipeline_assets.spine.manifest import MANIFEST_FILE, MANIFEST_FORMAT, Manifest
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.spine.recipe_yaml import inline_yaml
from pipeline_assets.spine.visible import to_one_line
from pipeline_assets.systems.registry import SYSTEMS

if TYPE_CHECKING:
    from pipeline_assets.corpus.normalize.drafts import SectionDraft

_RECIPE_HEAD = """\
# {name}: text of {folders} → Documents of one schema → without duplicates → packed rows of tokens, and a report.
# Every key here except `path` changes bytes. Keys that are not here have defaults: corpusmill recipes --schema stage_a.
system: stage_a
name: {name}
# refuse_licences: [proprietary]  # documents with these tags are dropped

sources:
"""
_RECIPE_TAIL = """
dedup: {}  # exact and near duplicates over all sources; the first one is kept; omit it to keep every document

# Evaluation sets whose items are kept out of the corpus:
# decontamination:
#   evaluation: [{name: mmlu, path: /path/to/folder, files: ["*.jsonl"], columns: {text: [question]}}]

pack:  # every document once; set `weights` by source and `num_seqs` rows for a mixture
  seq_len: 2048
"""
_ALL_FILES = "**/*"
_FILTERS_HINT = "    # filters: {length: {min_words: 20}}  # rules that drop or change documents"
_REJECTS_HINT = "    # max_reject_fraction: 0.01  # a larger share of rejected rows stops the build; default 0.001"


def pin(
    dataset: Annotated[str, typer.Argument(help="owner/name on the hub.")],
    model: Annotated[bool, typer.Option("--model", help="Print the commit of a model, not a dataset.")] = False,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit. Default: the recipe's, or main.")] = None,
    recipe: Annotated[str | None, typer.Option(help="Recipe to write the commit to.")] = None,
    tries: Annotated[
        int | None, typer.Option(min=1, help="Tries per call to the hub. Default: CORPUSMILL_HUB_TRIES, or 2.")
    ] = None,
    data: terminal.Root = Path("data"),
    as_json: terminal.AsJson = False,
) -> None:
    """Print a dataset's commit, or pin it in a recipe with --recipe.

    Example: corpusmill pin HuggingFaceFW/fineweb-edu --recipe healing_text_v1
    """
    from pipeline_assets.build.recipe_pins import is_commit, pin_recipe, read_revision  # loads ruamel.yaml

    terminal.check_root(data)
    terminal.log_to_stderr()
    if model and recipe is not None:
        raise UsageError("cannot be combined with --model", "--recipe", "omit it, and write the commit to the recipe")
    path = None if recipe is None else recipe_path(recipe, data)
    before = None if path is None else read_revision(path, dataset, SYSTEMS)
    revision = revision or (before if before and not is_commit(before) else "main")
    hub = open_interactive_hub(data, os.environ if tries is None else {HUB_TRIES.variable: str(tries)})
    commit = (hub.for_models() if model else hub).resolve(dataset, revision)
    if path is not None:
        pin_recipe(path, dataset, commit, SYSTEMS)
    terminal.print_answer(as_json, {"dataset": dataset, "commit": commit, "before": before}, [commit])
    if before is not None and not as_json:
        change = f"{before or 'no revision'} → {commit}"
        terminal.echo(f"{path}: {change if before != commit else 'already at this commit'}", err=True)


def export(
    to: Annotated[Path, typer.Option(help="Output folder, tracked in git.")] = Path("manifests"),
    data: terminal.Root = Path("data"),
) -> None:
    """Copy the manifests of built artifacts, to be committed.

    Recipe, inventory and figures of each built stage 2 mixture are copied too, unless its recipe is missing or changed.

    Example: corpusmill manifests export
    """
    terminal.check_root(data)
    sources = sorted((data / "manifests").glob("*.json"))
    if not sources:
        raise UsageError("no manifests found", data / "manifests", "run a recipe first")
    if (to / MANIFEST_FILE).is_file():
        raise UsageError("the folder is a sealed artifact", to, "set --to to another folder")
    to.mkdir(parents=True, exist_ok=True)
    for source in sources:
        content = MANIFEST_FORMAT.read_raw(source)
        manifest = Manifest.from_bytes(content, source)
        durable.write_durably(to / source.name, content)
        terminal.echo(f"{to / source.name}  {manifest.digest}")
    for inventory in sorted((data / "stage2").glob("*/inventory/inventory.json")):
        _export_mixture(inventory, to / "stage2", data)


def _export_mixture(inventory_file: Path, output_folder: Path, root: Path) -> None:
    mixture = inventory_file.parents[1]
    version = output_folder / mixture.name
    try:
        recipe = recipe_path(mixture.name, root)
        targets = SYSTEMS.read_recipe(recipe).targets()
    except UsageError as error:
        terminal.echo(f"skipped {mixture.name}: {error}", err=True)
        return
    if not any(target.kind.name == "stage2/inventory" and target.matches_recipe(root) for target in targets):
        terminal.echo(f"skipped {mixture.name}: its recipe changed after the build", err=True)
        return
    version.mkdir(parents=True, exist_ok=True)
    figures = sorted((mixture / "mixtures").glob("*.json"))
    for source in (recipe, *figures, inventory_file, inventory_file.with_suffix(".md")):
        name = source.name.removeprefix(f"{mixture.name}_") if source in figures else source.name
        durable.write_durably(version / name, source.read_bytes())
    terminal.echo(f"{version}  recipe, inventory and {len(figures)} files of figures")


def check(
    path: Annotated[Path, typer.Argument(help="Tokenizer file: .tiktoken or SentencePiece .model.")],
    expected_sha256: Annotated[
        str, typer.Option(help="Pinned sha256. Default: the shipped file's, or checksum.json.")
    ] = "",
    metadata_json: Annotated[Path | None, typer.Option(help="Output file for the description (JSON).")] = None,
) -> None:
    """Check a tokenizer file against its pinned hash.

    Example: corpusmill tokenizer check o200k_base.tiktoken
    """
    from pipeline_assets.build.rows.text_export import check_output_file
    from pipeline_assets.corpus.tokens.describe import describe_o200k, describe_sentencepiece, expected_hash
    from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256

    if not path.is_file() or path.suffix in (".json", ".vocab"):
        actual = "a folder" if path.is_dir() else f"a {path.suffix} file"
        what = f"expected a .tiktoken or .model file, got {actual}" if path.exists() else "file not found"
        raise UsageError(what, path, "pass a .tiktoken or .model file")
    if metadata_json is not None:
        check_output_file(metadata_json)
    is_model = path.suffix == ".model"
    expected = expected_hash(path, expected_sha256) if is_model else expected_sha256 or VOCABULARY_SHA256
    refusal: InputError | None = None
    try:
        description = describe_sentencepiece(path, expected) if is_model else describe_o200k(path, expected)
    except InputError as error:
        if isinstance(error, UsageError):
            raise
        refusal, sha256 = error, file_sha256(path)
        description = {"file": path.name, "bytes": path.stat().st_size, "sha256": sha256, "expected_sha256": expected}
        description |= {"is_expected": sha256 == expected, "error": str(error)}
    text = json.dumps(description, indent=1, sort_keys=True)
    if metadata_json is not None:
        durable.make_folder(metadata_json.absolute().parent)
        durable.write_durably(metadata_json, text.encode() + b"\n")
    if refusal is not None:
        raise refusal
    terminal.echo(text)


def init(
    name: Annotated[str, typer.Argument(help="Name of the recipe and its artifacts.")],
    input: Inputs,
    data: terminal.Root = Path("data"),
    only_print: Annotated[bool, typer.Option("--print", help="Print the recipe instead of writing it.")] = False,
) -> None:
    """Inspect files and write a recipe for them.

    Example: corpusmill init notes --input ~/notes --input ~/papers
    """
    from pipeline_assets.corpus.normalize.drafts import draft_sources

    valid = _source_name(name.removesuffix(".yaml").removesuffix(".yml"))
    if not name or name != valid:
        what = f"the recipe's name must be lower case, without blanks, accents and .yaml, got {name!r}"
        raise UsageError(what, "init", f"write {valid or 'notes'}")
    terminal.check_root(data)
    path = data / "recipes" / f"{name}.yaml"
    if (PROJECT_RECIPES_FOLDER / path.name).exists():
        raise UsageError("a shipped recipe has this name", name, "choose another name")
    if not only_print:
        _raise_if_exists(path)
    drafts: list[SectionDraft] = []
    readers: dict[str, str] = {}  # input that reads each file, by the file's path without links
    for pattern in dict.fromkeys(input):
        folder, patterns = folder_and_patterns([pattern], _ALL_FILES)
        root, top = data.resolve(), folder.resolve()
        is_root_inside = patterns == [_ALL_FILES] and top in root.parents
        exclude = (glob.escape(str(root.relative_to(top))),) if is_root_inside else ()
        listed = SourceFolder(folder, tuple(patterns), exclude)
        sections, messages = draft_sources(listed, join_names([_source_name(folder.name) or name]), data)
        drafts += sections
        for file in matching_names(folder, patterns) if len(input) > 1 else ():
            reader = readers.setdefault(os.path.realpath(folder / file), pattern)
            if reader != pattern and not is_excluded(file, exclude):
                raise UsageError(f"the file {file} is also in {reader}", pattern, "pass each file in only one --input")
        for message in messages:
            terminal.echo(to_one_line(f"{folder}: {message}"), err=True)
    folders = to_one_line(", ".join(input)) if len(input) < 3 else f"{len(input)} folders"
    text = _RECIPE_HEAD.format(name=inline_yaml(name), folders=folders) + "\n".join(_yaml_lines(drafts)) + _RECIPE_TAIL
    if only_print:
        terminal.echo(text.rstrip("\n"))
        return
    durable.make_folder(path.parent)
    with lock_folder(path.parent):
        _raise_if_exists(path)  # another process may have written it since
        durable.write_durably(path, text.encode())
    try:
        recipe = SYSTEMS.read_recipe(path)
    except UsageError:
        durable.remove(path)
        raise
    lines = [to_one_line(draft.guess_message) for draft in drafts if draft.guess_message]
    lines.append(f"wrote {path}: {pluralize(len(drafts), 'source')}; edit it, then")
    root_option = [] if data == Path("data") else ["--data", data]
    lines += [f"  {terminal.format_command(verb, recipe.name, *root_option)}" for verb in ("plan", "run")]
    terminal.echo("\n".join(lines))


def _raise_if_exists(path: Path) -> None:
    if path.exists():
        fix = "edit it (--print prints a new draft of the same files), or choose another name"
        raise UsageError("the recipe exists", path, fix)


def recipes(
    data: terminal.Root = Path("data"),
    schema: Annotated[str | None, typer.Option(help="Print a system's JSON Schema, such as stage_a.")] = None,
    as_json: terminal.AsJson = False,
) -> None:
    """List all recipes with their state.

    Example: corpusmill recipes --data data/demo
    """
    if schema is not None:
        if schema not in SYSTEMS.pages:
            what = f"must be one of {', '.join(SYSTEMS.pages)}, got {schema!r}"
            raise UsageError(what, "--schema", "choose one of these")
        terminal.echo(json.dumps(SYSTEMS.recipe_class(schema).model_json_schema(), indent=1))
        return
    terminal.check_root(data)
    rows = []
    for name, path in recipe_paths(data).items():
        known = RecipeStatus.try_read(name, path, data)
        counts = Counter(entry.display_state for entry in known.artifacts)
        listed = ", ".join(f"{count} {state}" for state, count in counts.items())
        state = "cannot be read" if known.error else listed
        rows.append({"recipe": name, "path": path, "artifacts": counts, "error": known.error, "state": state})
    cells = [(str(row["recipe"]), str(row["state"]), str(row["path"])) for row in rows]
    terminal.print_answer(as_json, rows, terminal.align([("recipe", "artifacts", "file"), *cells]))


def _source_name(text: str) -> str:
    """Turn a text into a name that recipes accept; empty if no character is valid."""
    return slugify(text).lstrip("_.-")


def _yaml_lines(drafts: "Sequence[SectionDraft]") -> Iterator[str]:
    """Yield source sections as YAML lines; append a number to repeated source names."""
    names: set[str] = set()
    for draft in drafts:
        content, source = dict(draft.content), draft.content["source"]
        numbered = (f"{source}-{number}" for number in itertools.count(2))
        content["source"] = next(name for name in itertools.chain([source], numbered) if name not in names)
        names.add(content["source"])
        for number, (key, value) in enumerate(content.items()):
            note = f"  # {to_one_line(draft.notes[key])}" if key in draft.notes else ""
            yield f"{'  - ' if number == 0 else '    '}{key}: {inline_yaml(value)}{note}"
        yield from () if "filters" in content else [_FILTERS_HINT]
        yield _REJECTS_HINT
        yield ""
