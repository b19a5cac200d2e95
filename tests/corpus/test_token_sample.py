"""Estimated tokens of a large source are within the error that the sample states."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_assets.corpus.token_sample import LENGTH_BINS, WEIGHT_ONE, SampleSums, SamplingRule, count_tokens, scale
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, load_encoder

ENCODER = load_encoder(VOCABULARY_SHA256)
WORDS = {
    "en": "the river is high today and it will be so tomorrow for a week or two my dear friend",
    "de": "der Fluss ist heute hoch und bleibt es wohl noch eine Woche oder zwei mein lieber Freund",
    "ja": "今日は 川の 水が 高く 明日も そうで しょう 親愛なる 友よ",
    "hi": "आज नदी ऊँची है और कल भी ऐसी ही रहेगी मेरे प्रिय मित्र",
    "code": "for i in range(10): x[i] += f(y, z=0x1F) # {'a': 1} \n\t return None",
}
Corpus = list[tuple[str, int, int]]
"""Text, UTF-8 bytes and tokens of each document."""
Samples = list[tuple[SampleSums, list[int]]]


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    """Draw documents of five languages; as on the web, few have most of the text."""
    draw, texts = random.Random(43), []
    for _ in range(2000):
        words = WORDS[draw.choice([*WORDS])].split()
        texts.append(" ".join(draw.choices(words, k=min(int(draw.lognormvariate(3, 1.3)) + 1, 3000))))
    tokens = ENCODER.encode(texts).lengths.tolist()
    return [(text, len(text.encode()), count) for text, count in zip(texts, tokens, strict=True)]


def draw_sample(corpus: Corpus, sampling: SamplingRule, prefix: str = "") -> tuple[SampleSums, list[int]]:
    weights = [sampling.weigh(f"{prefix}{number}", size) for number, (_, size, _) in enumerate(corpus)]
    sampled = [(text, weight) for (text, _, _), weight in zip(corpus, weights, strict=True) if weight]
    return count_tokens([text for text, _ in sampled], [weight for _, weight in sampled], sampling.rate, ENCODER)


def estimate(sample: SampleSums, corpus: Corpus) -> int:
    return scale(sample.weighted_tokens, sample.weighted_bytes, sum(size for _, size, _ in corpus))


@pytest.fixture(scope="module")
def samples(corpus: Corpus) -> Samples:
    """Draw a hundred samples, each with a twentieth of the short documents."""
    sampling = SamplingRule(WEIGHT_ONE // 20, sum(size for _, size, _ in corpus) // len(corpus))
    return [draw_sample(corpus, sampling, f"{seed}-") for seed in range(100)]


def test_in_95_of_100_samples_the_exact_number_is_within_the_stated_error(corpus: Corpus, samples: Samples) -> None:
    exact = sum(tokens for _, _, tokens in corpus)

    errors = [(abs(estimate(sample, corpus) / exact - 1), sample.relative_error()) for sample, _ in samples]

    assert 90 <= sum(error <= stated_error for error, stated_error in errors) <= 99
    assert max(error for error, _ in errors) < 0.2
    assert 0.02 < sum(stated_error for _, stated_error in errors) / len(errors) < 0.08


def test_estimates_of_tokens_and_lengths_are_unbiased(corpus: Corpus, samples: Samples) -> None:
    mean = sum(estimate(sample, corpus) for sample, _ in samples) / len(samples)
    shares = [
        sum(scale(lengths[power], sample.weights, len(corpus)) for sample, lengths in samples) / len(samples)
        for power in range(LENGTH_BINS)
    ]

    exact = [sum(max(tokens, 1).bit_length() == power + 1 for _, _, tokens in corpus) for power in range(LENGTH_BINS)]
    assert mean == pytest.approx(sum(tokens for _, _, tokens in corpus), rel=0.01)
    assert shares == pytest.approx(exact, rel=0.1, abs=6)


@settings(max_examples=30)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), max_size=10))
def test_a_completely_sampled_source_has_exact_tokens(texts: list[str]) -> None:
    tokens = [len(ENCODER.oracle.encode_ordinary(text)) for text in texts]

    sample, lengths = count_tokens(texts, [WEIGHT_ONE] * len(texts), WEIGHT_ONE, ENCODER)

    size = sum(len(text.encode()) for text in texts)
    assert (sample.documents, sample.utf8_bytes, sample.weights) == (len(texts), size, len(texts) * WEIGHT_ONE)
    assert scale(sample.weighted_tokens, sample.weighted_bytes, size) == sum(tokens)
    assert sample.relative_error() == 0
    assert sum(lengths) == len(texts) * WEIGHT_ONE


def test_a_text_that_would_crash_the_tokenizer_has_no_tokens() -> None:
    sample, lengths = count_tokens([" " * 1_000_000, "one"], [WEIGHT_ONE, WEIGHT_ONE], WEIGHT_ONE, ENCODER)

    assert (sample.utf8_bytes, sample.weighted_tokens, lengths[0]) == (1_000_003, WEIGHT_ONE, 2 * WEIGHT_ONE)


@pytest.mark.parametrize(
    ("documents", "text_bytes", "rate"),
    [
        (0, 0, WEIGHT_ONE),
        (1_000_000, 4 << 20, WEIGHT_ONE),
        (1_000_000, 8 << 20, WEIGHT_ONE // 2),
        (1_000_000, 1 << 50, 549_755),  # 128 of the documents
        (128, 1 << 40, WEIGHT_ONE),
        (256, 1 << 40, WEIGHT_ONE // 2),
    ],
)
def test_the_rate_follows_from_the_size_of_the_source(documents: int, text_bytes: int, rate: int) -> None:
    assert SamplingRule.for_size(documents, text_bytes).rate == rate


def test_a_document_is_sampled_in_proportion_to_its_length_above_the_mean() -> None:
    sampling = SamplingRule(WEIGHT_ONE // 100, 1000)
    names = [f"doc-{number}" for number in range(10_000)]

    sampled = {size: [sampling.weigh(name, size) for name in names] for size in (0, 10, 1000, 2000, 10_000, 100_000)}

    shares = {size: round(sum(map(bool, weights)) / len(names), 2) for size, weights in sampled.items()}
    assert shares == {0: 0.01, 10: 0.01, 1000: 0.01, 2000: 0.02, 10_000: 0.1, 100_000: 1.0}
    assert {size: max(weights) for size, weights in sampled.items()} == {
        0: WEIGHT_ONE,
        10: WEIGHT_ONE,
        1000: WEIGHT_ONE,
        2000: WEIGHT_ONE // 2,
        10_000: WEIGHT_ONE // 10,
        100_000: WEIGHT_ONE // 100,
    }
    for short, long in itertools.pairwise(sampled.values()):
        assert all(after for before, after in zip(short, long, strict=True) if before)
