"""The nemotron recipe: datasets at a commit, split by split, and the artifacts that it names."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pydantic

from pipeline_assets.corpus.nemotron.split_pin import SplitFolder
from pipeline_assets.corpus.nemotron.splits import dataset_key, partition_key
from pipeline_assets.corpus.recipes import nemotron_kinds
from pipeline_assets.corpus.recipes.kind import Kind
from pipeline_assets.corpus.spine.lineage import AREAS
from pipeline_assets.corpus.spine.recipe import COMMIT_PATTERN, Recipe, RecipePart
from pipeline_assets.corpus.spine.target import Target

Texts = Annotated[tuple[str, ...], pydantic.Field(strict=False, min_length=1)]


class DatasetSection(RecipePart):
    """One dataset: of a hub, at a commit, or a folder here of the same layout.

    Attributes:
        dataset: owner/name; of a folder, any name: it is what its rows are said to be of.
        revision: 40 hex digits; None of a folder. Forty zeros are a commit that nobody has looked up yet: such a
            dataset can be planned and not built.
        path: of a folder, absolute or below the data root; None of a hub. Where it lies changes no byte.
        splits: which of them; the card names them, else the files do.
        files: patterns by split, as fnmatch reads them, where the card isn't to be asked.
    """

    dataset: str
    revision: str | None = None
    path: str | None = None
    splits: Texts
    files: dict[str, Texts] = pydantic.Field(default_factory=dict)

    @pydantic.model_validator(mode="after")
    def _is_of_a_hub_or_a_folder(self) -> Self:
        if (self.revision is None) == (self.path is None):
            raise ValueError(f"{self.dataset}: give `revision` for a dataset of a hub, or `path` for a folder here")
        if self.revision is not None and not re.fullmatch(r"[\w.-]+/[\w.-]+", self.dataset):
            raise ValueError(f"{self.dataset!r} is no dataset: write owner/name, such as nvidia/Nemotron-Science-v1")
        if self.revision is not None and not re.fullmatch(COMMIT_PATTERN, self.revision):
            raise ValueError(
                f"the revision of {self.dataset} is {self.revision!r}, and a revision is a commit of 40 hex digits, "
                "since a branch moves; `corpusmill pin` gives the commit"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _can_be_a_folder(self) -> Self:
        if not dataset_key(self.dataset) or dataset_key(self.dataset) in AREAS:
            raise ValueError(f"{self.dataset!r} can't be the name of a folder here: give it another")
        for split in self.splits:
            if not re.fullmatch(r"\w[\w.-]*", split):
                raise ValueError(f"{split!r} is no split: its name has letters, digits, `_`, `.` and `-`")
        for split in self.files:
            if split not in self.splits:
                raise ValueError(f"`files` has {split!r}, which is none of `splits`")
        return self


class Scan(RecipePart):
    """How much of each split the inventory reads.

    Attributes:
        max_rows: of a sample that lies evenly over its files; None for all.
    """

    max_rows: int | None = pydantic.Field(ge=1)


class NemotronRecipe(Recipe):
    """Everything that decides the bytes of the inventories."""

    system: Literal["nemotron"]
    scan: Scan
    datasets: Annotated[tuple[DatasetSection, ...], pydantic.Field(strict=False, min_length=1)]

    @pydantic.model_validator(mode="after")
    def _can_be_told_apart(self) -> Self:
        keys = Counter(partition_key(section.dataset, split) for section in self.datasets for split in section.splits)
        repeated = [key for key, times in keys.items() if times > 1]
        if repeated:
            raise ValueError(f"{repeated[0]} is there twice: name each split once")
        return self

    def raw(self, section: DatasetSection, split: str) -> Target:
        """The files that a split is made of."""
        patterns = {name: list(files) for name, files in section.files.items() if name == split}
        content: dict[str, Any] = {"dataset": section.dataset, "split": split, "files": patterns}
        if section.path is None:
            return self._target(nemotron_kinds.RAW, section, split, content | {"revision": section.revision}, ())
        outside = SplitFolder(Path(section.path), split, patterns)
        return self._target(nemotron_kinds.RAW, section, split, content, (), outside)

    def inventory(self, section: DatasetSection, split: str) -> Target:
        """What the rows of a split are."""
        upstream = (self.raw(section, split),)
        return self._target(nemotron_kinds.INVENTORY, section, split, self.scan.content(), upstream)

    def metadata_coverage(self) -> Target:
        """The inventories of all splits as one."""
        kind = nemotron_kinds.METADATA_COVERAGE
        return Target(
            kind=kind.name,
            name=self.name,
            folder=Path("nemotron", self.name, "metadata_coverage"),
            stage=kind.stage,
            recipe={},
            upstream=tuple(self.inventory(section, split) for section, split in self.all_splits()),
            export_as=f"{self.name}_metadata_coverage.json",
        )

    def all_splits(self) -> list[tuple[DatasetSection, str]]:
        """Every split with its dataset, in the recipe's order."""
        return [(section, split) for section in self.datasets for split in section.splits]

    def split(self, key: str) -> tuple[DatasetSection, str] | None:
        """The split of a partition, such as `nemotron-math-v2/low`."""
        return next((one for one in self.all_splits() if partition_key(one[0].dataset, one[1]) == key), None)

    def revisions(self) -> list[tuple[str, str]]:
        """Dataset and commit of everything that is read from a hub."""
        return [(section.dataset, section.revision) for section in self.datasets if section.revision is not None]

    def targets(self) -> Sequence[Target]:
        """Every artifact, upstream first."""
        of_splits = [
            target
            for section, split in self.all_splits()
            for target in (self.raw(section, split), self.inventory(section, split))
        ]
        return [*of_splits, self.metadata_coverage()]

    def _target(
        self,
        kind: Kind,
        section: DatasetSection,
        split: str,
        content: dict[str, Any],
        upstream: tuple[Target, ...],
        outside: SplitFolder | None = None,
    ) -> Target:
        step, key = kind.name.partition("/")[2], partition_key(section.dataset, split)
        return Target(
            kind=kind.name,
            name=f"{self.name}/{key}",
            folder=Path("nemotron", self.name, step, key),
            stage=kind.stage,
            recipe=content,
            upstream=upstream,
            partition=key,
            export_as=f"{self.name}_{key.replace('/', '_')}_{step}.json",
            outside=outside,
        )
