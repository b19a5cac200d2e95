"""Search of a data root for rows to forget and for their duplicates."""

import contextlib
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline_assets.build import removal_state
from pipeline_assets.build.removal_staleness import count_compared_entries
from pipeline_assets.build.removal_state import RemovalComparison
from pipeline_assets.build.rows.conversations import ConversationRows
from pipeline_assets.build.rows.documents import DocumentRows
from pipeline_assets.build.rows.file_rows import FileRows
from pipeline_assets.build.rows.pair_rows import PairRows
from pipeline_assets.build.rows.row_stores import RowStores
from pipeline_assets.build.rows.store import RowStore
from pipeline_assets.corpus.dedup.decision import DECISIONS_FILE, EDGES_FILE, Decision, read_decisions
from pipeline_assets.corpus.formats.parquet import StoredParquet
from pipeline_assets.corpus.parallel_text.sample import SAMPLE_FILE
from pipeline_assets.corpus.removal_entries import LIST_FILE
from pipeline_assets.corpus.removals import NUMBERED_ID, Removals, RowKeys, Selector, keyed_hash, normalize_value
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.folder_lock import lock_folder
from pipeline_assets.spine.lineage import Lineage

_HASH_DIGITS = 64  # of an id that is the hash of a text, because the source has no ids
SelectorValue = tuple[Selector, str]


@dataclass(frozen=True)
class RowToForget:
    """Row that matches a request, with further `values` for the removal list."""

    folder: Path
    file: str
    id: str
    values: Sequence[SelectorValue] = ()


def _read_rows(store: RowStore) -> Iterator[tuple[str, RowKeys]]:
    """Yield (file, keys) per row of `PairRows` or `FileRows`; other stores yield none."""
    if isinstance(store, PairRows):
        yield from ((SAMPLE_FILE, RowKeys(pair.uid, (pair.src_text, pair.tgt_text))) for pair in store.pairs)
    elif isinstance(store, FileRows):
        names = [store.schema.id_column, store.schema.text_column, *["meta.url"] * isinstance(store, DocumentRows)]
        for file in store.rows_by_file:
            for row_id, text, *url in store.schema.read(store.artifact.path(file), names):
                yield file, RowKeys(row_id, (text,), *url)


def _matching_hashes(removals: Removals, store: RowStore, row_keys: RowKeys) -> set[str]:
    """Return the hashes of the removal-list entries that match a row.

    A build applies the removal list before it numbers repeated ids, so a row with the id `ID#2` also matches an entry
    for `ID`. The only numbered ids are ids of conversations and hashes of texts.
    """
    hashes, numbered = removals.matching_hashes(row_keys), NUMBERED_ID.fullmatch(row_keys.id)
    if numbered and (isinstance(store, ConversationRows) or len(numbered[1]) == _HASH_DIGITS):
        hashes |= removals.matching_hashes(RowKeys(numbered[1], ()))
    return hashes


def find_rows_to_forget(
    stores: RowStores, requests: Collection[SelectorValue], patterns: Sequence[str], removals: Removals
) -> tuple[list[RowToForget], list[SelectorValue]]:
    """Return the rows that match `requests` or `patterns`, and the unmatched requests.

    `patterns` match URLs; `*` stands for any text. An unmatched pattern is returned as a request with the selector
    `url`. Unmatched requests that are on the list `removals` are omitted. `RowToForget.values` has the URL that a
    pattern matched and, if a numbered id such as `x#2` was requested, the row's texts, because another build may give
    this id to another row.
    """
    keys = {(name, value): keyed_hash(b"", name, normalize_value(name, value)) for name, value in requests}
    requested = Removals(entries={key: name for (name, _), key in keys.items()})
    found, matched, ids = list[RowToForget](), set[str](), {value for name, value in requests if name == "id"}
    compiled = {pattern: re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL) for pattern in patterns}
    for store in stores.source_row_stores():
        for file, row in _read_rows(store):
            by_url = {text for text, pattern in compiled.items() if row.url and pattern.fullmatch(row.url)}
            hashes = _matching_hashes(requested, store, row)
            matched |= by_url | hashes
            if by_url or hashes:
                more: list[SelectorValue] = [("url", row.url)] if by_url else []
                if row.id in ids and NUMBERED_ID.fullmatch(row.id):
                    more += [("text", text) for text in row.texts]
                found.append(RowToForget(store.artifact.folder, file, row.id, more))
    unmatched = [value for value, key in keys.items() if key not in matched and not removals.matches_value(*value)]
    return found, [*unmatched, *(("url", pattern) for pattern in patterns if pattern not in matched)]


def find_recorded_duplicates(
    lineage: Lineage, rows: Collection[RowToForget], requests: Collection[SelectorValue]
) -> list[tuple[str, str, float]]:
    """List (duplicate's id, row's id, similarity) of recorded duplicates of `rows`.

    Exact and near duplicates that are not in `rows` are listed, sorted by id. If a row is a copy of another document,
    the duplicates of that document are listed as well, with the document's id in place of the row's id. A duplicate in
    an earlier corpus may have the same id as the row that it duplicates; it is then listed only if `rows` has this id
    just once and no request names the id.
    """
    found, copies = Counter(row.id for row in rows), dict[tuple[str, str], float]()
    for folder, manifest in lineage.manifests.items() if found else ():
        artifact = Artifact(folder, manifest)
        same_words = {entry.copy_of for entry in _read_decisions(artifact) if entry.doc_id in found}
        for *pair, similarity in _read_duplicates(artifact):
            # The last part of a prompt's id is the id of its row.
            known = [doc_id in found or doc_id.rpartition("/")[2] in found for doc_id in pair]
            known = known if any(known) else [doc_id in same_words for doc_id in pair]
            is_repeated = pair[0] == pair[1] and found[pair[0]] == 1 and ("id", pair[0]) not in requests
            if sum(known) == 1 or is_repeated:
                copies[pair[known.index(min(known))], pair[known.index(True)]] = similarity
    return sorted((*pair, similarity) for pair, similarity in copies.items())


def _file_paths(artifact: Artifact) -> set[str]:
    return {file.path for file in artifact.manifest.identity.files}


def _read_decisions(artifact: Artifact) -> Iterator[Decision]:
    """Yield the decisions of a deduplicated corpus; nothing for other artifacts."""
    yield from read_decisions(artifact) if DECISIONS_FILE in _file_paths(artifact) else ()


def _read_duplicates(artifact: Artifact) -> Iterator[tuple[str, str, float]]:
    """Yield (id, other id, similarity) of each pair of duplicates in an artifact."""
    for entry in _read_decisions(artifact):
        if entry.duplicate_of is not None:
            yield entry.doc_id, entry.duplicate_of, entry.similarity or 1.0
        if entry.copy_of not in (None, entry.duplicate_of):
            yield entry.doc_id, entry.copy_of, 1.0
    if EDGES_FILE in _file_paths(artifact):
        with StoredParquet(artifact.path(EDGES_FILE)) as edges:
            for batch in edges.iter_batches(columns=["doc_id", "other_doc_id", "similarity"]):
                yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def compare_with_removal_list(stores: RowStores) -> dict[Path, RemovalComparison]:
    """Compare artifacts with new entries of the removal list, and store the results.

    Wait while another process compares: concurrent processes would overwrite each other's results. Return, by folder,
    the comparison of each artifact that contains listed rows or is downstream of such an artifact. Comparisons of
    downstream artifacts are stored too, because a rebuild of their inputs breaks the links in the lineage.
    """
    folder = (stores.lineage.root / LIST_FILE).parent
    with lock_folder(folder) if folder.is_dir() else contextlib.nullcontext():  # without a folder, no entries
        comparisons = _update_comparisons(stores)
    found = ((folder, comparisons.get(item.digest)) for folder, item in stores.lineage.manifests.items())
    return {folder: comparison for folder, comparison in found if comparison is not None and comparison.has_listed_rows}


def _update_comparisons(stores: RowStores) -> dict[str, RemovalComparison]:
    """Update, store and return the comparisons with the removal list, by digest."""
    lineage, root = stores.lineage, stores.lineage.root
    listed = removal_state.read_removals(root, removal_state.applied_positions(lineage.manifests.values()))
    comparisons = removal_state.read_comparisons(root)
    for store in stores.source_row_stores() if listed.entries else ():
        manifest = store.artifact.manifest
        earlier = comparisons.get(manifest.digest, RemovalComparison())
        new = listed.sublist(count_compared_entries(listed, manifest, earlier))
        if new.entries:
            rows = Counter(earlier.rows)
            rows.update(file for file, row in _read_rows(store) if _matching_hashes(new, store, row))
            comparisons[manifest.digest] = RemovalComparison(listed.positions[-1], dict(rows))
    waiting = [digest for digest, comparison in comparisons.items() if comparison.has_listed_rows]
    while waiting:
        for _, manifest in lineage.downstream(waiting.pop()):
            if not comparisons.get(manifest.digest, RemovalComparison()).has_listed_rows:
                comparisons[manifest.digest] = RemovalComparison(is_downstream=True)
                waiting.append(manifest.digest)
    if listed.entries:
        removal_state.write_comparisons(root, comparisons)
    return comparisons
