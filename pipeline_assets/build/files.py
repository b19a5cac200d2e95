"""Recipe files that are written: a recipe is moved to a commit, made from options, or written again at new heads.

`pin_recipe` changes revisions alone: comments and order stay. Only here may a recipe name a branch, or no
revision at all: everything else reads recipes that are pinned. `write_new_recipe` writes a recipe among those of the
data root; what somebody wrote or edited by hand is never lost.

A version of a recipe is the same at the heads that its datasets had on a day, or in a week: a recipe of its own,
`NAME_YYYYMMDD.yaml`, written once, so that whoever builds it again gets the same pins. Its artifacts lie in folders of
their own; what is as the version before has it is taken over, and no byte of it is written again.
"""

import hashlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from ruamel.yaml import YAML
from ruamel.yaml.representer import RoundTripRepresenter
from ruamel.yaml.util import load_yaml_guess_indent

from pipeline_assets.build.recipe import Recipe
from pipeline_assets.build.recipe_paths import recipe_path
from pipeline_assets.build.systems import Systems
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import InputError, TransientError, UsageError
from pipeline_assets.spine.recipe_yaml import RECIPE_FILE, parse_yaml, read_yaml
from pipeline_assets.spine.section import COMMIT_PATTERN, UNPINNED
from pipeline_assets.spine.temporary_names import temporary_path


def is_commit(revision: str) -> bool:
    """Whether a revision says which rows there are: a branch or a tag may move."""
    return re.fullmatch(COMMIT_PATTERN, revision) is not None


def revision_in(path: Path, dataset: str, systems: Systems) -> str:
    """The recipe's revision of a dataset; empty where it has none. Raises UsageError: the recipe reads another dataset,
    or this one at several revisions, or something else is wrong in it.
    """
    values = read_yaml(path)
    filled = {key: _filled(value) for key, value in values.items()}
    read = sorted({name for name, _ in systems.parse_recipe(filled, path).revisions()})
    if dataset not in read:
        known = ", ".join(read) or "no hub dataset"
        what = f"this recipe reads {known}, not {dataset}"
        raise UsageError(what, path, f"give a recipe of {dataset}, or pin {known}")
    revisions = {section.get("revision") for section in _hub_sections(values, dataset)}
    if len(revisions) != 1:
        what = f"it reads {dataset} at {len(revisions)} revisions"
        raise UsageError(what, path, "pin by hand, or give its sources one revision")
    return str(revisions.pop() or "")


def pin_recipe(path: Path, dataset: str, commit: str, systems: Systems) -> str:
    """Write `commit` as the recipe's revision of `dataset`.

    Comments and the order of keys stay; a list or mapping in brackets becomes one line.

    Returns:
        the revision that was there before; empty where there was none.
    Raises:
        UsageError: as `revision_in`, or another value would change.
    """
    before = revision_in(path, dataset, systems)
    if before == commit:
        return before
    text = RECIPE_FILE.read_raw(path).decode()  # line ends as they are
    expected = parse_yaml(text)
    for section in _hub_sections(expected, dataset):
        section["revision"] = commit
    pinned = _with_revision(text, dataset, commit)
    if parse_yaml(pinned) != expected:
        raise UsageError("its revision can't be changed without another value", path, "write the commit by hand")
    durable.write_durably(path, pinned.encode())
    return before


class _Representer(RoundTripRepresenter):
    """Writes `null` where a value is null, as the shipped recipes do."""


_Representer.add_representer(type(None), lambda writer, _: writer.represent_scalar("tag:yaml.org,2002:null", "null"))


def _with_revision(text: str, dataset: str, commit: str) -> str:
    """Return a recipe with another revision of a dataset.

    Args:
        text: accepted by `parse_yaml`: ruamel.yaml limits neither depth nor growth.
    """
    is_of_windows, text = "\r\n" in text, text.replace("\r\n", "\n")
    _, _, offset = load_yaml_guess_indent(text)
    writer = YAML()
    writer.Representer = _Representer
    writer.preserve_quotes, writer.width = True, len(text) + len(commit)
    writer.indent(sequence=2 + (offset or 0), offset=offset or 0)
    document = writer.load(text)
    for section in _hub_sections(document, dataset):
        if "revision" in section:
            section["revision"] = commit  # in the quotes that are there
        else:
            section.insert(list(section).index("dataset") + 1, "revision", commit)
    written = StringIO()
    writer.dump(document, written)
    return written.getvalue().replace("\n", "\r\n" if is_of_windows else "\n")


def _hub_sections(values: object, dataset: str) -> Iterator[Any]:
    """Yield the sections that read a dataset from a hub."""
    if isinstance(values, dict):
        if values.get("dataset") == dataset and values.get("path") is None:
            yield values
        values = list(values.values())
    for value in values if isinstance(values, list) else ():
        yield from _hub_sections(value, dataset)


def _filled(value: object) -> object:
    """A part of a recipe with forty zeros wherever it names no commit."""
    if isinstance(value, list):
        return [_filled(item) for item in value]
    if not isinstance(value, dict):
        return value
    filled = {key: _filled(item) for key, item in value.items()}
    if "dataset" in value and value.get("path") is None and not is_commit(str(value.get("revision"))):
        filled["revision"] = UNPINNED
    return filled


_WRITTEN = "# Written by corpusmill {command}, and not again once it was edited: {sha256}\n"
_BEGINS = "# Written by corpusmill "
R = TypeVar("R", bound=Recipe)


def write_new_recipe(
    kind: type[R], content: Mapping[str, object], root: Path, command: str, replace: bool
) -> tuple[R, Path]:
    """The recipe of this content, and its file, whose first line names the command that writes it; not written where it
    can't be built. Raises UsageError: a section can't be what it is, the file is another's, or another version of an
    artifact is sealed in its place and may not be replaced.
    """
    path = root / "recipes" / f"{content['name']}.yaml"
    recipe = kind.from_mapping(content, path)
    for target in recipe.targets():
        if target.external_inputs is None:
            target.raise_if_occupied(root, replace)
    text = _marked(yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True, width=120), command)
    if path.exists():
        if RECIPE_FILE.read_raw(path) == text.encode():
            return recipe, path
        _refuse_to_lose(path, recipe, root, command, replace)
    durable.make_folder(path.parent)
    durable.write_durably(path, text.encode("utf-8"))
    return recipe, path


def keep_recipe(path: Path, name: str, root: Path, replace: bool) -> Path:
    """Copy the file of a recipe to those of the data root, under its name; return the copy.

    Raises:
        UsageError: Another recipe of that name exists, and `replace` is not set.
    """
    kept = root / "recipes" / f"{name}.yaml"
    if path.absolute() != kept.absolute():
        text = RECIPE_FILE.read_raw(path)
        if kept.exists() and RECIPE_FILE.read_raw(kept) != text and not replace:
            fix = "give its name, rename one of them, or run with --replace"
            raise UsageError("another recipe is there", kept, fix)
        durable.make_folder(kept.parent)
        durable.write_durably(kept, text)
    return kept


def _marked(content: str, command: str) -> str:
    """A recipe as it is written: its first line tells whether it was edited since."""
    return _WRITTEN.format(command=command, sha256=hashlib.sha256(content.encode()).hexdigest()[:16]) + content


def _refuse_to_lose(path: Path, recipe: Recipe, root: Path, command: str, replace: bool) -> None:
    """Raises UsageError: the recipe in the file was written or edited by hand, or made artifacts that the new one
    doesn't speak of.
    """
    if replace:
        return
    fix = "rename that file, or run with --replace"
    there = RECIPE_FILE.read_raw(path).decode("utf-8", "replace")
    if not there.startswith(_BEGINS + command):
        raise UsageError("another recipe is there", path, fix)
    if there != _marked(there.partition("\n")[2], command):
        fix = f"run it with `corpusmill run {path} --data {root} --replace`; or {fix}"
        raise UsageError("it was edited since it was written", path, fix)
    asked = {target.folder for target in recipe.targets()}
    for target in type(recipe).read(path).targets():
        if target.folder not in asked and target.matches_recipe(root):
            raise UsageError(f"the recipe that is there made {target.folder}, this one doesn't", path, fix)


Period = Literal["day", "week"]
_NAME_LINE = re.compile(r"^name:[^\n]*$", re.MULTILINE)
_DATE = "[0-9]" * 8
logger = logging.getLogger("corpusmill")


@dataclass(frozen=True)
class Version:
    """The version of a recipe that is to be there.

    Attributes:
        path: of its recipe; of the newest one where no head moved.
        before: the recipe of the version before it; None where there is none.
        moved: which datasets have another commit than in that, in words.
        unreachable: why the hub tells no head of some datasets: these stay where they were.
    """

    path: Path
    before: Path | None = None
    moved: list[str] = field(default_factory=list)
    unreachable: list[InputError] = field(default_factory=list)


def first_day(moment: datetime, period: Period) -> str:
    """Return YYYYMMDD of the day, or of the Monday of its week."""
    return f"{moment - timedelta(days=moment.weekday() if period == 'week' else 0):%Y%m%d}"


def version_for(
    name: str, root: Path, systems: Systems, hub: HubFiles, moment: datetime, period: Period = "day"
) -> Version:
    """Return the version of a recipe at a moment.

    Its file is written if a head moved since the last version.

    Raises:
        InputError: the hub answers for no dataset, or the recipe cannot be changed in place.
    """
    base = recipe_path(name, root)
    versions = list_versions(name, root)
    path = root / "recipes" / f"{name}_{first_day(moment, period)}.yaml"
    if path in versions:
        return Version(path, earlier_version(name, first_day(moment, period), root))
    newest = versions[-1] if versions else base
    pinned, heads, unreachable = dict(systems.read_recipe(newest).revisions()), dict[str, str](), list[InputError]()
    for dataset in dict.fromkeys(dataset for dataset, _ in systems.read_recipe(base).revisions()):
        try:
            heads[dataset] = hub.resolve(dataset, "main")
        except TransientError:
            raise
        except InputError as error:
            unreachable.append(error)
    if unreachable and not heads:
        raise unreachable[0]
    moved = [f"{one}: {pinned.get(one)} → {head}" for one, head in heads.items() if pinned.get(one) != head]
    if not moved:
        return Version(newest, unreachable=unreachable)
    durable.make_folder(path.parent)
    text = _NAME_LINE.sub(f"name: {path.stem}", RECIPE_FILE.read_raw(base).decode(), count=1)
    folder = temporary_path(path)
    building = folder / path.name
    durable.make_folder(folder)
    try:
        durable.write_durably(building, text.encode())
        for dataset, commit in (pinned | heads).items():
            pin_recipe(building, dataset, commit, systems)
        durable.rename(building, path)
    finally:
        durable.remove(folder)
    return Version(path, newest, moved, unreachable)


def list_versions(name: str, root: Path) -> list[Path]:
    """List the recipe files of a recipe's versions, by date."""
    return sorted((root / "recipes").glob(f"{name}_{_DATE}.yaml"))


def earlier_version(name: str, date: str, root: Path) -> Path:
    """Return the file of the version before a date; the recipe's own if none exists."""
    earlier = [path for path in list_versions(name, root) if path.stem < f"{name}_{date}"]
    return earlier[-1] if earlier else recipe_path(name, root)


def delete_versions(
    name: str, root: Path, systems: Systems, keep: int, say: Callable[[str], None] = logger.info
) -> None:
    """Remove the artifacts of all but the `keep` newest versions.

    Recipe files and artifacts that another recipe requests are kept. At least one version is kept.
    """
    old = {path.stem for path in list_versions(name, root)[: -max(keep, 1)]}
    recipes, _ = systems.load_recipes(root)
    kept = {folder for recipe in recipes if recipe.name not in old for folder in _folders(recipe)}
    for recipe in recipes:
        for folder in _folders(recipe) - kept if recipe.name in old else ():
            if (root / folder).exists():
                durable.remove(root / folder)
                say(f"removed {folder}: the newest {keep} versions are kept")


def _folders(recipe: Recipe) -> set[Path]:
    return {target.folder for target in recipe.targets()}
