"""Recipe section of a Nemotron dataset, with tables of the known datasets."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import pydantic

from pipeline_assets.corpus.nemotron.splits import dataset_key, partition_key
from pipeline_assets.spine.areas import AREAS
from pipeline_assets.spine.command_option import Option
from pipeline_assets.spine.key_types import COMMIT_PATTERN, DOTS, DOTS_RULE, MAX_NAME
from pipeline_assets.spine.section import RecipeSection

Domain = Literal["math", "proof", "science", "agentic", "chat_if", "code", "safety"]
Effort = Literal["low", "medium", "high"]

DOMAINS: dict[str, Domain] = {
    "nvidia/Nemotron-Math-v2": "math",
    "nvidia/Nemotron-Math-Proofs-v1": "proof",
    "nvidia/Nemotron-Science-v1": "science",
    "nvidia/Nemotron-Agentic-v1": "agentic",
    "nvidia/Nemotron-Instruction-Following-Chat-v1": "chat_if",
    "radna0/nemotron-math-v2-harmony-tools": "math",
}
# Reasoning effort of gpt-oss-120b in each split, according to the split's name.
EFFORTS: dict[str, dict[str, Effort]] = {
    "nvidia/Nemotron-Math-v2": {
        "high_part00": "high",
        "high_part01": "high",
        "high_part02": "high",
        "medium": "medium",
        "low": "low",
    }
}


PromptLookup = Callable[[str], str | None]
"""Function that returns the prompt with a sha256 (hex digits), or None if unknown."""


@dataclass(frozen=True)
class RowOrigin:
    """Dataset, split and file of a block of source rows."""

    dataset: str
    subset: str  # configuration on the hub, such as `default`
    split: str
    domain: Domain
    file: str  # name, as in the manifest's inputs
    revision: str | None  # commit, 40 hex digits; None for a local folder
    find_prompt: PromptLookup | None = None  # finds prompts that the publisher withheld; None without seed sets


_EFFORT_IN_NAME = re.compile("(?<![a-z])(low|medium|high)(?![a-z])")  # as a word in a split's name
OneOrMoreTexts = Annotated[tuple[str, ...], pydantic.Field(strict=False, min_length=1)]


class SplitSource(RecipeSection):
    """Splits of a hub dataset at a commit, or of a local folder of the same layout.

    Attributes:
        dataset: Owner/name on a hub; any name for a folder, stored as the dataset of its rows.
        revision: Commit, 40 hex digits; None for a folder. Forty zeros stand for a commit that is not pinned yet; such
            a dataset can be planned, but not built.
        path: Folder, absolute or relative to the data root; None for a hub. The path changes no byte of the output.
        splits: Names of the selected splits, as in the dataset's card, or else in the file names.
        files: File patterns by split (syntax: `hub_configs`), which override the card.
    """

    dataset: str
    revision: Annotated[
        str | None, Option("Branch, tag or commit; its commit is stored. Default: main.", default=None)
    ] = None
    path: str | None = None
    splits: Annotated[OneOrMoreTexts, Option("Split to read, such as low; repeatable.", "split", default=None)]
    files: dict[str, OneOrMoreTexts] = pydantic.Field(default_factory=dict)

    @pydantic.model_validator(mode="after")
    def _check_source(self) -> Self:
        if (self.revision is None) == (self.path is None):
            what = f"{self.dataset} must have one location"
            raise ValueError(f"{what}; set `revision` for a hub dataset, or `path` for a local folder")
        if self.revision is not None and not re.fullmatch(r"[\w.-]+/[\w.-]+", self.dataset):
            raise ValueError(f"`dataset` must be owner/name, such as nvidia/Nemotron-Science-v1, got {self.dataset!r}")
        if self.revision is not None and not re.fullmatch(COMMIT_PATTERN, self.revision):
            raise ValueError(
                f"the revision of {self.dataset} must be a commit of 40 hex digits, since a branch moves, "
                f"got {self.revision!r}; `corpusmill pin` prints the commit"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _check_names(self) -> Self:
        if not dataset_key(self.dataset) or dataset_key(self.dataset) in AREAS:
            raise ValueError(f"{self.dataset!r} cannot be a folder name in the data root; choose another name")
        for split in self.splits:
            if not re.fullmatch(r"\w[\w.-]*", split):
                rule = "must begin with a letter, a digit or `_`, and have only these, `.` and `-`"
                raise ValueError(f"a split name {rule}, got {split!r}")
            if len(longest := max(split, dataset_key(self.dataset), key=len)) > MAX_NAME:
                raise ValueError(f"a dataset or split name must have at most {MAX_NAME} characters, got {longest!r}")
            if DOTS in (partition := partition_key(self.dataset, split)):
                raise ValueError(f"a dataset or split name {DOTS_RULE}, got {partition!r}")
        for key in ("files", "reasoning_effort"):
            for split in getattr(self, key, ()):
                if split not in self.splits:
                    raise ValueError(f"`{key}` has {split!r}, which is not in `splits`")
        return self


class SeedSet(SplitSource):
    """Published prompts, from which a dataset's withheld prompts are restored."""

    text: str  # column of prompts: text, or a list of messages whose first user message is the prompt


class DatasetSection(SplitSource):
    """Dataset of a hub at a commit, or a local folder of the same layout."""

    OMITTABLE_KEYS = frozenset({"generated_by", "prompts"})
    # Configuration stored as the subset of the rows; None stores the card's configuration of the split, or `default`.
    subset: str | None = None
    # Domain of the rows; None to look the dataset up in `DOMAINS`.
    domain: Annotated[
        Domain | None,
        Option("Domain of a new dataset: math, proof, science, agentic, chat_if, code, safety.", default=None),
    ] = None
    reasoning_effort: dict[str, Effort] = pydantic.Field(default_factory=dict)  # by split, for system messages
    generated_by: str | None = None  # model that generated the conversations, for `corpusmill describe`
    prompts: Annotated[tuple[SeedSet, ...], pydantic.Field(strict=False)] = ()  # contain the withheld prompts

    def output_content(self, split: str) -> dict[str, Any]:
        """Return a split's settings, as the manifest of the split's rows stores them."""
        known = {"generated_by": self.generated_by, "prompts": [seeds.text for seeds, _ in self.seed_splits()]}
        effort = self.reasoning_effort.get(split)
        domain = self.domain or known_domain(self.dataset)
        content = {"subset": self.subset, "domain": domain, "reasoning_effort": effort}
        return content | {name: value for name, value in known.items() if value not in (None, [])}

    def seed_splits(self) -> list[tuple[SeedSet, str]]:
        """List (seed set, split) pairs of all seed sets."""
        return [(seeds, split) for seeds in self.prompts for split in seeds.splits]

    def revisions(self) -> list[tuple[str, str]]:
        """List (dataset, commit) pairs of the hub datasets, including seed sets."""
        sources: list[SplitSource] = [self, *self.prompts]
        return [(source.dataset, source.revision) for source in sources if source.revision is not None]

    def effort_warning(self, default_effort: Effort | None) -> str | None:
        """Return a warning about splits whose reasoning effort may be wrong, or None.

        A split without `reasoning_effort` gets `default_effort` in its system messages. This may be wrong if the
        split's name contains a different effort, or if other splits have a `reasoning_effort`.
        """
        splits = (split for split in self.splits if split not in self.reasoning_effort)
        names = {split: _EFFORT_IN_NAME.search(split.lower()) for split in splits}
        unset = [
            split for split, name in names.items() if (name[0] != default_effort if name else self.reasoning_effort)
        ]
        if not unset:
            return None
        effect = f"{self.dataset}: `reasoning_effort` lacks {', '.join(unset)}: their rendered rows have effort"
        efforts = ", ".join(f"{split}: {name[0]}" for split in unset if (name := names[split]))
        return f"{effect} {default_effort or 'none'}" + (f"; their names suggest {efforts}" if efforts else "")


def known_domain(dataset: str) -> Domain | None:
    """Look up a dataset in `DOMAINS` by its name without owner; None if unknown."""
    known = {dataset_key(name): domain for name, domain in DOMAINS.items()}
    return known.get(dataset_key(dataset))
