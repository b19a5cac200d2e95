"""The stage A recipe: sources of five kinds → one schema → filtered → deduplicated → decontaminated, and a report."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pydantic

from pipeline_assets.corpus.dedup.recipe import DedupRecipe, RemovalCaps
from pipeline_assets.corpus.licences import licence_table
from pipeline_assets.corpus.readers.source_folder import SourceFolder
from pipeline_assets.corpus.recipes import stage_a_kinds
from pipeline_assets.corpus.recipes.kind import Kind
from pipeline_assets.corpus.recipes.stage_a_decontamination import DecontaminationSection
from pipeline_assets.corpus.recipes.stage_a_packing import PACKED, PackSection
from pipeline_assets.corpus.recipes.stage_a_sources import (
    HubSource,
    LocalSource,
    NormalizedSource,
    Source,
    WikipediaSource,
)
from pipeline_assets.corpus.spine.manifest import FILE_NAME
from pipeline_assets.corpus.spine.recipe import Recipe, RecipePart
from pipeline_assets.corpus.spine.target import Target
from pipeline_assets.corpus.tokens.o200k_harmony import TokenizerRecipe

_BESIDE_NORMALIZED = (
    "raw",
    "filtered",
    "deduplicated",
    "signatures",
    "evaluation",
    "decontaminated",
    "packed",
    "report",
)
Step = Literal["normalized", "filtered"]
Tags = Annotated[tuple[str, ...], pydantic.Field(strict=False)]


class Outputs(RecipePart):
    """Which artifacts are asked for, and where they lie, below the data root; changes no byte.

    Attributes:
        normalized_dir: a folder for each source; a source of kind `normalized` is found there. What else is made of
            sources lies beside it: raw, filtered, deduplicated, signatures, evaluation, decontaminated, packed,
            report.
        up_to: the last step that is asked for; None for all, up to the report.
        signatures: whether a signature store of what stays is made, for corpora that come later.
    """

    normalized_dir: str
    up_to: Step | None = None
    signatures: bool = False

    @pydantic.field_validator("normalized_dir")
    @classmethod
    def _is_an_area(cls, folder: str) -> str:
        path = Path(folder)
        if path.parts[:1] != ("stage_a",) or ".." in path.parts or len(path.parts) < 2:
            raise ValueError("it lies below the data root, in stage_a/: write stage_a/NAME/normalized")
        if path.name in _BESIDE_NORMALIZED:
            raise ValueError(f"{path.name} has the place of something else: write {path.parent}/normalized")
        return folder


class StageARecipe(Recipe):
    """Everything that decides the bytes of stage A's sources, a section for each.

    Attributes:
        refuse_licences: tags of which no document is kept.
        tokenizer: what the report counts tokens with.
        shard_text_bytes: a shard is closed by the piece of input that brings it to this size.
        sources: each by its name.
        dedup: over all of them, as they are filtered; None leaves it out.
        seen: signature stores of earlier corpora, folders below the data root; what repeats their documents goes.
        max_removed: how much of a source may go in that; changes no byte.
        decontamination: of what is left of them then; None leaves it out.
        pack: of what is left in the end; None leaves it out.
    """

    system: Literal["stage_a"]
    outputs: Outputs | None = None
    refuse_licences: Tags = ()
    tokenizer: TokenizerRecipe
    shard_text_bytes: int = pydantic.Field(gt=0)
    sources: Annotated[tuple[Source, ...], pydantic.Field(strict=False, min_length=1)]
    dedup: DedupRecipe | None = None
    seen: Tags = ()
    max_removed: RemovalCaps | None = None
    decontamination: DecontaminationSection | None = None
    pack: PackSection | None = None

    @pydantic.field_validator("refuse_licences")
    @classmethod
    def _are_tags(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted({_known_tag(tag) for tag in tags}))

    @pydantic.model_validator(mode="after")
    def _can_be_told_apart(self) -> Self:
        repeated = [name for name, count in Counter(source.source for source in self.sources).items() if count > 1]
        if repeated:
            raise ValueError(f"two sources are called {repeated[0]}: give each a name of its own")
        for source in self.sources:
            if source.source.endswith(f".{FILE_NAME}"):
                what = f"a source is called {source.source}, as is the manifest beside the folder of another"
                raise ValueError(f"{what}: give it another name")
        return self

    @pydantic.model_validator(mode="after")
    def _refuses_no_whole_source(self) -> Self:
        for source in self.sources:
            tag = source.licence()[0] if isinstance(source, WikipediaSource) else getattr(source, "license_tag", None)
            if tag is not None and _known_tag(tag, f"source {source.source}: ") in self.refuse_licences:
                what = f"source {source.source} is under {tag}, which refuse_licences refuses"
                raise ValueError(f"{what}: leave one of them out")
        return self

    @pydantic.model_validator(mode="after")
    def _caps_what_is_removed(self) -> Self:
        if self.max_removed is not None:
            unknown = sorted(self.max_removed.sources.keys() - {source.source for source in self.sources})
            if self.dedup is None or unknown:
                what = f"max_removed names {unknown[0]}, which is no source" if unknown else "max_removed without dedup"
                raise ValueError(f"{what}: correct it, or leave it out")
        return self

    @pydantic.model_validator(mode="after")
    def _has_seen_what_it_compares(self) -> Self:
        names = [Path(folder).name for folder in self.seen]
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated is not None:
            raise ValueError(f"two stores in `seen` are called {repeated}: give one of them another name")
        asked = self.outputs is not None and self.outputs.signatures
        if self.dedup is None and (self.seen or asked):
            what = "seen" if self.seen else "outputs.signatures"
            raise ValueError(f"{what} without dedup: say how documents are compared, or leave it out")
        return self

    @pydantic.model_validator(mode="after")
    def _weighs_its_sources(self) -> Self:
        if self.pack is not None:
            names, weighed = {source.source for source in self.sources}, self.pack.weights.keys()
            for source in sorted(names ^ weighed):
                what = "has no weight" if source in names else "has a weight, and is no source"
                raise ValueError(f"pack.weights: {source} {what}")
        return self

    def raw(self, source: Source) -> Target | None:
        """The files that a source is made of; None for one that is normalised already."""
        if isinstance(source, NormalizedSource):
            return None
        if isinstance(source, HubSource):
            return self._target(stage_a_kinds.RAW, "raw", source, source.rows_content(self.shard_text_bytes), ())
        content = {"kind": source.kind, "files": list(source.files)}
        outside = SourceFolder(Path(source.path), source.files)
        return self._target(stage_a_kinds.RAW, "raw", source, content, (), outside)

    def normalized(self, source: Source) -> Target:
        """The Documents of a source."""
        raw = self.raw(source)
        if raw is None:
            return self._target(stage_a_kinds.NORMALIZED, "normalized", source, {}, (), None, is_given=True)
        assert not isinstance(source, NormalizedSource)
        content = source.rows_content(self.shard_text_bytes)
        columns = source.columns if isinstance(source, HubSource | LocalSource) else None
        if columns is not None and columns.license is not None:
            content["licences"] = licence_table().fingerprint()
        return self._target(stage_a_kinds.NORMALIZED, "normalized", source, content, (raw,))

    def filtered(self, source: Source) -> Target:
        """Its Documents that are kept."""
        content = {"filters": source.filters.content(), "refuse_licences": list(self.refuse_licences)}
        return self._target(stage_a_kinds.FILTERED, "filtered", source, content, (self.normalized(source),))

    def deduplicated(self) -> Target | None:
        """Documents of all sources that are nobody's duplicate; None where the recipe doesn't ask for it."""
        if self.dedup is None:
            return None
        kind = stage_a_kinds.DEDUPLICATED
        return Target(
            kind=kind.name,
            name=self.name,
            folder=self._folder() / "deduplicated" / self.name,
            stage=kind.stage,
            recipe={"dedup": self.dedup.content(), "sources": [source.source for source in self.sources]},
            upstream=(
                *(self.filtered(source) for source in self.sources),
                *(stage_a_kinds.seen_store(Path(folder)) for folder in self.seen),
            ),
            export_as=f"{self.name}_deduplicated.json",
            demand=self.max_removed,
        )

    def signatures(self) -> Target | None:
        """What later corpora are compared by to the documents that stay; None where the recipe doesn't ask for it."""
        deduplicated = self.deduplicated()
        if deduplicated is None or self.dedup is None or self.outputs is None or not self.outputs.signatures:
            return None
        folder = self._folder() / "signatures" / self.name
        return stage_a_kinds.signatures_of(deduplicated, folder, self.dedup, f"{self.name}_signatures.json")

    def evaluation(self) -> Sequence[Target]:
        """The files of each evaluation set; none where the recipe doesn't ask for decontamination."""
        if self.decontamination is None:
            return ()
        return self.decontamination.evaluation_targets(self.name, self._folder() / "evaluation")

    def decontaminated(self) -> Target | None:
        """Documents of all sources, deduplicated if they are, without items of evaluation sets; None likewise."""
        if self.decontamination is None:
            return None
        deduplicated = self.deduplicated()
        return self.decontamination.decontaminated_target(
            self.name,
            self._folder() / "decontaminated" / self.name,
            [source.source for source in self.sources],
            [deduplicated] if deduplicated is not None else [self.filtered(source) for source in self.sources],
            self.evaluation(),
        )

    def packed(self) -> Target | None:
        """Rows of tokens of what is left in the end; None where the recipe doesn't ask for it."""
        if self.pack is None:
            return None
        last = self.decontaminated() or self.deduplicated()
        corpora = [last] if last is not None else [self.filtered(source) for source in self.sources]
        folder = self._folder() / "packed" / self.name
        return self.pack.packed_target(self.name, folder, corpora, f"{self.name}_packed.json")

    def report(self) -> Target:
        """What all sources hold, and what became of their rows."""
        kind, of_all = stage_a_kinds.REPORT, (self.deduplicated(), self.decontaminated(), self.packed())
        return Target(
            kind=kind.name,
            name=self.name,
            folder=self._folder() / "report" / self.name,
            stage=kind.stage,
            recipe={"sources": [source.source for source in self.sources]},
            upstream=(
                *(self.filtered(source) for source in self.sources),
                *(target for target in of_all if target is not None),
            ),
            tokenizer=self.tokenizer.content(),
            export_as=f"{self.name}_report.json",
        )

    def check_local_files(self, root: Path) -> None:
        """The tokenizer that packs can be loaded. Errors as `Recipe.check_local_files`."""
        packed = next((target for target in self.targets() if target.kind == PACKED.name), None)
        if self.pack is not None and packed is not None and not packed.is_sealed(root):
            self.pack.check_tokenizer(root)

    def source(self, name: str) -> Source | None:
        """The source of a name."""
        return next((source for source in self.sources if source.source == name), None)

    def revisions(self) -> list[tuple[str, str]]:
        """Dataset and commit of everything that is read from a hub."""
        return [(source.dataset, source.revision) for source in self.sources if isinstance(source, HubSource)]

    def targets_of(self, source: Source) -> list[Target]:
        """Artifacts of one source that are asked for, upstream first."""
        return [target for target in self._made_of(source) if self._is_asked(target)]

    def targets(self) -> Sequence[Target]:
        """Artifacts that are asked for, upstream first."""
        return [target for target in self.all_targets() if self._is_asked(target)]

    def all_targets(self) -> Sequence[Target]:
        """Artifacts that can be made of the sources, upstream first, asked for or not."""
        of_all = (self.deduplicated(), self.signatures(), *self.evaluation(), self.decontaminated(), self.packed())
        return [
            *(target for source in self.sources for target in self._made_of(source)),
            *(target for target in of_all if target is not None),
            self.report(),
        ]

    def _made_of(self, source: Source) -> list[Target]:
        raw = self.raw(source)
        return [*([raw, self.normalized(source)] if raw is not None else []), self.filtered(source)]

    def _is_asked(self, target: Target) -> bool:
        up_to = self.outputs.up_to if self.outputs else None
        first = (stage_a_kinds.RAW.name, stage_a_kinds.NORMALIZED.name)
        steps = {"normalized": first, "filtered": (*first, stage_a_kinds.FILTERED.name)}
        return up_to is None or target.kind in steps[up_to]

    def _folder(self) -> Path:
        return Path(self.outputs.normalized_dir).parent if self.outputs else Path("stage_a", self.name)

    def _target(
        self,
        kind: Kind,
        step: str,
        source: Source,
        content: dict[str, Any],
        upstream: tuple[Target, ...],
        outside: SourceFolder | None = None,
        is_given: bool = False,
    ) -> Target:
        folder = self._folder() / step
        if step == "normalized" and self.outputs:
            folder = Path(self.outputs.normalized_dir)
        return Target(
            kind=kind.name,
            name=f"{self.name}/{source.source}",
            folder=folder / source.source,
            stage=kind.stage,
            recipe=content,
            upstream=upstream,
            partition=source.source,
            export_as=f"{self.name}_{source.source}_{step}.json",
            outside=outside,
            is_given=is_given,
        )


def _known_tag(tag: str, whose: str = "") -> str:
    known = licence_table().tag_of(tag)
    if known is None:
        raise ValueError(f"{whose}there is no licence {tag!r}: {licence_table().advice(tag)}")
    return known
