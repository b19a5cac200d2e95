"""Batches of pairs: each epoch is its split, whatever the ranks and workers."""

import pickle
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from real_samples import some

pytest.importorskip("torch", reason="torch is not installed")

import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusal
from sentence_pairs import SOURCE, real_or_synthetic_rows, translation_lines

from pipeline_assets.corpus.batching import PairDataset, PairLoader
from pipeline_assets.corpus.parallel_text.batches import Order, padding_share
from pipeline_assets.corpus.parallel_text.draw import materialize
from pipeline_assets.corpus.parallel_text.encode import encode
from pipeline_assets.corpus.parallel_text.padding import IGNORED_TARGET, causal_mask, mask_source, pad_sequences
from pipeline_assets.corpus.parallel_text.sample import read_sample
from pipeline_assets.spine.errors import UsageError


@pytest.fixture(scope="module")
def train(cache: Path) -> PairDataset:
    return PairDataset(cache)


def read_uids(loader: PairLoader, dataset: PairDataset) -> list[str]:
    return [dataset.uid(place) for batch in loader for place in batch["places"].tolist()]


def test_a_dataset_has_the_pairs_of_its_split_and_survives_pickling(manifest: Path, cache: Path) -> None:
    pairs = read_sample(manifest).pairs
    for split in ("train", "val", "test"):
        dataset = pickle.loads(pickle.dumps(PairDataset(cache, split)))
        assert [dataset.uid(place) for place in range(len(dataset))] == [p.uid for p in pairs if p.split == split]
        src, tgt = (PairDataset(cache, split, side) for side in ("src", "tgt"))
        for place in range(len(dataset)):
            both = dataset[place]
            assert both["ids"].dtype == torch.int64
            assert both["length"] == len(both["ids"]) == dataset.lengths[place]
            assert both["ids"].tolist() == src[place]["ids"].tolist() + tgt[place]["ids"].tolist()


def test_a_torch_data_loader_collates_the_items(train: PairDataset) -> None:
    lengths = [*torch.utils.data.DataLoader(train, batch_size=3, collate_fn=lambda items: [i["length"] for i in items])]

    assert lengths[0] == train.lengths[:3].tolist()
    assert sum(map(len, lengths)) == len(train)


def test_batches_are_padded_pairs(train: PairDataset) -> None:
    eos, pad = train.cache.meta.eos_id, train.cache.meta.pad_id
    for seq_len in (None, 300):
        for batch in PairLoader(train, Order(batch=8), seq_len=seq_len, ignore_source=True):
            places = batch["places"].tolist()
            longest = int(train.lengths[places].max()) - 1
            expected = pad_sequences([train[place]["ids"].numpy() for place in places], seq_len or longest, pad)
            assert (batch["tokens"].numpy() == expected.tokens).all()
            assert (batch["targets"].numpy() == mask_source(expected, eos)).all()
            assert torch.equal(batch["attn_mask"], torch.from_numpy(causal_mask(expected.attn_mask)))


def test_a_padding_mask_has_one_row(train: PairDataset) -> None:
    for batch in some(PairLoader(train, Order(batch=8), mask="padding")):
        is_token = batch["targets"] != IGNORED_TARGET
        assert (batch["attn_mask"] == is_token[:, None, :]).all()


@given(
    st.integers(0, 70),
    st.one_of(st.none(), st.integers(1, 9)),
    st.integers(1, 4),
    st.integers(0, 3),
    st.booleans(),
    st.integers(0, 9),
)
def test_steps_deal_every_pair_once(
    pairs: int, batch: int | None, ranks: int, bucket_steps: int, drop_last: bool, epoch: int
) -> None:
    lengths = np.arange(pairs) * 7919 % 64 + 2
    order = Order(batch, 3, drop_last, bucket_steps, ranks)

    steps = order.steps(lengths, epoch)

    drawn = [int(place) for step in steps for part in step for place in part]
    assert all(len(step) == ranks for step in steps)
    assert len(drawn) == len(set(drawn))
    full = batch or max(1, pairs // ranks)
    if drop_last:
        assert len(drawn) == pairs // (ranks * full) * ranks * full
        assert all(len(part) == full for step in steps for part in step)
    else:
        assert sorted(drawn) == list(range(pairs))
        assert all(0 < len(part) <= (batch or -(-pairs // ranks)) for step in steps[:-1] for part in step)
        if batch != 1 and pairs >= ranks and (batch is not None and pairs >= ranks * batch):
            assert all(len(part) for part in steps[-1])


def test_drop_last_skips_different_pairs_in_each_epoch() -> None:
    lengths = np.arange(100) + 2
    order = Order(batch=16, drop_last=True, bucket_steps=20)

    drawn = {int(place) for epoch in range(6) for step in order.steps(lengths, epoch) for place in step[0]}

    assert drawn == set(range(100))


def test_pairs_skipped_by_drop_last_are_logged_by_rank_0(train: PairDataset, caplog: pytest.LogCaptureFixture) -> None:
    order = Order(batch=7, ranks=2, drop_last=True)

    drawn = [uid for rank in range(2) for uid in read_uids(PairLoader(train, order, rank), train)]

    assert caplog.messages == [f"epoch 0: drop_last skips {len(train) - len(drawn)} of {len(train)} pairs"]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("bucket_steps", [0, 2])
def test_an_epoch_is_its_split_over_ranks_workers_and_resumes(
    train: PairDataset, workers: int, ranks: int, bucket_steps: int
) -> None:
    order = Order(batch=7, seed=5, bucket_steps=bucket_steps, ranks=ranks)
    whole = [read_uids(PairLoader(train, order, rank), train) for rank in range(ranks)]
    split = Counter(train.uid(place) for place in range(len(train)))
    assert Counter(uid for rank_uids in whole for uid in rank_uids) == split

    for cut in range(0, len(PairLoader(train, order)), 1 + 2 * workers):
        for rank in range(ranks):
            loader, seen = PairLoader(train, order, rank, workers=workers), list[str]()
            if cut:
                for step, batch in enumerate(loader, 1):
                    seen += [train.uid(place) for place in batch["places"].tolist()]
                    if step == cut:
                        break
            state = pickle.loads(pickle.dumps(loader.state_dict()))
            resumed = PairLoader(train, order, rank)
            resumed.load_state_dict(state)
            assert seen + read_uids(resumed, train) == whole[rank]
            assert resumed.state_dict()["epoch"] == 1


def test_a_state_at_the_last_batch_fits_ranks_with_fewer_batches(train: PairDataset) -> None:
    order = Order(batch=1, ranks=5)  # 96 pairs
    first, *other_loaders = (PairLoader(train, order, rank) for rank in range(5))
    assert [len(loader) for loader in (first, *other_loaders)] == [20, 19, 19, 19, 19]
    states = [first.state_dict() for _ in first][-2:]  # before and after a batch that the others lack

    for loader in other_loaders:
        loader.load_state_dict(states[0])
        assert list(loader) == []
        assert loader.state_dict() == states[1]
        loader.load_state_dict(states[0] | {"step": 20})
        assert loader.state_dict() == states[1]


def test_an_empty_set_of_batches_has_no_padding() -> None:
    assert padding_share(np.array([], np.int64), []) == 0


def test_epochs_and_seeds_give_different_reproducible_orders(train: PairDataset) -> None:
    loader, again, other = (PairLoader(train, Order(seed=seed)) for seed in (1, 1, 2))

    first, second = read_uids(loader, train), read_uids(loader, train)

    before = torch.random.get_rng_state()
    assert (first, second) == (read_uids(again, train), read_uids(again, train))
    assert torch.equal(before, torch.random.get_rng_state())
    assert first != second
    assert first != read_uids(other, train)
    assert sorted(first) == sorted(second)


def test_a_full_batch_is_the_split(train: PairDataset) -> None:
    [batch] = PairLoader(train, Order(batch=None))
    assert sorted(batch["places"].tolist()) == list(range(96))


def test_impossible_loaders_are_refused(train: PairDataset, cache: Path) -> None:
    longest = int(train.lengths.max()) - 1
    assert refusal(lambda: PairLoader(train, Order(), seq_len=16)) == (
        f"{cache}: the longest pair has {longest} tokens, more than seq_len 16; "
        "run `corpusmill parallel encode --seq-len 16`, which cuts pairs"
    )
    assert refusal(lambda: PairLoader(train, Order(), seq_len=3)).endswith(
        f"seq_len 3; set seq_len to {longest} or more"
    )
    with pytest.raises(ValueError, match=r"rank must be in 0\.\.1, got 2"):
        PairLoader(train, Order(ranks=2), rank=2)
    with pytest.raises(ValueError, match="ignore_source requires a dataset of side pair, got src"):
        PairLoader(PairDataset(cache, side="src"), Order(), ignore_source=True)
    assert refusal(lambda: PairLoader(train, Order(), ignore_source="no"), UsageError) == (
        "ignore_source: must be True or False, got 'no'; correct it"
    )
    for wrong in ({"drop_last": "no"}, {"batch": True}, {"batch": 2.5}, {"ranks": "2"}, {"bucket_steps": None}):
        with pytest.raises(ValueError, match="ranks and batch must be integers, and drop_last True or False"):
            Order(**wrong)
    for wrong_place in (None, slice(2), "3"):
        for read in (train.uid, train.__getitem__):
            with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
                read(wrong_place)  # type: ignore[arg-type]
    saved = PairLoader(train, Order(seed=1)).state_dict()
    for other in (PairLoader(train, Order(seed=2)), PairLoader(PairDataset(cache, "val"), Order(seed=1))):
        with pytest.raises(ValueError, match="load a state that this loader saved"):
            other.load_state_dict(saved)


def test_buckets_at_least_halve_the_padding_of_1000_pairs(tmp_path: Path, real: bool) -> None:
    file = translation_lines(tmp_path / "a.jsonl", real_or_synthetic_rows(1500, real))
    sample = materialize(1000, files=[file], languages=("fr", "en"), source=SOURCE, folder=tmp_path / "s")
    dataset = PairDataset(encode(sample, None, tmp_path / "c"))

    plain, bucketed = (
        padding_share(dataset.lengths, PairLoader(dataset, Order(batch=16, bucket_steps=steps)).batches())
        for steps in (0, 20)
    )

    assert bucketed < plain / 2
    assert not real or plain > 0.25


class TinyTransformer(torch.nn.Module):
    """A transformer of one head and two layers with learned positions."""

    def __init__(self, vocabulary: int, seq_len: int, width: int = 64) -> None:
        super().__init__()
        self.words, self.places = torch.nn.Embedding(vocabulary, width), torch.nn.Embedding(seq_len, width)
        self.layers = torch.nn.ModuleList(
            torch.nn.ModuleList(
                [
                    torch.nn.Linear(width, 3 * width),
                    torch.nn.Linear(width, 4 * width),
                    torch.nn.Linear(4 * width, width),
                ]
            )
            for _ in range(2)
        )
        self.out = torch.nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor, attn_mask: torch.Tensor) -> torch.Tensor:
        state = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        for heads, up, down in self.layers:
            q, k, v = heads(torch.nn.functional.layer_norm(state, state.shape[-1:]))[:, None].chunk(3, dim=-1)
            attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask[:, None])[:, 0]
            state = state + attended
            state = state + down(torch.relu(up(torch.nn.functional.layer_norm(state, state.shape[-1:]))))
        return self.out(state)


def test_under_its_mask_no_token_sees_later_tokens(train: PairDataset) -> None:
    batch = next(iter(PairLoader(train, Order(batch=4))))
    tokens, mask = batch["tokens"], batch["attn_mask"]
    torch.manual_seed(0)
    model, middle = TinyTransformer(train.cache.meta.vocab_size, tokens.shape[1]), tokens.shape[1] // 2
    changed = tokens.clone()
    changed[:, middle:] = torch.randint(3, train.cache.meta.vocab_size, changed[:, middle:].shape)

    with torch.no_grad():
        before, after = model(tokens, mask), model(changed, mask)

    assert torch.equal(before[:, :middle], after[:, :middle])
    assert not torch.equal(before[:, middle:], after[:, middle:])
    assert before.isfinite().all()


@pytest.mark.slow
def test_a_tiny_transformer_learns_one_batch_by_heart(train: PairDataset) -> None:
    batch = next(iter(PairLoader(train, Order(batch=8), ignore_source=True)))
    torch.manual_seed(0)
    model = TinyTransformer(train.cache.meta.vocab_size, batch["tokens"].shape[1])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(300):
        logits = model(batch["tokens"], batch["attn_mask"])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss < 0.05:
            break

    assert loss < 0.05


def test_small_numpy_integers_of_an_order_do_not_overflow(train: PairDataset) -> None:
    whole, small = (Order(batch=number(100), ranks=number(2)) for number in (int, np.int8))

    assert [[part.tolist() for part in step] for step in small.steps(train.lengths, 0)] == [
        [part.tolist() for part in step] for step in whole.steps(train.lengths, 0)
    ]
    assert PairLoader(train, small).state_dict() == PairLoader(train, whole).state_dict()


@pytest.mark.parametrize("options", [{"batch": 0}, {"batch": -1}, {"bucket_steps": -1}, {"ranks": 0}])
def test_an_invalid_order_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="batch and ranks must be >= 1, bucket_steps >= 0"):
        Order(**options)


def test_invalid_arguments_of_a_loader_are_named(cache: Path) -> None:
    dataset = PairDataset(cache)
    wrong: dict[str, Callable[[], object]] = {
        "split must be one of train, val, test, got 'validation'": lambda: PairDataset(cache, "validation"),  # type: ignore[arg-type]
        "side must be one of src, tgt, pair, got 'foo'": lambda: PairDataset(cache, side="foo"),  # type: ignore[arg-type]
        "mask must be causal or padding, got 'foo'": lambda: PairLoader(dataset, Order(), mask="foo"),  # type: ignore[arg-type]
        "the state belongs to None": lambda: PairLoader(dataset, Order()).load_state_dict({}),
        "epoch 0 has no step 9999": lambda: load_step(dataset, 9999),
        "epoch 0 has no step 1.0": lambda: load_step(dataset, 1.0),
    }
    for message, attempt in wrong.items():
        with pytest.raises(ValueError, match=re.escape(message)):
            attempt()


def load_step(dataset: PairDataset, step: float) -> None:
    loader = PairLoader(dataset, Order())
    loader.load_state_dict(loader.state_dict() | {"step": step})
