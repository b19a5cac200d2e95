"""Pins of recipes: commits of hub datasets, written into recipe files.

Only this module accepts recipes with a branch or without a revision; all other modules require commits.
"""

import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.representer import RoundTripRepresenter
from ruamel.yaml.util import load_yaml_guess_indent

from pipeline_assets.build.systems import Systems
from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.folder_lock import lock_folder
from pipeline_assets.spine.key_types import COMMIT_PATTERN, UNPINNED
from pipeline_assets.spine.recipe_yaml import RECIPE_FORMAT, parse_yaml, read_yaml


def is_commit(revision: str) -> bool:
    """Check whether a revision is a commit; branches and tags may move."""
    return re.fullmatch(COMMIT_PATTERN, revision) is not None


def read_revision(path: Path, dataset: str, systems: Systems) -> str:
    """Return a dataset's revision as stated in a recipe; an empty string if missing.

    Raise UsageError if the recipe does not read the dataset, or reads it at several revisions.
    """
    values = read_yaml(path)
    filled = {key: _insert_placeholders(value) for key, value in values.items()}
    read = sorted({name for name, _ in systems.parse_recipe(filled, path).revisions()})
    if dataset not in read:
        known = ", ".join(read) or "no hub dataset"
        what = f"this recipe reads {known}, not {dataset}"
        raise UsageError(what, path, f"choose a recipe that reads {dataset}, or pin {known}")
    revisions = {section.get("revision") for section in _hub_sections(values, dataset)}
    if len(revisions) != 1:
        what = f"this recipe reads {dataset} at {len(revisions)} revisions"
        raise UsageError(what, path, "write the commits by hand, or set one revision for all its sources")
    return str(revisions.pop() or "")


def pin_recipe(path: Path, dataset: str, commit: str, systems: Systems) -> str:
    """Write a commit into a recipe as a dataset's revision; return the old revision.

    Comments and the order of keys are kept; a list or mapping in brackets is put on one line. A missing old revision is
    returned as an empty string. Raise UsageError if writing the YAML would change any other value.
    """
    with lock_folder(path.resolve().parent):  # another process may pin another dataset of the recipe
        before = read_revision(path, dataset, systems)
        if before == commit:
            return before
        text = RECIPE_FORMAT.read_raw(path).decode()  # with its line ends
        expected = parse_yaml(text)
        for section in _hub_sections(expected, dataset):
            section["revision"] = commit
        pinned = _set_revision(text, dataset, commit)
        if parse_yaml(pinned) != expected:
            raise UsageError("the YAML writer would change other values too", path, "write the commit by hand")
        durable.write_durably(path.resolve(), pinned.encode())  # a linked recipe remains a link
        return before


class _Representer(RoundTripRepresenter):
    """YAML writer that spells null values `null`, as the shipped recipes do."""


_Representer.add_representer(type(None), lambda writer, _: writer.represent_scalar("tag:yaml.org,2002:null", "null"))


def _set_revision(text: str, dataset: str, commit: str) -> str:
    """Return a recipe's text with `commit` as the revision of a dataset.

    Call `parse_yaml` on the text first, because ruamel.yaml limits neither nesting nor the growth of aliases.
    """
    has_crlf, text = "\r\n" in text, text.replace("\r\n", "\n")
    _, _, offset = load_yaml_guess_indent(text)
    writer = YAML()
    writer.Representer = _Representer
    writer.preserve_quotes, writer.width = True, len(text) + len(commit)
    writer.indent(sequence=2 + (offset or 0), offset=offset or 0)
    document = writer.load(text)
    for section in _hub_sections(document, dataset):
        if "revision" in section:
            section["revision"] = commit  # keeps its quotes
        else:
            section.insert(list(section).index("dataset") + 1, "revision", commit)
    written = StringIO()
    writer.dump(document, written)
    return written.getvalue().replace("\n", "\r\n" if has_crlf else "\n")


def _hub_sections(values: object, dataset: str) -> Iterator[Any]:
    """Yield all sections, at any depth, that read `dataset` from a hub."""
    if isinstance(values, dict):
        if values.get("dataset") == dataset and values.get("path") is None:
            yield values
        values = list(values.values())
    for value in values if isinstance(values, list) else ():
        yield from _hub_sections(value, dataset)


def _insert_placeholders(value: object) -> object:
    """Return recipe values, with missing or unpinned revisions set to forty zeros."""
    if isinstance(value, list):
        return [_insert_placeholders(item) for item in value]
    if not isinstance(value, dict):
        return value
    filled = {key: _insert_placeholders(item) for key, item in value.items()}
    if "dataset" in value and value.get("path") is None and not is_commit(str(value.get("revision"))):
        filled["revision"] = UNPINNED
    return filled
