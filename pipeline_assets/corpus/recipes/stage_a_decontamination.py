"""The section `decontamination` of a stage A recipe, and the artifacts that it asks for."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import pydantic

from pipeline_assets.corpus.decontamination.recipe import DecontaminationRecipe, EvaluationRecipe
from pipeline_assets.corpus.readers.source_folder import SourceFolder
from pipeline_assets.corpus.recipes import stage_a_kinds
from pipeline_assets.corpus.spine.recipe import Name
from pipeline_assets.corpus.spine.target import Target


class EvaluationSource(EvaluationRecipe):
    """An evaluation set of a recipe.

    Attributes:
        name: of its partition and its folder too.
        path: the folder of its files, absolute or below the data root; where it lies changes no byte.
    """

    name: Name
    path: str


class DecontaminationSection(DecontaminationRecipe):
    """Which documents are contaminated, and by which evaluation sets, in the order in which items are named."""

    evaluation: Annotated[tuple[EvaluationSource, ...], pydantic.Field(strict=False, min_length=1)]

    @pydantic.model_validator(mode="after")
    def _can_be_told_apart(self) -> Self:
        repeated = [name for name, count in Counter(one.name for one in self.evaluation).items() if count > 1]
        if repeated:
            raise ValueError(f"two evaluation sets are called {repeated[0]}: give each a name of its own")
        return self

    def evaluation_targets(self, name: str, folder: Path) -> tuple[Target, ...]:
        """The files of each set, each by its hash, in a folder of the set's name.

        Args:
            name: what the recipe is called.
        """
        kind = stage_a_kinds.EVALUATION
        return tuple(
            Target(
                kind=kind.name,
                name=f"{name}/{one.name}",
                folder=folder / one.name,
                stage=kind.stage,
                recipe={"files": list(one.files)},
                partition=one.name,
                export_as=f"{name}_{one.name}_evaluation.json",
                outside=SourceFolder(Path(one.path), one.files),
            )
            for one in self.evaluation
        )

    def decontaminated_target(
        self, name: str, folder: Path, sources: Sequence[str], corpora: Sequence[Target], evaluation: Sequence[Target]
    ) -> Target:
        """The Documents of some corpora without items of the sets.

        Args:
            sources: names of all that the corpora hold, in their order.
            evaluation: see `evaluation_targets`.
        """
        kind = stage_a_kinds.DECONTAMINATED
        return Target(
            kind=kind.name,
            name=name,
            folder=folder,
            stage=kind.stage,
            recipe=self._rows_content() | {"sources": list(sources)},
            upstream=(*corpora, *evaluation),
            export_as=f"{name}_decontaminated.json",
        )

    def _rows_content(self) -> dict[str, Any]:
        """What of the section bytes depend on."""
        rules = {key: value for key, value in self.content().items() if key != "evaluation"}
        sets = [{key: value for key, value in one.content().items() if key != "path"} for one in self.evaluation]
        return {"decontamination": rules, "evaluation": sets}
