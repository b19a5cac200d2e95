"""Opening of row stores: the kind in a manifest determines the class of the store."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline_assets.build.rows.store import RowStore
from pipeline_assets.build.target import Kinds
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.data_root import find_data_root
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.manifest import Manifest
from pipeline_assets.spine.metadata_file import REBUILD

# Kinds of inputs from which an artifact gets no row.
_COMPARED_ONLY_KINDS = ("stage_a/signatures/", "stage_a/evaluation/")
_PREVIEW_ROWS = 5
_EXCERPT_CHARACTERS = 160


@dataclass(frozen=True)
class RowStores:
    """Row stores of the artifacts in one data root."""

    kinds: Kinds
    lineage: Lineage

    def for_artifact(self, artifact: Artifact) -> RowStore | None:
        """Return the row store of an artifact; None if its kind has no rows or is unknown."""
        rows = self._row_class(artifact.manifest)
        return None if rows is None else rows(artifact, self.lineage)

    def source_row_stores(self) -> Iterator[RowStore]:
        """Yield the row stores of artifacts whose builds read source files."""
        return (rows(open_artifact(folder), self.lineage) for folder, rows in self._source_row_classes().items())

    def _row_class(self, manifest: Manifest) -> type[RowStore] | None:
        kind = self.kinds.get(manifest.kind)
        return None if kind is None else kind.row_store_class

    def _source_row_classes(self) -> dict[Path, type[RowStore]]:
        classes = ((folder, self._row_class(manifest)) for folder, manifest in self.lineage.manifests.items())
        return {folder: rows for folder, rows in classes if rows is not None and rows.reads_sources}

    def find_unsearchable(self, skipped_folders: Collection[Path] = ()) -> dict[Path, str]:
        """Return folders whose rows cannot be searched, each with a missing input's name.

        The rows of an artifact cannot be searched if an input of the artifact, or of an upstream artifact, is missing
        in the data root. Inputs that contribute no rows, and folders in `skipped_folders`, are ignored.
        """
        searched = self._source_row_classes()
        waiting = [
            (folder, manifest, entry["name"])
            for folder, manifest in self.lineage.manifests.items()
            for entry in manifest.identity.upstream
            if folder not in searched and entry["digest"] not in self.lineage and _gives_rows(entry["name"])
        ]
        unsearchable = dict[Path, str]()
        while waiting:
            folder, manifest, missing = waiting.pop()
            if folder not in skipped_folders and folder not in unsearchable:
                unsearchable[folder] = missing
                if _gives_rows(manifest.kind):
                    waiting += [(*downstream, missing) for downstream in self.lineage.downstream(manifest.digest)]
        return dict(sorted(unsearchable.items()))

    def find_unsourced(self) -> list[Path]:
        """List artifacts whose rows are not derived from rows of `source_row_stores`.

        The removal list was not applied to such rows, for example to rows of published pools.
        """
        sealed, reached = self.lineage.manifests, set[Path]()
        waiting = [*self._source_row_classes()]
        while waiting:
            folder = waiting.pop()
            if folder not in reached:
                reached.add(folder)
                waiting += [downstream for downstream, _ in self.lineage.downstream(sealed[folder].digest)]
        return sorted(folder for folder in sealed.keys() - reached if self._row_class(sealed[folder]) is not None)


def _gives_rows(name: str) -> bool:
    """Check whether an input with this name contributes rows; evaluation sets do not."""
    return not f"{name}/".startswith(_COMPARED_ONLY_KINDS)


def row_store_for(artifact: Artifact, kinds: Kinds, lineage: Lineage | None = None) -> RowStore | None:
    """Return an artifact's row store; None if its kind has no rows or is unknown.

    The default `lineage` is the lineage of the artifact's data root.
    """
    folder = artifact.folder.absolute()
    return RowStores(kinds, lineage or Lineage(find_data_root(folder) or folder.parent)).for_artifact(artifact)


def open_rows(folder: Path, kinds: Kinds, lineage: Lineage | None = None) -> RowStore:
    """Open the row store of a folder; UsageError if the artifact has no rows."""
    artifact = open_artifact(folder)
    store = row_store_for(artifact, kinds, lineage)
    if store is not None:
        return store
    members = [str(folder / entry["member"]) for entry in artifact.manifest.identity.inputs if "member" in entry]
    if members:
        raise UsageError("expected one split, got a dataset of splits", folder, f"choose one of {', '.join(members)}")
    fix = "choose a folder of documents, a packed set, or a split, such as megatron/<name>/train"
    if artifact.manifest.kind.startswith("export/"):
        [source] = artifact.manifest.identity.upstream
        fix = f"choose its source, {source['name']} with the digest {source['digest']}"
    raise UsageError(f"{artifact.manifest.kind} has no rows of text or tokens", folder, fix)


def preview(artifact: Artifact, kinds: Kinds) -> list[dict[str, str]]:
    """Return the preview table of an artifact; InputError if it is damaged."""
    kind = kinds[artifact.manifest.kind]
    if kind.preview is not None:
        try:
            return kind.preview(artifact)
        except (LookupError, TypeError, AttributeError) as error:  # JSON with unknown keys or types
            what = f"artifact cannot be previewed ({type(error).__name__}: {error})"
            raise InputError(what, artifact.folder, REBUILD) from None
    store = row_store_for(artifact, kinds)
    return [] if store is None else [_preview_row(store, number) for number in range(min(_PREVIEW_ROWS, len(store)))]


def _preview_row(store: RowStore, row_number: int) -> dict[str, str]:
    [part] = store.row_at(row_number).parts
    size = {"characters": f"{len(part.text):,}"} if part.tokens is None else {"tokens": f"{part.tokens:,}"}
    figures = {name.replace("_", " "): f"{value:,}" for name, value in store.part_facts(part).items()}
    line = " ".join(store.excerpt_text(part).split())
    excerpt = line if len(line) <= _EXCERPT_CHARACTERS else line[:_EXCERPT_CHARACTERS] + "…"
    key = "id" if store.display_names.contents == "texts" else "doc_id"
    return {key: part.id, **size, **figures, store.display_names.excerpt: excerpt}
