"""Documents of a snapshot held against their rows of the hub's files, where these are here."""

import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline_assets.corpus.formats.jsonl_zst import write_rows
from pipeline_assets.corpus.readers.hub_files import CACHE_FOLDER
from pipeline_assets.corpus.rows.snapshots import SnapshotRows
from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact
from pipeline_assets.corpus.spine.lineage import Lineage
from pipeline_assets.corpus.spine.rehash import Journal
from pipeline_assets.corpus.trust.result import ShardProof
from pipeline_assets.corpus.trust.sample import Sample
from pipeline_assets.corpus.trust.verify import proofs

Json = dict[str, object]
ReadLines = Callable[[Path], list[Json]]
SHARD = "shards/00001.jsonl.zst"


@pytest.fixture
def snapshot(chain_root: Path) -> Artifact:
    return open_artifact(next((chain_root / "corpora" / "pages").glob("[!.]*")))


def prove(snapshot: Artifact, root: Path, share: Fraction = Fraction(1)) -> list[ShardProof]:
    """Beside the hub's cache in a data root."""
    store = SnapshotRows(snapshot, Lineage(root))
    return list(proofs(store, store.proof_files(), Sample(share), Journal(None), threads=2, log_every_s=1000))


def complaints(snapshot: Artifact, root: Path) -> list[str]:
    return [what for proof in prove(snapshot, root) for what in proof.complaints]


def change(snapshot: Artifact, edit: Callable[[list[Json]], object], jsonl: ReadLines) -> None:
    """The second shard with other documents in it."""
    documents = jsonl(snapshot.folder / SHARD)
    edit(documents)
    write_rows(snapshot.folder / SHARD, SHARD, documents, 3)


def cached_row_group(snapshot: Artifact, root: Path, number: int) -> Path:
    """Where the cache has a row group of b.parquet, of those that were read, in their order."""
    [entry] = [entry for entry in snapshot.manifest.identity.inputs if entry["name"].endswith(":b.parquet")]
    [path] = (root / CACHE_FOLDER).glob(f"*/bytes/*/{entry['row_groups'][number]['start']}-*")
    return path


def test_every_document_is_in_its_row(pristine: Path) -> None:
    snapshot = open_artifact(next((pristine / "corpora" / "pages").glob("[!.]*")))

    found = prove(snapshot, pristine)

    assert [(proof.documents, proof.not_here, proof.complaints) for proof in found] == [
        (11, 0, []),
        (40, 0, []),
        (40, 0, []),
        (40, 0, []),
    ]


def test_a_sample_is_the_same_every_time(pristine: Path) -> None:
    snapshot = open_artifact(next((pristine / "corpora" / "pages").glob("[!.]*")))

    first, again = (prove(snapshot, pristine, Fraction(1, 9)) for _ in range(2))

    assert first == again
    assert len(first) == 2
    assert 0 < sum(proof.documents for proof in first) < 40


def test_another_text_is_found(snapshot: Artifact, chain_root: Path, jsonl: ReadLines) -> None:
    change(snapshot, lambda documents: documents[3].update(text="something else"), jsonl)

    [document] = [document for row, document in enumerate(jsonl(snapshot.folder / SHARD)) if row == 3]
    row = document["meta"]["source_row"]  # type: ignore[index]
    assert complaints(snapshot, chain_root) == [
        f"document {document['doc_id']!r} has another text than b.parquet row {row}"
    ]


def test_another_id_is_found(snapshot: Artifact, chain_root: Path, jsonl: ReadLines) -> None:
    was = jsonl(snapshot.folder / SHARD)[3]
    change(snapshot, lambda documents: documents[3].update(doc_id="nobody"), jsonl)

    row = was["meta"]["source_row"]  # type: ignore[index]
    assert complaints(snapshot, chain_root) == [
        f"document 'nobody' has another id than b.parquet row {row}, {was['doc_id']!r}"
    ]


@pytest.mark.parametrize(("file", "row"), [("b.parquet", 319), ("b.parquet", 9999), ("c.parquet", 0)])
def test_a_row_that_was_not_read_is_found(
    snapshot: Artifact, chain_root: Path, jsonl: ReadLines, file: str, row: int
) -> None:
    change(snapshot, lambda documents: documents[3].update(meta={"source_file": file, "source_row": row}), jsonl)

    [complaint] = complaints(snapshot, chain_root)

    assert complaint.endswith(f" is of {file} row {row}, which was not read")


def test_two_documents_that_changed_places_are_found(snapshot: Artifact, chain_root: Path, jsonl: ReadLines) -> None:
    def swap(documents: list[Json]) -> None:
        documents[3]["text"], documents[4]["text"] = documents[4]["text"], documents[3]["text"]

    change(snapshot, swap, jsonl)

    assert len(complaints(snapshot, chain_root)) == 2


def test_what_is_not_in_the_cache_is_counted_and_nothing_is_said_of_it(snapshot: Artifact, chain_root: Path) -> None:
    cached_row_group(snapshot, chain_root, 0).unlink()

    found = prove(snapshot, chain_root)
    shutil.rmtree(chain_root / CACHE_FOLDER)
    without = prove(snapshot, chain_root)

    assert [(proof.documents, proof.not_here) for proof in found] == [(11, 0), (0, 40), (40, 0), (40, 0)]
    assert sum(proof.not_here for proof in without) == 131
    assert [what for proof in (*found, *without) for what in proof.complaints] == []


def test_without_the_footer_nothing_is_said(snapshot: Artifact, chain_root: Path) -> None:
    folder = cached_row_group(snapshot, chain_root, 0).parent
    max(folder.iterdir(), key=lambda path: int(path.name.split("-")[0])).unlink()

    found = prove(snapshot, chain_root)

    assert [(proof.documents, proof.not_here) for proof in found] == [(11, 0), (0, 40), (0, 40), (0, 40)]


def test_bytes_of_the_cache_that_are_no_row_group_are_found(snapshot: Artifact, chain_root: Path) -> None:
    path = cached_row_group(snapshot, chain_root, 0)
    path.write_bytes(bytes(path.stat().st_size))

    found = prove(snapshot, chain_root)

    assert [len(proof.complaints) for proof in found] == [0, 1, 0, 0]
    assert found[1].complaints[0].startswith(f"{SHARD} can't be looked at (")


def test_derived_ids_and_texts_that_had_nul_characters_agree_with_their_rows(
    take: Callable[..., Artifact], tmp_path: Path
) -> None:
    texts = [f"page {number}" for number in range(300)] + ["with\0out", "page 7"]
    columns = {"text": "text", "id": None, "created_at": None}

    snapshot = take({"a.parquet": pa.table({"text": texts})}, columns=columns)
    (tmp_path / "cache").rename(tmp_path / CACHE_FOLDER)

    found = prove(snapshot, tmp_path)

    assert [(proof.documents, proof.not_here, proof.complaints) for proof in found] == [(302, 0, [])]
