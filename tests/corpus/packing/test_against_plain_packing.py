"""Packed sets of small corpora equal those of the plain packer."""

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pack_build import Doc, check_tokens, license_for, pack_documents, sized_documents
from plain_packing import Piece, PlainCorpus, best_fit_rows
from word_tokenizer import encode_words

from pipeline_assets.corpus.formats.memmap import open_packed
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import UsageError

SHARES = {1: ["1"], 2: ["0.5", "0.5"], 3: ["0.6", "0.3", "0.1"]}


@dataclass(frozen=True)
class Case:
    """A corpus and the packing to build from it."""

    plain: PlainCorpus
    seq_len: int
    num_seqs: int
    strategy: str
    shard_documents: int

    @property
    def documents(self) -> list[Doc]:
        return [doc for source, lengths in self.plain.lengths.items() for doc in sized_documents(source, lengths)]

    def rows(self) -> list[list[Piece]] | None:
        pack_plainly = self.plain.sequential if self.strategy == "sequential" else self.plain.best_fit
        return pack_plainly(self.seq_len, self.num_seqs)

    def pack(self, folder: Path) -> Artifact:
        return pack_documents(
            folder,
            self.documents,
            self.shard_documents,
            seq_len=self.seq_len,
            num_seqs=self.num_seqs,
            strategy=self.strategy,
            seed=self.plain.seed,
            weights=self.plain.weights,
            max_epochs="1",
            caps=self.plain.caps,
        )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw documents of one token to several rows, in sources used repeatedly."""
    sources = ["a", "b", "c"][: draw(st.integers(1, 3))]
    long = draw(st.sampled_from([4, 12, 40]))
    lengths = {source: draw(st.lists(st.integers(1, long), min_size=1, max_size=12)) for source in sources}
    shares = draw(st.permutations(SHARES[len(sources)]))
    caps = {source: draw(st.sampled_from(["1", "2.5", "20"])) for source in sources}
    plain = PlainCorpus(lengths, dict(zip(sources, shares, strict=True)), caps, draw(st.integers(0, 9)))
    strategy = draw(st.sampled_from(["sequential", "best_fit"]))
    return Case(plain, draw(st.integers(2, 12)), draw(st.integers(1, 8)), strategy, draw(st.integers(1, 5)))


def check_against_the_plain_packer(case: Case) -> None:
    expected = case.rows()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if expected is None:
            are_equal = len(case.plain.budgets) > 1 == len(set(case.plain.budgets))
            scarce = ", but the caps of all sources allow " if are_equal else " epochs, but its max_epochs is "
            with pytest.raises(UsageError, match=scarce):
                case.pack(folder)
            return
        result = case.pack(folder)
        packed = open_packed(result.folder)
        segments = [packed.segments(row) for row in range(len(packed))]
        assert [[(part.source, part.doc_id, part.start, part.length) for part in row] for row in segments] == [
            [(part.draw.source, f"{part.draw.source}-{part.draw.document}", part.start, part.length) for part in row]
            for row in expected
        ]
        check_tokens(packed, {doc.doc_id: encode_words(doc.text) for doc in case.documents})
        assert pq.read_table(result.path("documents.parquet")).to_pylist() == doc_rows(case, expected)
        check_mixture(case, expected)
        check_counts(case, expected, result.manifest.identity.counts)


def doc_rows(case: Case, rows: Sequence[Sequence[Piece]]) -> list[dict[str, Any]]:
    """Return the rows of documents.parquet for these packed rows."""
    placed = [(piece, row) for row, pieces in enumerate(rows) for piece in pieces]
    lines = []
    for draw in sorted({piece.draw for piece, _ in placed}, key=lambda draw: (draw.source, draw.document, draw.epoch)):
        own = [(piece, row) for piece, row in placed if piece.draw == draw]
        tokens = case.plain.lengths[draw.source][draw.document]
        lines.append(
            {
                "doc_id": f"{draw.source}-{draw.document}",
                "source": draw.source,
                "shard": f"shards/{draw.document // case.shard_documents:05d}.jsonl.zst",
                "row": draw.document % case.shard_documents,
                "license_tag": license_for(f"{draw.source}-{draw.document}"),
                "epoch": draw.epoch,
                "tokens": tokens,
                "packed_tokens": sum(piece.length for piece, _ in own),
                "first_row": next(row for piece, row in own if piece.start == 0),
                "is_whole": own[0][0].length == tokens,
            }
        )
    return lines


def check_mixture(case: Case, rows: Sequence[Sequence[Piece]]) -> None:
    """Check each source's share of the placed tokens within one document."""
    pieces = [piece for row in rows for piece in row]
    placed = sum(piece.length for piece in pieces)
    for source, lengths in case.plain.lengths.items():
        own = sum(piece.length for piece in pieces if piece.draw.source == source)
        assert abs(own - float(case.plain.weights[source]) * placed) <= max(lengths)


def check_counts(case: Case, rows: Sequence[Sequence[Piece]], counts: Mapping[str, Any]) -> None:
    pieces = [piece for row in rows for piece in row]
    used = {(piece.draw.source, piece.draw.document) for piece in pieces}
    documents = sum(map(len, case.plain.lengths.values()))
    tokens = sum(piece.length for piece in pieces)
    assert counts["ledger"] == {
        "in": documents,
        "out": len(used),
        "dropped": {"not_drawn": documents - len(used)} if documents > len(used) else {},
        "rejected": {},
    }
    assert (counts["rows"], counts["documents"]) == (case.num_seqs, len({piece.draw for piece in pieces}))
    assert (counts["tokens"], counts["padding_tokens"]) == (tokens, case.num_seqs * case.seq_len - tokens)
    for source, stats in counts["by_source"].items():
        lengths, lines = case.plain.lengths[source], [line for line in doc_rows(case, rows) if line["source"] == source]
        reached = {document: 0 for document in range(len(lengths))}
        for line in lines:
            document = int(line["doc_id"].removeprefix(f"{source}-"))
            reached[document] = max(reached[document], line["packed_tokens"])
        packed = sum(line["packed_tokens"] for line in lines)
        license_tokens: Counter[str] = Counter()
        for line in lines:
            license_tokens[line["license_tag"]] += line["packed_tokens"]
        assert stats == {
            "documents": len(lengths),
            "text_tokens": sum(lengths),
            "drawn": len(lines),
            "packed_tokens": packed,
            "cut": sum(not line["is_whole"] and line["tokens"] <= case.seq_len for line in lines),
            "longer_than_a_row": sum(line["tokens"] > case.seq_len for line in lines),
            "unused_documents": sum(not tokens for tokens in reached.values()),
            "unused_tokens": sum(lengths) - sum(reached.values()),
            "license_tokens": license_tokens,
            "asked_tokens": int(Fraction(case.plain.weights[source]) * tokens),
            "asked_share": case.plain.weights[source],
            "share": f"{packed / tokens:.6f}",
            "epochs": f"{packed / sum(lengths):.6f}",
        }


SPREAD_CASE = Case(
    PlainCorpus(
        {"a": [4, 4], "b": [4, 2, 4], "c": [2]}, {"a": "0.1", "b": "0.3", "c": "0.6"}, dict.fromkeys("abc", "20"), 5
    ),
    seq_len=3,
    num_seqs=8,
    strategy="best_fit",
    shard_documents=2,
)


@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@example(SPREAD_CASE)
@given(cases())
def test_rows_documents_and_counts_equal_those_of_the_plain_packer(case: Case) -> None:
    check_against_the_plain_packer(case)


@pytest.mark.slow
@settings(max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_rows_documents_and_counts_equal_the_plain_packer_on_many_corpora(case: Case) -> None:
    check_against_the_plain_packer(case)


def test_best_fit_moves_documents_to_spare_rows_instead_of_cutting() -> None:
    order = SPREAD_CASE.plain.in_packed_order(SPREAD_CASE.plain.budget(3, 8) or 0)
    whole, shared = best_fit_rows(order, 3)

    rows = SPREAD_CASE.rows() or []

    assert len(whole) + len(shared) == 7
    assert sorted(piece for row in rows for piece in row) == sorted(piece for row in whole + shared for piece in row)
