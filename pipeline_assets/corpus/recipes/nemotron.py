"""The nemotron recipe: datasets at a commit, split by split, and the artifacts that it names."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

import pydantic

from pipeline_assets.corpus.nemotron.rows_recipe import Domain, RowsRecipe
from pipeline_assets.corpus.nemotron.split_pin import SplitFolder
from pipeline_assets.corpus.nemotron.splits import dataset_key, partition_key
from pipeline_assets.corpus.recipes import nemotron_kinds
from pipeline_assets.corpus.recipes.kind import Kind
from pipeline_assets.corpus.recipes.nemotron_dataset import DatasetSection
from pipeline_assets.corpus.spine.recipe import Recipe, RecipePart
from pipeline_assets.corpus.spine.target import Target


class Scan(RecipePart):
    """How much of each split the inventory reads.

    Attributes:
        max_rows: of a sample that lies evenly over its files; None for all.
    """

    max_rows: int | None = pydantic.Field(ge=1)


class HubLayout(RecipePart):
    """Splits of a dataset in one folder, as a hub has them.

    Attributes:
        readme: with the dataset's card.
    """

    readme: bool


class NemotronRecipe(Recipe):
    """Everything that decides the bytes; a section that isn't there asks for none of its artifacts."""

    system: Literal["nemotron"]
    scan: Scan | None = None
    rows: RowsRecipe | None = None
    hf_layout: HubLayout | None = None
    datasets: Annotated[tuple[DatasetSection, ...], pydantic.Field(strict=False, min_length=1)]

    @pydantic.model_validator(mode="after")
    def _can_be_told_apart(self) -> Self:
        keys = Counter(partition_key(section.dataset, split) for section in self.datasets for split in section.splits)
        repeated = [key for key, times in keys.items() if times > 1]
        if repeated:
            raise ValueError(f"{repeated[0]} is there twice: name each split once")
        return self

    @pydantic.model_validator(mode="after")
    def _asks_for_something(self) -> Self:
        if self.scan is None and self.rows is None:
            raise ValueError("it asks for nothing: add `scan` for inventories, `rows` for normalised rows")
        if self.hf_layout is not None and self.rows is None:
            raise ValueError("`hf_layout` lays out normalised rows: add `rows`")
        datasets = Counter(dataset_key(section.dataset) for section in self.datasets)
        if self.hf_layout is not None and max(datasets.values()) > 1:
            raise ValueError(f"{max(datasets, key=datasets.__getitem__)} is there twice: `hf_layout` needs it once")
        if self.rows is None:
            return self
        for section in self.datasets:
            if section.rows_domain is None:
                raise ValueError(f"{section.dataset} needs a `domain`: one of {', '.join(get_args(Domain))}")
            if section.reasoning_effort and self.rows.system is None:
                raise ValueError(f"`reasoning_effort` of {section.dataset} is told in a system message: add `system`")
        return self

    def raw(self, section: DatasetSection, split: str) -> Target:
        """The files that a split is made of."""
        patterns = {name: list(files) for name, files in section.files.items() if name == split}
        content: dict[str, Any] = {"dataset": section.dataset, "split": split, "files": patterns}
        if section.path is None:
            return self._target(nemotron_kinds.RAW, section, split, content | {"revision": section.revision}, ())
        outside = SplitFolder(Path(section.path), split, patterns)
        return self._target(nemotron_kinds.RAW, section, split, content, (), outside)

    def inventory(self, section: DatasetSection, split: str) -> Target | None:
        """What the rows of a split are."""
        if self.scan is None:
            return None
        upstream = (self.raw(section, split),)
        return self._target(nemotron_kinds.INVENTORY, section, split, self.scan.content(), upstream)

    def metadata_coverage(self) -> Target | None:
        """The inventories of all splits as one."""
        inventories = [self.inventory(section, split) for section, split in self.all_splits()]
        kind = nemotron_kinds.METADATA_COVERAGE
        if self.scan is None:
            return None
        return Target(
            kind=kind.name,
            name=self.name,
            folder=Path("nemotron", self.name, "metadata_coverage"),
            stage=kind.stage,
            recipe={},
            upstream=tuple(inventory for inventory in inventories if inventory is not None),
            export_as=f"{self.name}_metadata_coverage.json",
        )

    def normalized_shards(self, section: DatasetSection, split: str) -> Target | None:
        """The rows of a split as texts with their metadata."""
        if self.rows is None:
            return None
        content: dict[str, Any] = {
            "subset": section.subset,
            "domain": section.rows_domain,
            "reasoning_effort": section.reasoning_effort.get(split),
            "rows": {key: value for key, value in self.rows.content().items() if key != "tokenizer"},
        }
        upstream = (self.raw(section, split),)
        target = self._target(
            nemotron_kinds.NORMALIZED_SHARDS, section, split, content, upstream, None, self.rows.tokenizer.content()
        )
        inventory = self.inventory(section, split)
        return target if inventory is None else replace(target, compared_to=(inventory,))

    def hub_folder(self, section: DatasetSection) -> Target | None:
        """The normalised rows of a dataset's splits in one folder, as a hub has them."""
        shards = [self.normalized_shards(section, split) for split in section.splits]
        if self.hf_layout is None:
            return None
        kind, key = nemotron_kinds.HF_LAYOUT, dataset_key(section.dataset)
        return Target(
            kind=kind.name,
            name=f"{self.name}/{key}",
            folder=Path("nemotron", self.name, "hf_layout", key),
            stage=kind.stage,
            recipe=self.hf_layout.content(),
            upstream=tuple(target for target in shards if target is not None),
            partition=key,
            export_as=f"{self.name}_{key}_hf_layout.json",
        )

    def all_splits(self) -> list[tuple[DatasetSection, str]]:
        """Every split with its dataset, in the recipe's order."""
        return [(section, split) for section in self.datasets for split in section.splits]

    def split(self, key: str) -> tuple[DatasetSection, str] | None:
        """The split of a partition, such as `nemotron-math-v2/low`."""
        return next((one for one in self.all_splits() if partition_key(one[0].dataset, one[1]) == key), None)

    def dataset(self, key: str) -> DatasetSection | None:
        """The dataset of a partition, such as `nemotron-math-v2`."""
        return next((section for section in self.datasets if dataset_key(section.dataset) == key), None)

    def revisions(self) -> list[tuple[str, str]]:
        """Dataset and commit of everything that is read from a hub."""
        return [(section.dataset, section.revision) for section in self.datasets if section.revision is not None]

    def targets(self) -> Sequence[Target]:
        """Every artifact, upstream first."""
        of_splits = [
            target
            for section, split in self.all_splits()
            for target in (
                self.raw(section, split),
                self.inventory(section, split),
                self.normalized_shards(section, split),
            )
        ]
        of_datasets = [self.hub_folder(section) for section in self.datasets]
        return [target for target in (*of_splits, self.metadata_coverage(), *of_datasets) if target is not None]

    def _target(
        self,
        kind: Kind,
        section: DatasetSection,
        split: str,
        content: dict[str, Any],
        upstream: tuple[Target, ...],
        outside: SplitFolder | None = None,
        tokenizer: Mapping[str, object] | None = None,
    ) -> Target:
        step, key = kind.name.partition("/")[2], partition_key(section.dataset, split)
        return Target(
            kind=kind.name,
            name=f"{self.name}/{key}",
            folder=Path("nemotron", self.name, step, key),
            stage=kind.stage,
            recipe=content,
            upstream=upstream,
            tokenizer=tokenizer,
            partition=key,
            export_as=f"{self.name}_{key.replace('/', '_')}_{step}.json",
            outside=outside,
        )
