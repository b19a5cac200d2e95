"""Push of sealed artifacts to a store: objects, then manifests, then the pointer.

A store keeps files as `objects/<first two digits>/<sha256>`, manifest files as `manifests/<sha256>.json`, and pointers
as `refs/<folder below the data root>.json`. After an interruption, the next push sends only the missing files. A reader
never sees an incomplete artifact.
"""

import contextlib
import hashlib
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pipeline_assets.corpus.publishing.hub_repo import UploadFile
from pipeline_assets.corpus.stores.download import Store
from pipeline_assets.corpus.stores.object_store import Pointer
from pipeline_assets.spine.artifact import check_record_path, open_artifact
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.lineage import collect_chain
from pipeline_assets.spine.manifest import MANIFEST_FILE, MANIFEST_FORMAT, is_inside_folder, is_seal_intact
from pipeline_assets.spine.metadata_file import REBUILD, MetadataFormat
from pipeline_assets.spine.progress import Progress
from pipeline_assets.spine.replacement import forbid_replacement

REF_SCHEMA = "corpusmill/ref/1"
REFS_FOLDER = "refs"
_MAX_BATCH_FILES = 100  # a hub recommends at most 100 files per commit
_QUIET_S = 1.0


class RefEntry(msgspec.Struct, frozen=True):
    """Artifact in a pointer."""

    folder: str  # relative to the data root
    digest: str
    manifest: str  # sha256 of the manifest file
    checks: str | None  # sha256 of the check record; None without a record

    def belongs_to(self, main: "RefEntry") -> bool:
        """Check whether this is the artifact `main` or one of its members."""
        return self.folder == main.folder or self.folder.startswith(f"{main.folder}/")


class Ref(msgspec.Struct, frozen=True):
    """Parsed pointer file: the pushed artifact, its members, its upstream artifacts."""

    schema: str
    artifacts: tuple[RefEntry, ...]

    def folder_digests(self) -> set[tuple[str, str]]:
        return {(entry.folder, entry.digest) for entry in self.artifacts}


_REF_FORMAT = MetadataFormat("pointer", 64 << 20, "push the artifact again", Ref)


def object_key(sha256: str) -> str:
    return f"objects/{sha256[:2]}/{sha256}"


def manifest_key(sha256: str) -> str:
    return f"manifests/{sha256}.json"


def ref_key(name: str) -> str:
    return f"{REFS_FOLDER}/{name}.json"


def parse_ref(store: Store, name: str, pointer: Pointer) -> Ref:
    """Parse a pointer; InputError if damaged, or if a folder is outside the data root."""
    where = f"{store.url}/{ref_key(name)}"
    ref = _REF_FORMAT.parse(pointer.content, where)
    is_inside = all(is_inside_folder(entry.folder) for entry in ref.artifacts)
    if ref.schema != REF_SCHEMA or not ref.artifacts or not is_inside:
        raise InputError("not a pointer of this program", where, _REF_FORMAT.fix)
    return ref


def _path_in_root(folder: Path, root: Path) -> str:
    """Return a folder's path in the data root; raise UsageError if it is outside."""
    if not folder.resolve().is_relative_to(root.resolve()):
        fix = "push it from its data root, which --data sets"
        raise UsageError(f"the artifact is not inside the data root {root}", folder, fix)
    return folder.resolve().relative_to(root.resolve()).as_posix()


@dataclass(frozen=True)
class PushResult:
    """Result of a push."""

    ref: Ref
    artifacts: int  # number of artifacts of this push
    bytes: int  # number of bytes of these artifacts
    sent_bytes: int  # number of bytes that the store lacked
    earlier_digest: str | None  # digest in the pointer before the push; None if the pointer was missing or damaged


def push(folder: Path, root: Path, store: Store, *, with_upstream: bool, log_every_s: float) -> PushResult:
    """Push a sealed artifact with its members and, if `with_upstream`, its inputs.

    Without `with_upstream`, the pointer keeps the inputs that an earlier push of the same artifact listed.

    Raises:
        UsageError: Nothing is sealed in `folder`, or an artifact is outside the data root `root`.
        InputError: An artifact is missing or damaged, or another process changed the pointer since this push began.
    """
    entries, objects, manifests = list[RefEntry](), dict[str, UploadFile](), dict[str, UploadFile]()
    with contextlib.ExitStack() as pinned:
        chain = collect_chain(folder, root if with_upstream else None)
        for finding in (*chain.broken_members, *chain.missing_inputs):
            raise InputError(finding.what, finding.where, "run `corpusmill verify --upstream` on the folder")
        for artifact in chain.artifacts:
            pinned.enter_context(forbid_replacement(artifact.folder))
            for file in open_artifact(artifact.folder, artifact.manifest.digest).manifest.storage:
                key = object_key(file.sha256)
                objects[key] = UploadFile(key, artifact.folder / file.path, file.bytes, file.sha256)
            data, checks = MANIFEST_FORMAT.read_raw(artifact.folder / MANIFEST_FILE), None
            if not is_seal_intact(data):
                raise InputError("the manifest is not as it was sealed", artifact.folder / MANIFEST_FILE, REBUILD)
            manifest = hashlib.sha256(data).hexdigest()
            manifests[manifest] = UploadFile.from_bytes(manifest_key(manifest), data)
            with contextlib.suppress(FileNotFoundError):
                data = check_record_path(artifact.folder.resolve()).read_bytes()
                checks = hashlib.sha256(data).hexdigest()
                objects[object_key(checks)] = UploadFile.from_bytes(object_key(checks), data)
            entries.append(RefEntry(_path_in_root(artifact.folder, root), artifact.manifest.digest, manifest, checks))
        name, total = entries[0].folder, sum(file.size for file in (*objects.values(), *manifests.values()))
        store.prepare_writes()
        before, earlier = store.read_pointer(ref_key(name)), None
        if before is not None:
            with contextlib.suppress(InputError):  # a damaged pointer is replaced
                earlier = parse_ref(store, name, before)
        progress, sent = Progress(f"push {name}", total, "bytes", log_every_s, _QUIET_S), 0
        for files in ([*objects.values()], [*manifests.values()]):
            for first in range(0, len(files), _MAX_BATCH_FILES):
                batch = files[first : first + _MAX_BATCH_FILES]
                sent += store.put(batch)
                progress.add(sum(file.size for file in batch))
    count, is_new = len(entries), earlier is None or not {*entries} <= {*earlier.artifacts}
    if earlier is not None and earlier.artifacts[0].digest == entries[0].digest and not with_upstream:
        folders = {entry.folder for entry in entries}
        entries += (entry for entry in earlier.artifacts if entry.folder not in folders)
    ref = Ref(REF_SCHEMA, tuple(entries))
    data = msgspec.json.format(msgspec.json.encode(ref), indent=1) + b"\n"
    if is_new and not store.replace(ref_key(name), data, before):
        current = store.read_pointer(ref_key(name))
        other = None if current is None else parse_ref(store, name, current)
        if other is None or not other.folder_digests() >= ref.folder_digests():  # an equal push may have been faster
            what = "removed the pointer" if other is None else f"pushed {other.artifacts[0].digest} under this name"
            fix = f"pull {name} to compare, or push again to replace it"
            raise InputError(f"another process {what} since this push began", f"{store.url}/{ref_key(name)}", fix)
    return PushResult(ref, count, total, sent, None if earlier is None else earlier.artifacts[0].digest)
