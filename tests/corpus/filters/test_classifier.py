"""Classifier scores equal those of fastText, and broken files are refused."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from classifiers import train
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refusal

from pipeline_assets.corpus.filters.classifier import Classifier, label_probabilities, load_classifier
from pipeline_assets.corpus.filters.filter import Candidate
from pipeline_assets.corpus.filters.recipe import FilterRecipe
from pipeline_assets.corpus.filters.text_batch import join_texts
from pipeline_assets.corpus.filters.verdict import apply_filters, evaluate
from pipeline_assets.spine.errors import UsageError

SETTINGS: dict[str, dict[str, Any]] = {
    "words": {},
    "word n-grams": {"wordNgrams": 2, "bucket": 5000},
    "long n-grams": {"wordNgrams": 5, "bucket": 77},
    "characters": {"minn": 1, "maxn": 4, "bucket": 500},
    "rare words": {"minCount": 60, "minn": 2, "maxn": 3, "wordNgrams": 3, "bucket": 99},
    "no words": {"minCount": 1000},
}
WORDS = ["the", "quick", "кот", "naïve", "日本語", "pills", "buy", "new", "é", "😀", "<", ">", "x" * 40]
ODD = ["__label__hq", "__label__", "__label__new", "_", "</s>", "</s", "\0", "\v", "\f", "\t", "\u00a0", "\u2028"]
texts = st.lists(st.sampled_from([*WORDS * 3, *ODD]), max_size=30).map(" ".join) | st.text(
    st.characters(codec="utf-8", exclude_characters="\n"), max_size=40
)
Trained = tuple[Any, list[str], Classifier]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trained]:
    folder = tmp_path_factory.mktemp("classifiers")
    models = {name: train(folder / f"{name}.bin", **settings) for name, settings in SETTINGS.items()}
    return {name: (model, *load_classifier(folder / f"{name}.bin")) for name, model in models.items()}


def fasttext_probabilities(model: Any, text: str) -> dict[str, float]:
    """Return probabilities less fastText's 0.00001; none without a known word."""
    return {label: score - 1e-5 for score, label in model.f.predict(text + "\n", -1, 0.0, "strict")}


@pytest.mark.parametrize("name", SETTINGS)
@settings(max_examples=150, deadline=None)
@given(batch=st.lists(texts, min_size=1, max_size=4))
def test_probabilities_equal_fasttext(name: str, batch: list[str], trained: dict[str, Trained]) -> None:
    model, labels, classifier = trained[name]

    actual = label_probabilities(join_texts([text.encode() for text in batch]), classifier)

    assert labels == model.labels
    for text, probabilities in zip(batch, actual.tolist(), strict=True):
        expected = fasttext_probabilities(model, text)
        assert probabilities == pytest.approx([expected.get(label, 0.0) for label in labels], abs=1e-5)


def test_good_and_bad_texts_have_far_scores_and_line_feeds_are_blanks(trained: dict[str, Trained]) -> None:
    model, labels, classifier = trained["word n-grams"]
    good, bad = "the quick brown fox\nexplains\r\na theorem", "buy now cheap pills"

    actual = label_probabilities(join_texts([good.encode(), bad.encode()]), classifier)[:, labels.index("__label__hq")]

    assert actual[0] == pytest.approx(fasttext_probabilities(model, good.replace("\n", " "))["__label__hq"], abs=1e-5)
    assert actual[0] > 0.9 and actual[1] < 0.1


@pytest.fixture
def score(tmp_path: Path) -> dict[str, Any]:
    train(tmp_path / "hq.bin", wordNgrams=2, bucket=1000)
    model = {"path": str(tmp_path / "hq.bin"), "sha256": "0" * 64}
    return {"model": model, "label": "__label__hq", "column": "quality", "min_score": "0.5"}


def test_document_below_the_minimum_is_dropped_and_every_score_is_recorded(score: dict[str, Any]) -> None:
    candidates = [Candidate(text, {}) for text in (b"the quick brown fox", b"buy cheap pills now")]

    apply_filters(candidates, FilterRecipe.model_validate({"score": score}))

    good, bad = candidates
    assert good.failure is None and 0.5 < good.scores["quality"] < 1
    assert str(bad.failure) == f"score:quality {bad.scores['quality']:.3g} < 0.5"
    assert bad.scores["quality"] == round(bad.scores["quality"], 6) < 0.5
    alone = evaluate("buy cheap pills now", {}, FilterRecipe.model_validate({"score": score}))
    assert (alone.reason, alone.measurements[0].value) == ("score:quality", bad.scores["quality"])


def test_a_column_of_the_source_is_not_overwritten(score: dict[str, Any]) -> None:
    recipe = FilterRecipe.model_validate({"score": score})

    assert refusal(lambda: evaluate("the fox", {"quality": 3}, recipe), UsageError) == (
        "filter `score`: the source has a column `quality`; choose another name for the score's column"
    )


def test_unknown_label_is_refused(score: dict[str, Any]) -> None:
    recipe = FilterRecipe.model_validate({"score": score | {"label": "hq"}})

    line = refusal(lambda: evaluate("the fox", {}, recipe), UsageError)

    assert "hq.bin: the classifier has no label hq; choose one of __label__" in line


def with_number(data: bytes, place: int, number: int) -> bytes:
    return data[:place] + struct.pack("<i", number) + data[place + 4 :]


OTHER_HEADERS = [(0, 7), (4, 11), (8, 9), (28, 40), (32, 1), (36, 1), (40, 0), (88, 5)]


@pytest.mark.parametrize(
    "damage",
    [
        *(lambda data, size=size: data[:size] for size in (0, 1, 60, 100, 5000, -4, -1)),
        *(lambda data, header=header: with_number(data, *header) for header in OTHER_HEADERS),
    ],
)
def test_a_truncated_classifier_or_another_model_type_is_refused(
    damage: Callable[[bytes], bytes], score: dict[str, Any]
) -> None:
    path = Path(score["model"]["path"])
    path.write_bytes(damage(path.read_bytes()))

    line = refusal(lambda: load_classifier(path))

    assert line.startswith(f"{path}: not a fastText classifier of the supported form (")
    assert line.endswith("); save a supervised model with softmax, not quantized, as .bin")


def test_a_quantised_model_is_refused(tmp_path: Path) -> None:
    model = train(tmp_path / "big.bin", minn=2, maxn=3, bucket=2000, dim=16)
    model.quantize(str(tmp_path / "big.txt"), retrain=False)
    model.save_model(str(tmp_path / "big.ftz"))

    assert "(the model is quantized)" in refusal(lambda: load_classifier(tmp_path / "big.ftz"))
