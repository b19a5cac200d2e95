"""Fuzzed files of the project: manifests, calls and answers of Modal, pointers."""

import contextlib
import hashlib
import json
import re
import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fuzz_edits import Reader
from root_changes import refit_manifest
from word_artifact import build_words

from pipeline_assets.corpus.stores.object_store import ObjectStore
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.manifest import Manifest, is_seal_intact
from pipeline_assets.spine.staging import RECEIPTS_FOLDER, OutputFile, Receipt, StagingView
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.trust.pull import find_ref, pull_all
from pipeline_assets.trust.push import push, ref_key
from resources.modal_calls import _parse_receipt

GOLDEN_ROOTS = Path(__file__).parents[1] / "golden" / "roots"
_SEAL = re.compile(rb',\n "seal": "sha256:[0-9a-f]{64}"')
_SPLIT, _REF = "chat/train", "fc-1"


def _manifests() -> list[bytes]:
    """Read one manifest of each kind from the golden data roots."""
    found: dict[str, bytes] = {}
    for path in sorted(GOLDEN_ROOTS.glob("*/*.tar.xz")):
        with tarfile.open(path) as archive:
            for member in archive:
                if member.name.endswith("manifest.json") and (file := archive.extractfile(member)) is not None:
                    data = file.read()
                    found.setdefault(json.loads(data)["kind"], data)
    return [found[kind] for kind in sorted(found) if len(found[kind]) < 20_000]


def _read_manifest(data: bytes, folder: Path) -> None:
    refusal = None
    for read in (Manifest.from_bytes, Manifest.from_sealed_bytes):
        try:
            manifest = read(data, folder / "manifest.json")
            list(manifest.storage_errors(SYSTEMS.label_names))
            assert isinstance(manifest.identity.upstream, list)
            assert "ledger" not in manifest.identity.counts or manifest.identity.ledger is not None
        except InputError as error:
            refusal = error
    is_seal_intact(data)
    if refusal is not None:
        raise refusal


def _call_receipts() -> list[bytes]:
    files = [OutputFile("a/b.parquet", 3, 100, "0" * 64, "1" * 64)]
    call = Receipt([], {}, {"ref": "fc-01ABC", "asked": "0" * 64})
    done = Receipt(files, {"rows": 3}, {"name": "00000"}, {"a": "2" * 64})
    return [call.to_bytes(), done.to_bytes()]


def _refit_receipt(data: bytes) -> bytes:
    content = data.partition(b"\n")[2]
    return hashlib.sha256(content).hexdigest().encode() + b"\n" + content


def _read_call(data: bytes, folder: Path) -> None:
    path = folder / RECEIPTS_FOLDER / "score.calls" / "00000.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    call = StagingView(folder).read_receipt("score.calls", "00000")
    assert call is None or isinstance(call.notes, dict)


def _answers() -> list[bytes]:
    file = OutputFile(f"{_SPLIT}/{'a' * 64}.parquet", 3, 100, "0" * 64, "1" * 64)
    return [Receipt([file], {"rows": 3}, {"gpu_seconds": 1.5, "name": "00000"}).to_bytes()]


def _read_answer(data: bytes, folder: Path) -> None:
    receipt = _parse_receipt(data.decode("utf-8", "surrogateescape"), _SPLIT, _REF)
    [file] = receipt.files
    assert ".." not in file.path and "/" not in receipt.notes["name"]


_STORE: dict[str, Any] = {}


def _pointers() -> list[bytes]:
    """Push a small artifact to a folder, and return its pointer."""
    scratch = Path(tempfile.mkdtemp())
    (scratch / "store").mkdir()
    artifact = build_words(scratch / "root", "english")
    store = ObjectStore.open(f"file://{scratch / 'store'}")
    push(artifact.folder, scratch / "root", store, with_upstream=False, log_every_s=3600)
    _STORE["folder"] = scratch / "store"
    return [(scratch / "store" / ref_key("words")).read_bytes()]


def _read_pointer(data: bytes, folder: Path) -> None:
    pointer = _STORE["folder"] / ref_key("words")
    pointer.write_bytes(data)
    store = ObjectStore.open(f"file://{_STORE['folder']}")
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder / "pulled")
    pull_all(store, find_ref(store, "words", None), folder / "pulled" / "words", None, False, 3600)


_KEYS = [b'"..', b"/", b"sha256:", b'"schema": ', b'"path": ', b"null", b'"folder": "', b"\\u0000", b"0" * 64]

READERS: Sequence[Reader] = (
    Reader("manifests", _manifests, _read_manifest, pieces=_KEYS, refit=refit_manifest, form="json"),
    Reader("call files", _call_receipts, _read_call, pieces=_KEYS, refit=_refit_receipt),
    Reader("answers of Modal", _answers, _read_answer, pieces=_KEYS, refit=_refit_receipt),
    Reader("store pointers", _pointers, _read_pointer, pieces=_KEYS, form="json"),
)
