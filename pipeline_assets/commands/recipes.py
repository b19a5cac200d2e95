"""init and recipes: a recipe for files that lie there, and the recipes that there are."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from pipeline_assets.commands.build import Inputs, name_of
from pipeline_assets.commands.status import KnownRecipe
from pipeline_assets.commands.terminal import AsJson, Root, aligned, answer, as_command, counted
from pipeline_assets.corpus.readers.source_folder import SourceFolder
from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.errors import UsageError
from pipeline_assets.systems.registry import SYSTEMS, read_recipe, recipe_class, recipe_paths

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


def init(
    name: Annotated[str, typer.Argument(help="Of the recipe, and of what is made.")],
    input: Inputs,
    data: Root = Path("data"),
) -> None:
    """Example: corpusmill init notes --input ~/notes --input ~/papers"""
    from pipeline_assets.commands.stage_a import folder_and_patterns
    from pipeline_assets.corpus.normalize.drafts import draft_sources

    if name_of(name) != name:
        raise UsageError(f"{name!r} is no name", "init", f"write it as recipes have it: {name_of(name) or 'notes'}")
    path = data / "recipes" / f"{name}.yaml"
    if path.exists():
        raise UsageError("a recipe of that name is there", path, "edit it, or choose another name")
    drafts: list[Draft] = []
    for one in input:
        folder, patterns = folder_and_patterns([one], "**/*")
        sections, not_read = draft_sources(SourceFolder(folder, tuple(patterns)), name_of(folder.name) or name)
        drafts += sections
        for ending, files in not_read.items():
            typer.echo(f"not read in {folder}: {ending}" + (f", {files:,} files" if files > 1 else ""), err=True)
    text = (
        _HEAD.format(name=name, folders=", ".join(input) if len(input) < 3 else f"{len(input)} places")
        + "\n".join(_sections(drafts))
        + _TAIL
    )
    durable.make_folder(path.parent)
    durable.write_durably(path, text.encode())
    try:
        recipe = read_recipe(path)
    except UsageError:
        durable.remove(path)
        raise
    lines = [f"wrote {path}: {counted(len(drafts), 'source')}; edit it, then"]
    for verb in ("plan", "run"):
        lines.append("  " + as_command(verb, recipe.name, *([] if data == Path("data") else ["--data", data])))
    typer.echo("\n".join(lines))


def recipes(
    data: Root = Path("data"),
    schema: Annotated[
        str | None, typer.Option(help="Print the JSON Schema of a system's recipes, for editors: stage_a.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Example: corpusmill recipes --data data/demo"""
    if schema is not None:
        if schema not in SYSTEMS:
            raise UsageError(f"there is no system {schema!r}", "--schema", f"give {', '.join(SYSTEMS)}")
        typer.echo(json.dumps(recipe_class(schema).model_json_schema(), indent=1))
        return
    found = [KnownRecipe.found(name, path, data) for name, path in recipe_paths(data).items()]
    rows = [_row(one) for one in found]
    cells = [(row["recipe"], row["state"], str(row["path"])) for row in rows]
    answer(as_json, rows, aligned([("recipe", "artifacts", "file"), *cells]))


def _row(one: KnownRecipe) -> dict[str, Any]:
    counts = Counter(holding.condition for holding in one.held)
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
            remark = f"  # {draft.remarks[key]}" if key in draft.remarks else ""
            yield f"{'  - ' if number == 0 else '    '}{key}: {_in_line(value)}{remark}"
        yield from () if "filters" in content else [f"    {_FILTERS}"]
        yield f"    {_REJECTS}"
        yield ""


def _in_line(value: object) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True).removesuffix("...\n").strip()
