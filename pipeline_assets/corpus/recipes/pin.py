"""Moves a recipe to another commit: the commit alone changes, comments and order stay."""

from collections.abc import Iterator
from pathlib import Path

import yaml

from pipeline_assets.corpus.recipes.systems import read_recipe
from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.errors import UsageError


def pin_recipe(path: Path, dataset: str, commit: str) -> str:
    """Writes `commit` as the recipe's revision of `dataset`.

    Returns:
        the revision that was there before.
    Raises:
        UsageError: the recipe reads another dataset, or this one at several commits.
    """
    revisions = read_recipe(path).revisions()
    commits = {revision for name, revision in revisions if name == dataset}
    if not commits:
        read = ", ".join(dict.fromkeys(sorted(name for name, _ in revisions))) or "no hub dataset"
        raise UsageError(f"this recipe reads {read}, not {dataset}", path, f"give a recipe of {dataset}, or pin {read}")
    if len(commits) > 1:
        what = f"it reads {dataset} at {len(commits)} commits"
        raise UsageError(what, path, "pin by hand, or give its sources one commit")
    [before] = commits
    if before != commit:
        text = path.read_text(encoding="utf-8")
        places = _places(yaml.compose(text), dataset, before)
        if not all(text.startswith(before, start) for start in places):
            raise UsageError("its revision is not one plain or quoted word", path, "write it as one")
        for start in sorted(places, reverse=True):
            text = text[:start] + commit + text[start + len(before) :]
        durable.write_durably(path, text.encode())
    return before


def _places(node: yaml.Node | None, dataset: str, commit: str) -> set[int]:
    """Where in the text the commit stands as the revision of a section that reads the dataset."""
    return {start for section in _sections(node) for start in _revision_in(section, dataset, commit)}


def _sections(node: yaml.Node | None) -> Iterator[yaml.MappingNode]:
    if isinstance(node, yaml.MappingNode):
        yield node
        for _, value in node.value:
            yield from _sections(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from _sections(value)


def _revision_in(section: yaml.MappingNode, dataset: str, commit: str) -> Iterator[int]:
    values = {key.value: value for key, value in section.value if isinstance(value, yaml.ScalarNode)}
    if "dataset" in values and "revision" in values and values["dataset"].value == dataset:
        revision = values["revision"]
        if revision.value == commit:
            yield revision.start_mark.index + len(revision.style or "")
