"""Datasets of a recipe."""

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import pydantic

from pipeline_assets.corpus.nemotron.splits import dataset_key
from pipeline_assets.spine.lineage import AREAS
from pipeline_assets.spine.section import COMMIT_PATTERN, Option, RecipeSection

Domain = Literal["math", "proof", "science", "agentic", "chat_if"]
Effort = Literal["low", "medium", "high"]

DOMAINS: dict[str, Domain] = {
    "nvidia/Nemotron-Math-v2": "math",
    "nvidia/Nemotron-Math-Proofs-v1": "proof",
    "nvidia/Nemotron-Science-v1": "science",
    "nvidia/Nemotron-Agentic-v1": "agentic",
    "nvidia/Nemotron-Instruction-Following-Chat-v1": "chat_if",
    "radna0/nemotron-math-v2-harmony-tools": "math",
}
# How hard gpt-oss-120b was told to think when it answered, by split: what these are named after.
EFFORTS: dict[str, dict[str, Effort]] = {
    "nvidia/Nemotron-Math-v2": {
        "high_part00": "high",
        "high_part01": "high",
        "high_part02": "high",
        "medium": "medium",
        "low": "low",
    }
}


@dataclass(frozen=True)
class RowOrigin:
    """Where the rows of a block come from.

    Attributes:
        dataset: as the hub names it, `nvidia/Nemotron-Math-v2`.
        subset: the hub's configuration, such as `default`.
        split: `high_part00`.
        domain: of the dataset; `DOMAINS` has the six, for any other the recipe says it.
        file: as the manifest's inputs name it.
        revision: the commit, 40 hex digits; None of a folder.
    """

    dataset: str
    subset: str
    split: str
    domain: Domain
    file: str
    revision: str | None


_EFFORT = re.compile("(?<![a-z])(low|medium|high)(?![a-z])")  # in a split's name, as a word
Texts = Annotated[tuple[str, ...], pydantic.Field(strict=False, min_length=1)]


class DatasetSection(RecipeSection):
    """One dataset: of a hub, at a commit, or a folder here of the same layout.

    Attributes:
        dataset: owner/name; of a folder, any name: it is what its rows are said to be of.
        revision: 40 hex digits; None of a folder. Forty zeros are a commit that nobody has looked up yet: such a
            dataset can be planned and not built.
        path: of a folder, absolute or below the data root; None of a hub. Where it lies changes no byte.
        splits: which of them; the card names them, else the files do.
        files: patterns by split, see `hub_configs`, where the card isn't to be asked.
        subset: the hub's configuration that rows are said to be of; None for the card's, else `default`.
        domain: of the rows; None of the six, of which it is known.
        reasoning_effort: by split, where it says how hard whoever answered was told to think: their system message says
            that.
    """

    dataset: str
    revision: Annotated[
        str | None, Option("Branch, tag or commit; its commit is written down. Default: main.", default=None)
    ] = None
    path: str | None = None
    splits: Annotated[Texts, Option("Only this one, such as low; repeatable.", "split", default=None)]
    files: dict[str, Texts] = pydantic.Field(default_factory=dict)
    subset: str | None = None
    domain: Annotated[
        Domain | None, Option("math, proof, science, agentic or chat_if; of the six it is known.", default=None)
    ] = None
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

    def rows_content(self, split: str) -> dict[str, Any]:
        """What it says of the rows of a split, beside their files."""
        effort = self.reasoning_effort.get(split)
        return {"subset": self.subset, "domain": self.rows_domain, "reasoning_effort": effort}

    def effort_warnings(self, otherwise: Effort | None) -> str | None:
        """A line on splits whose effort isn't said, though their names say another, or that of other splits is said.

        Args:
            otherwise: what the system messages of their rendered rows say.
        """
        found = {split: _EFFORT.search(split.lower()) for split in self.splits if split not in self.reasoning_effort}
        unsaid = [split for split, name in found.items() if (name[0] != otherwise if name else self.reasoning_effort)]
        if not unsaid:
            return None
        told = f"{self.dataset}: `reasoning_effort` doesn't say that of {', '.join(unsaid)}: rows rendered there say"
        efforts = ", ".join(f"{split}: {name[0]}" for split in unsaid if (name := found[split]))
        return f"{told} {otherwise or 'none'}" + (f"; by their names it would be {efforts}" if efforts else "")


def known_domain(dataset: str) -> Domain | None:
    """The domain of one of the six datasets, by its name; None of any other."""
    known = {dataset_key(name): domain for name, domain in DOMAINS.items()}
    return known.get(dataset_key(dataset))
