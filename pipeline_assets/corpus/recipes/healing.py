"""The healing recipe: FineWeb-Edu at a commit → Megatron train and valid splits, and the artifacts that it names."""

from pathlib import Path
from typing import Literal

from pipeline_assets.corpus.megatron_recipe import MegatronRecipe
from pipeline_assets.corpus.recipes import healing_kinds
from pipeline_assets.corpus.sampling.split import SPLITS, Split
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.corpus.spine.recipe import Recipe
from pipeline_assets.corpus.spine.target import Target
from pipeline_assets.corpus.text_selection import SelectionRecipe


class HealingRecipe(Recipe):
    """Everything that decides the bytes of the healing set, a section for each artifact."""

    system: Literal["healing"]
    snapshot: SnapshotRecipe
    selection: SelectionRecipe
    megatron: MegatronRecipe

    def fineweb_edu_snapshot(self) -> Target:
        """Document shards, by dataset and commit: recipes of one commit and one sample share it, whatever their token
        budgets.
        """
        return Target(
            kind=healing_kinds.FINEWEB_EDU_SNAPSHOT.name,
            name=f"{self.snapshot.name}_{self.snapshot.revision}",
            named_by="snapshot.name",
            folder=Path("corpora", self.snapshot.name, self.snapshot.revision),
            stage=healing_kinds.FINEWEB_EDU_SNAPSHOT.stage,
            recipe=self.snapshot.rows_content(),
            made_for=self._described(),
            export_as=f"{self.snapshot.name}_{self.snapshot.revision}.json",
        )

    def healing_text_manifest(self) -> Target:
        """The selection of shards."""
        return Target(
            kind=healing_kinds.HEALING_TEXT_MANIFEST.name,
            name=self.name,
            folder=Path("selections", self.name),
            stage=healing_kinds.HEALING_TEXT_MANIFEST.stage,
            recipe={**self.selection.content(), "valid_fraction": self.megatron.valid_fraction},
            made_for=self._described(),
            upstream=(self.fineweb_edu_snapshot(),),
            export_as=f"{self.name}.json",
        )

    def megatron_split(self, split: Split) -> Target:
        """Token files of one split."""
        return Target(
            kind=healing_kinds.MEGATRON_SPLIT.name,
            name=f"{self.name}/{split}",
            folder=Path("megatron", self.name, split),
            stage=healing_kinds.MEGATRON_SPLIT.stage,
            recipe={**self.megatron.content(), "split": split},
            upstream=(self.healing_text_manifest(),),
            tokenizer=self.megatron.tokenizer.content(),
            partition=split,
            export_as=f"{self.name}_{split}.json",
        )

    def megatron_dataset(self) -> Target:
        """Both splits under one digest."""
        return Target(
            kind=healing_kinds.MEGATRON_DATASET.name,
            name=self.name,
            folder=Path("megatron", self.name),
            stage=healing_kinds.MEGATRON_DATASET.stage,
            recipe=self.megatron.content(),
            upstream=(self.healing_text_manifest(), *(self.megatron_split(split) for split in SPLITS)),
            tokenizer=self.megatron.tokenizer.content(),
            export_as=f"{self.name}_megatron.json",
        )

    def revisions(self) -> list[tuple[str, str]]:
        """Dataset and commit of everything that is read from a hub."""
        return [(self.snapshot.dataset, self.snapshot.revision)]

    def _described(self) -> dict[str, object]:
        return {"recipe": self.name, **self.megatron.described()}

    def targets(self) -> list[Target]:
        """Every artifact, upstream first."""
        splits = [self.megatron_split(split) for split in SPLITS]
        return [self.fineweb_edu_snapshot(), self.healing_text_manifest(), *splits, self.megatron_dataset()]
