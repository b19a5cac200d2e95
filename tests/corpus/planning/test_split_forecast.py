"""A split before it is built: tokens by the corpus' text, documents by the hash of ids, files by both."""

from collections.abc import Callable

import pytest

from pipeline_assets.corpus.megatron_recipe import MegatronRecipe
from pipeline_assets.corpus.planning.estimate import Estimate, exactly
from pipeline_assets.corpus.planning.rates import Rates
from pipeline_assets.corpus.planning.split_forecast import (
    CorpusFigures,
    SplitForecast,
    bytes_per_token,
    forecast_split,
)
from pipeline_assets.corpus.planning.track_record import TrackRecord
from pipeline_assets.corpus.sampling.split import Split
from pipeline_assets.corpus.spine.engine import EngineSettings
from pipeline_assets.systems.healing import HealingRecipe

MILLION = CorpusFigures(exactly(1_000_000, "footers"), exactly(4_800_000_000, "footers"), shards=72)
ENGLISH = Estimate(4.5, 4.8, 5.0, "4.8 bytes a token")
ONE, TWO = EngineSettings(workers=1), EngineSettings(workers=2)
RATES = Rates(convert=100e6, encode=100e6, write=500e6, start_s=1.0, basis="measured")


@pytest.fixture
def megatron(healing_recipe: Callable[..., HealingRecipe]) -> Callable[..., MegatronRecipe]:
    return lambda **changes: healing_recipe("0" * 40, {}, changes).megatron


@pytest.fixture
def forecast(megatron: Callable[..., MegatronRecipe]) -> Callable[..., SplitForecast]:
    """Of a million documents that hold a thousand million tokens, more or less."""

    def made(token_budget: int, split: Split = "train", corpus: CorpusFigures = MILLION) -> SplitForecast:
        return forecast_split(split, corpus, megatron(token_budget=token_budget, valid_fraction="0.1"), ENGLISH)

    return made


@pytest.mark.parametrize(
    ("token_budget", "outlook"),
    [(900_000_000, "met"), (980_000_000, "likely met"), (1_050_000_000, "likely short"), (1_200_000_000, "short")],
)
def test_the_outlook_tells_whether_the_text_is_enough(
    forecast: Callable[..., SplitForecast], token_budget: int, outlook: str
) -> None:
    assert forecast(token_budget).outlook == outlook


def test_a_budget_that_is_met_bounds_tokens_and_documents(forecast: Callable[..., SplitForecast]) -> None:
    train = forecast(500_000_000)

    assert train.available.likely == 900_000_000
    assert (train.tokens.likely, train.tokens.high) == (450_000_000, 450_000_000)
    assert 450_000_000 - train.tokens.low < 20_000  # less than a long document
    assert train.documents.likely == 450_000
    assert train.written_share.likely == 0.5


def test_a_corpus_that_is_too_small_is_written_and_read_whole(forecast: Callable[..., SplitForecast]) -> None:
    train = forecast(10**10)

    assert train.tokens == train.available.counted()
    assert train.documents.likely == 900_000
    assert (train.written_share.low, train.read_share.high) == (1.0, 1.0)


def test_whole_shards_are_read(forecast: Callable[..., SplitForecast]) -> None:
    few = CorpusFigures(MILLION.documents, MILLION.text_bytes, shards=3)

    assert forecast(500_000_000, corpus=few).read_share.likely == pytest.approx(2 / 3)


def test_few_documents_of_a_split_are_less_certain_than_many(forecast: Callable[..., SplitForecast]) -> None:
    hundred = CorpusFigures(exactly(100, "footers"), exactly(480_000, "footers"), shards=1)

    of_million, of_hundred = forecast(10**10, "valid"), forecast(10**10, "valid", hundred)

    assert of_million.documents.likely == 100_000
    assert of_million.documents.low > 99_000
    assert of_hundred.documents.bounds == (4, 10, 16)


def test_the_files_follow_from_tokens_and_documents(forecast: Callable[..., SplitForecast]) -> None:
    figures = forecast(500_000_000).figures(RATES, TWO)

    ids, index = 4 * 450_000_000, 20 * 450_000
    assert ids + index < figures["bytes"].likely < ids + index + 50 * 450_000
    assert figures["peak_disk_bytes"].likely > figures["bytes"].likely + ids


def test_what_was_finished_before_takes_no_time_again(forecast: Callable[..., SplitForecast]) -> None:
    whole = forecast(500_000_000).figures(RATES, ONE)["build_seconds"].likely
    rest = forecast(500_000_000).figures(RATES, ONE, share_left=0.0)["build_seconds"].likely

    written = 4 * 450_000_000 / RATES.write
    assert rest == pytest.approx(RATES.start_s + written, rel=0.05)
    assert whole > rest + 0.9 * 2_400_000_000 * 0.9 / RATES.encode


def test_no_documents_are_no_tokens(forecast: Callable[..., SplitForecast]) -> None:
    empty = CorpusFigures(exactly(0, ""), exactly(0, ""), shards=0)

    figures = forecast(1000, corpus=empty).figures(RATES, TWO)

    assert (figures["tokens"].bounds, figures["documents"].bounds) == ((0, 0, 0), (0, 0, 0))
    assert forecast(1000, corpus=empty).outlook == "short"


class TestBytesPerToken:
    """Measured, else as other texts had."""

    def test_english_has_what_fineweb_edu_has(self, megatron: Callable[..., MegatronRecipe]) -> None:
        snapshot = {"dataset": "maker/pages", "language": "en"}

        assert bytes_per_token(TrackRecord(), snapshot, megatron()).bounds == (3.7, 4.8, 5.0)

    def test_other_languages_are_less_certain(self, megatron: Callable[..., MegatronRecipe]) -> None:
        snapshot = {"dataset": "maker/pages", "language": None}

        ratio = bytes_per_token(TrackRecord(), snapshot, megatron())

        assert ratio.bounds == (2.5, 4.5, 5.2)
        assert ratio.basis == "4.5 bytes a token, as other texts have"
