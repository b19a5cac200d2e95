"""A dataset as a nemotron recipe names it."""

import re
from typing import Annotated, Self

import pydantic

from pipeline_assets.corpus.nemotron.row_settings import DOMAINS, Domain, Effort
from pipeline_assets.corpus.nemotron.splits import dataset_key
from pipeline_assets.corpus.spine.lineage import AREAS
from pipeline_assets.corpus.spine.recipe import COMMIT_PATTERN, RecipePart

Texts = Annotated[tuple[str, ...], pydantic.Field(strict=False, min_length=1)]


class DatasetSection(RecipePart):
    """One dataset: of a hub, at a commit, or a folder here of the same layout.

    Attributes:
        dataset: owner/name; of a folder, any name: it is what its rows are said to be of.
        revision: 40 hex digits; None of a folder. Forty zeros are a commit that nobody has looked up yet: such a
            dataset can be planned and not built.
        path: of a folder, absolute or below the data root; None of a hub. Where it lies changes no byte.
        splits: which of them; the card names them, else the files do.
        files: patterns by split, see `hub_configs`, where the card isn't to be asked.
        subset: which of the hub's configurations rows are said to be of; None for that which the card names, if any.
        domain: of the rows; None of the five, of which it is known.
        reasoning_effort: by split, where it says how hard whoever answered was told to think: their system message says
            that.
    """

    dataset: str
    revision: str | None = None
    path: str | None = None
    splits: Texts
    files: dict[str, Texts] = pydantic.Field(default_factory=dict)
    subset: str | None = None
    domain: Domain | None = None
    reasoning_effort: dict[str, Effort] = pydantic.Field(default_factory=dict)

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
        for key, named in (("files", self.files), ("reasoning_effort", self.reasoning_effort)):
            for split in named:
                if split not in self.splits:
                    raise ValueError(f"`{key}` has {split!r}, which is none of `splits`")
        return self

    @property
    def rows_domain(self) -> Domain | None:
        """The domain of its rows; None if nobody says it."""
        return self.domain or known_domain(self.dataset)


def known_domain(dataset: str) -> Domain | None:
    """The domain of one of the five datasets, by its name; None of any other."""
    known = {dataset_key(name): domain for name, domain in DOMAINS.items()}
    return known.get(dataset_key(dataset))
