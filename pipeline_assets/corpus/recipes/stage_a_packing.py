"""The section `pack` of a stage A recipe, the artifact that it asks for, and how that is made."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import pydantic

from pipeline_assets.corpus.formats.memmap import META
from pipeline_assets.corpus.packing.emptied import refuse_emptied
from pipeline_assets.corpus.packing.largest_supply import refuse_beyond_text
from pipeline_assets.corpus.packing.recipe import PACK_STAGE, TOKENIZER_FILE, PackRecipe
from pipeline_assets.corpus.packing.shares import shares_reached
from pipeline_assets.corpus.preview import preview_packed
from pipeline_assets.corpus.recipes.kind import FILES, LEDGER, Kind, by_files, check, check_beside
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.rows.packed import PackedRows
from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact, sealed_manifest
from pipeline_assets.corpus.spine.audit import Verdict
from pipeline_assets.corpus.spine.building import Building
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.lineage import Lineage
from pipeline_assets.corpus.spine.manifest import Manifest
from pipeline_assets.corpus.spine.target import Content, Target
from pipeline_assets.corpus.tokens.families import TokenizerFile, check_tokenizer
from pipeline_assets.corpus.tokens.o200k_harmony import TokenizerRecipe

_DEDUPLICATED = "stage_a/deduplicated"


@dataclass(frozen=True)
class TokenizerPath:
    """Where the file of a packed set's tokenizer lies, absolute or below the data root. Its hash is in the recipe: with
    another it is refused when it is loaded.
    """

    path: Path

    def changed(self, root: Path, manifest: Manifest) -> None:
        """Nothing: what lies there later is not what the set was made from."""


class PackSection(PackRecipe):
    """A packed set, and where its tokenizer's file lies.

    Attributes:
        tokenizer_path: absolute, or below the data root; None for the file that ships with the program; changes
            no byte.
    """

    tokenizer_path: str | None = None

    @pydantic.model_validator(mode="after")
    def _has_a_tokenizer_file(self) -> Self:
        if self.tokenizer_path is None and not isinstance(self.tokenizer, TokenizerRecipe):
            what = f"the tokenizer file of {self.tokenizer.family} is not given"
            raise ValueError(f"{what}: set `tokenizer_path` to it, only that of o200k_harmony ships with this program")
        return self

    def check_tokenizer(self, root: Path) -> None:
        """
        Args:
            root: the data root.
        Raises:
            InputError, UsageError: the tokenizer can't be loaded, as `load_tokenizer` says.
        """
        path = None if self.tokenizer_path is None else root / self.tokenizer_path
        check_tokenizer(TokenizerFile(self.tokenizer, path))

    def packed_target(self, name: str, folder: Path, corpora: Sequence[Target], export_as: str | None = None) -> Target:
        """Rows of tokens, drawn of what corpora hold of each source."""
        apart = ("tokenizer", "tokenizer_path")
        return Target(
            kind=PACKED.name,
            name=name,
            folder=folder,
            stage=PACKED.stage,
            recipe={"pack": {key: value for key, value in self.content().items() if key not in apart}},
            upstream=tuple(corpora),
            tokenizer=self.tokenizer.content(),
            export_as=export_as,
            outside=None if self.tokenizer_path is None else TokenizerPath(Path(self.tokenizer_path)),
        )


def draws_are_deduplicated(packed: Artifact, target: Target, root: Path) -> Verdict:
    """What is packed was deduplicated at some step: else a text may be in it more often than its epochs say."""
    manifest = sealed_manifest(root / target.upstream[0].folder)
    if _DEDUPLICATED in (manifest.kind, *(entry["name"] for entry in manifest.identity.upstream)):
        return Verdict(True, "what it is drawn from was deduplicated")
    return Verdict(False, "not deduplicated: a text may be in it more often than its epochs say")


def _deduplicated(target: Target, root: Path) -> Artifact | None:
    """The deduplicated corpus that what a packed set is drawn from was made from; None if there is none here."""
    manifest = open_artifact(root / target.upstream[0].folder).manifest
    digests = [one["digest"] for one in manifest.identity.upstream if one["name"] == _DEDUPLICATED]
    try:
        return Lineage(root).locate(digests[0]) if digests else None
    except InputError:
        return None


def _make_packed(building: Building, target: Target, run: Run) -> Content:
    # Compiled code is loaded only where it is needed.
    from pipeline_assets.corpus.dedup.corpus_shard import corpus_shards
    from pipeline_assets.corpus.packing.pack_corpus import PackSettings, pack_corpus

    corpora = {one.partition or one.name: open_artifact(run.root / one.folder) for one in target.upstream}
    recipe = PackRecipe.from_content({**target.recipe["pack"], "tokenizer": target.tokenizer})
    refuse_emptied(corpora, _deduplicated(target, run.root), recipe.weights)
    refuse_beyond_text(corpora, recipe)
    path = target.outside.path if isinstance(target.outside, TokenizerPath) else None
    now, file = datetime.datetime.now(datetime.UTC), None if path is None else run.root / path
    own = PackSettings(run.engine, now, file, run.zstd_level)
    content = pack_corpus(building, corpus_shards(corpora), recipe, own)
    if path is None:
        return content
    return replace(content, provenance={**content.provenance, TOKENIZER_FILE: str(path)})


def tokenizer_path(manifest: Manifest, root: Path) -> TokenizerPath | None:
    """Where the tokenizer's file of a packed set lies that is sealed below a data root; None for the one that ships."""
    path = manifest.provenance.get(TOKENIZER_FILE)
    return TokenizerPath(root / path) if isinstance(path, str) else None


PACKED = Kind(
    "stage_a/packed",
    PACK_STAGE,
    by_files(_make_packed),
    """Rows of tokens of one length, drawn of all sources by weight, and what tells where each token is from.

    Waits until all that it is drawn from is there.""",
    formats=frozenset({"numpy"}),
    rows=PackedRows,
    preview=preview_packed,
    outside=tokenizer_path,
    labels=(META,),
    checks=(
        FILES,
        LEDGER,
        check(shares_reached, is_blocking=False),
        check_beside(draws_are_deduplicated, is_blocking=False),
    ),
)
