"""Sections of a recipe of parallel text."""

from typing import Annotated, Any, Self

import pydantic

from pipeline_assets.corpus.parallel_text.pair_model import EncodeRecipe
from pipeline_assets.corpus.spine.recipe import COMMIT_PATTERN, RecipePart


class PairSource(RecipePart):
    """A translation set: of a hub at a commit, or a folder of files of the same layout.

    Attributes:
        path: the folder, absolute or below the data root; None of a hub.
        splits: of the set, in the order in which they are read.
        files: patterns of paths in it, in which `{split}` stands for each split in turn.
    """

    dataset: str | None = None
    revision: Annotated[str, pydantic.Field(pattern=COMMIT_PATTERN)] | None = None
    path: str | None = None
    splits: Annotated[tuple[str, ...], pydantic.Field(strict=False, min_length=1)] = ("train", "validation")
    files: Annotated[tuple[str, ...], pydantic.Field(strict=False, min_length=1)]

    @pydantic.field_validator("splits")
    @classmethod
    def _are_different(cls, splits: tuple[str, ...]) -> tuple[str, ...]:
        if len({*splits}) < len(splits):
            raise ValueError("a split is there twice: name each once")
        return splits

    @pydantic.model_validator(mode="after")
    def _lies_somewhere(self) -> Self:
        on_hub = self.dataset is not None and self.revision is not None
        if on_hub == (self.path is not None):
            raise ValueError("give `dataset` and `revision` of a hub, or the `path` of a folder here")
        return self

    def patterns(self) -> tuple[str, ...]:
        """Of all splits, in order."""
        return tuple(pattern.replace("{split}", split) for split in self.splits for pattern in self.files)

    def content_of_files(self) -> dict[str, Any]:
        """What decides which files are read."""
        of_hub = {} if self.path is not None else {"dataset": self.dataset, "revision": self.revision}
        return {**of_hub, "files": list(self.patterns())}


class EncodeSection(EncodeRecipe):
    """How a sample becomes ids, and where a model that is given lies.

    Attributes:
        model: absolute, or below the data root; changes no byte, since `model_sha256` says what it is.
    """

    model: str | None = None

    @pydantic.model_validator(mode="after")
    def _is_pinned(self) -> Self:
        if (self.model is None) != (self.model_sha256 is None):
            raise ValueError("give both `model` and `model_sha256`, or neither: then one is trained")
        return self

    def cache_content(self) -> dict[str, Any]:
        """What bytes depend on: of a model that is given, nothing that would train one."""
        mine = {"model_sha256", "seq_len"} if self.model_sha256 else EncodeRecipe.model_fields.keys()
        return {key: value for key, value in self.content().items() if key in mine}
