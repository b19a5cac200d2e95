"""What makes two sealed artifacts of one kind differ: what was asked, what they are made from, what they count, and
which documents they hold.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pipeline_assets.corpus.readers.source_folder import is_of_folder
from pipeline_assets.corpus.rows.changes import PART_DOCUMENTS, DocumentChanges, document_changes
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import UsageError
from pipeline_assets.corpus.spine.manifest import Manifest
from pipeline_assets.corpus.spine.target import changed_keys


@dataclass(frozen=True)
class Counted:
    """One count of the manifests, 0 where one has none; a share is a decimal string, as manifests have fractions.
    `name` is dotted, as ledger.dropped.other_split.
    """

    name: str
    a: int | str
    b: int | str

    @property
    def delta(self) -> int | str:
        """B less A: a decimal string where one of them is."""
        if isinstance(self.a, int) and isinstance(self.b, int):
            return self.b - self.a
        return f"{Decimal(self.b) - Decimal(self.a):f}"

    @property
    def is_equal(self) -> bool:
        """Whether both say the same: "0.50" is "0.5"."""
        return Decimal(self.a) == Decimal(self.b)


@dataclass(frozen=True)
class FileChanges:
    """Files from outside that were read: of a hub, or of this machine.

    Attributes:
        commits_a, commits_b: repo@commit, sorted; empty where nothing was read from a hub.
        files_added, files_removed: paths listed in B only, in A only; sorted.
        files_changed: paths of other bytes.
        row_groups_added, row_groups_removed: how many were read for B only, for A only.
        row_groups_cut_elsewhere: how many were read for both, up to another row.
    """

    commits_a: Sequence[str]
    commits_b: Sequence[str]
    files_added: Sequence[str]
    files_removed: Sequence[str]
    files_changed: Sequence[str]
    row_groups_added: int
    row_groups_removed: int
    row_groups_cut_elsewhere: int


@dataclass(frozen=True)
class Changed:
    """A thing that is one in A and another in B; None where it is missing."""

    name: str
    a: str | None
    b: str | None


@dataclass(frozen=True)
class Comparison:
    """Two artifacts of one kind.

    Attributes:
        is_identical: their digests are equal; then everything else is empty, and nothing was read.
        recipe: a line for each key whose values differ.
        stage, tokenizer: None where equal.
        upstream: artifacts that they are made from, where the digests differ.
        files: None where neither read files from outside.
        shards: Document shards of a selection that are not the same, by path.
        documents: empty where the kind has no documents of its own.
    """

    a: Artifact
    b: Artifact
    is_identical: bool
    recipe: Sequence[str] = ()
    stage: Changed | None = None
    tokenizer: Changed | None = None
    upstream: Sequence[Changed] = ()
    files: FileChanges | None = None
    shards: Sequence[Changed] = ()
    counts: Sequence[Counted] = ()
    documents: Sequence[DocumentChanges] = ()


def compare(a: Artifact, b: Artifact, part_documents: int = PART_DOCUMENTS) -> Comparison:
    """How B differs from A.

    Args:
        part_documents: how many documents' hashes are sorted at once, about.
    Raises:
        UsageError: they are of different kinds.
        InputError: a file that is read is damaged.
    """
    one, other = a.manifest, b.manifest
    if one.kind != other.kind:
        what = f"this is a {other.kind}, {a.folder} is a {one.kind}"
        raise UsageError(what, b.folder, "give two artifacts of one kind")
    if one.digest == other.digest:
        return Comparison(a, b, is_identical=True)
    left, right = one.identity, other.identity
    return Comparison(
        a=a,
        b=b,
        is_identical=False,
        recipe=changed_keys(left.recipe, right.recipe),
        stage=_changed("stage", str(left.stage), str(right.stage)),
        tokenizer=_changed("tokenizer", _tokenizer_words(left.tokenizer), _tokenizer_words(right.tokenizer)),
        upstream=_changes(_upstream(one), _upstream(other)),
        files=_file_changes(one, other),
        shards=_changes(_selected(one), _selected(other)),
        counts=count_changes(left.counts, right.counts),
        documents=list(document_changes(a, b, part_documents)),
    )


def count_changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Counted]:
    """Every count of either manifest side by side, those of the ledger last, by name."""
    left, right = dict(_flat(a, "")), dict(_flat(b, ""))
    names = sorted(left.keys() | right.keys(), key=lambda name: (name.startswith("ledger."), name))
    return [Counted(name, left.get(name, 0), right.get(name, 0)) for name in names]


def _flat(counts: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, int | str]]:
    for name, value in counts.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _changed(name: str, a: str | None, b: str | None) -> Changed | None:
    return None if a == b else Changed(name, a, b)


def _changes(a: Mapping[str, str], b: Mapping[str, str]) -> list[Changed]:
    return [
        Changed(name, a.get(name), b.get(name)) for name in sorted(a.keys() | b.keys()) if a.get(name) != b.get(name)
    ]


def _tokenizer_words(tokenizer: Mapping[str, Any] | None) -> str | None:
    return None if tokenizer is None else f"{tokenizer['family']} {tokenizer['sha256']}"


def _upstream(manifest: Manifest) -> dict[str, str]:
    return {entry["name"]: entry["digest"] for entry in manifest.identity.upstream}


def _selected(manifest: Manifest) -> dict[str, str]:
    """Content hashes of the shards that a selection names, by path; empty for other kinds."""
    return {shard["path"]: shard["content_sha256"] for shard in manifest.identity.decisions.get("shards", [])}


def _file_changes(a: Manifest, b: Manifest) -> FileChanges | None:
    left, right = _outside_files(a), _outside_files(b)
    if not left and not right:
        return None
    left_groups, right_groups = _row_groups(left), _row_groups(right)
    shared = left_groups.keys() & right_groups.keys()
    return FileChanges(
        commits_a=_commits(a),
        commits_b=_commits(b),
        files_added=sorted(right.keys() - left.keys()),
        files_removed=sorted(left.keys() - right.keys()),
        files_changed=sorted(
            path for path in left.keys() & right.keys() if left[path]["digest"] != right[path]["digest"]
        ),
        row_groups_added=len(right_groups.keys() - shared),
        row_groups_removed=len(left_groups.keys() - shared),
        row_groups_cut_elsewhere=sum(left_groups[group] != right_groups[group] for group in shared),
    )


def _outside_files(manifest: Manifest) -> dict[str, Mapping[str, Any]]:
    """Files of a folder, by their names in it; of a hub by `repo:path`: the commit is told apart, so that a file that
    stayed is the same.
    """
    outside = {entry["name"]: entry for entry in manifest.identity.inputs if "bytes" in entry}
    if is_of_folder(manifest):
        return outside
    files = {}
    for name, entry in outside.items():
        place, _, path = name.partition(":")
        files[f"{place.partition('@')[0]}:{path}"] = entry
    return files


def _commits(manifest: Manifest) -> list[str]:
    if is_of_folder(manifest):
        return []
    return sorted({entry["name"].partition(":")[0] for entry in manifest.identity.inputs if "bytes" in entry})


def _row_groups(files: Mapping[str, Mapping[str, Any]]) -> dict[tuple[str, int], int]:
    """Rows read of each row group, by file and number."""
    return {
        (path, group["number"]): group["rows"] for path, entry in files.items() for group in entry.get("row_groups", [])
    }
