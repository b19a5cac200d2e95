"""Token shards and batches of mixtures equal a plain Python implementation."""

import itertools
import tempfile
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pack_build import recipe, sized_documents
from plain_mixture import PlainMixture, cut_rows, deal
from shards_build import shard_documents
from word_tokenizer import encode_words, write_tokenizer

from pipeline_assets.corpus.shards.reader import MixtureReader
from pipeline_assets.corpus.tokens.families import TokenizerFile

LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=12)
DEALS = [{"drop_last": False, "padding": False}, {"drop_last": True, "padding": False}]
DEALS += [{"drop_last": False, "padding": True}]


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    corpora=st.lists(st.tuples(LENGTHS, st.integers(1, 9)), min_size=1, max_size=3),
    seq_len=st.integers(2, 9),
    rows_per_shard=st.integers(1, 5),
    length=st.none() | st.integers(1, 60),
    seed=st.integers(0, 99),
    ranks=st.integers(1, 3),
    batch=st.integers(1, 4),
)
def test_shards_order_and_batches_equal_plain_python(
    corpora: Sequence[tuple[list[int], int]],
    seq_len: int,
    rows_per_shard: int,
    length: int | None,
    seed: int,
    ranks: int,
    batch: int,
) -> None:
    total_share = sum(share for _, share in corpora)
    weights = {name: Fraction(share, total_share) for name, (_, share) in zip("cab", corpora, strict=False)}
    documents = {
        name: sized_documents(name, [*lengths, seq_len]) for name, (lengths, _) in zip("cab", corpora, strict=False)
    }
    rows = {name: cut_rows([encode_words(doc.text) for doc in docs], seq_len) for name, docs in documents.items()}
    plain = PlainMixture(rows, weights, seed)

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        path = write_tokenizer(folder)
        tokenizer = TokenizerFile(recipe(path).tokenizer, path)
        shape = {"seq_len": seq_len, "rows_per_shard": rows_per_shard}
        sets = {name: shard_documents(folder / name, docs, tokenizer, **shape) for name, docs in documents.items()}
        for name, artifact in sets.items():
            files = sorted(artifact.folder.glob("shard_*.npy"))
            assert np.concatenate([np.load(file) for file in files]).tolist() == rows[name]
        texts = {name: str(weight) for name, weight in weights.items()}
        reader = MixtureReader({name: artifact.folder for name, artifact in sets.items()}, texts, seed, length)
        order = plain.order(length)
        assert [(row.corpus, row.row) for row in map(reader.__getitem__, range(len(reader)))] == order
        for rank, options in itertools.product(range(ranks), DEALS):
            if len(order) // (ranks * batch if options["drop_last"] else ranks) or (options["padding"] and order):
                dealt = [
                    [rows[name][row] for name, row in map(order.__getitem__, positions)]
                    for positions in deal(len(order), batch, rank, ranks, **options)
                ]
                for step in range(len(dealt) + 1):
                    batches = reader.batches(batch, rank, ranks, step, **options)
                    assert [tokens.tolist() for tokens in batches] == dealt[step:]
