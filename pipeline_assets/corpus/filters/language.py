"""Detection of a text's language by one of two packages, without network access."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, cast

import pydantic

from pipeline_assets.corpus.filters.filter import Candidate, Filter, Measurement
from pipeline_assets.spine.errors import RecipeKey, UsageError
from pipeline_assets.spine.install_hints import not_installed_error
from pipeline_assets.spine.key_types import Share, pattern_rule
from pipeline_assets.spine.section import RecipeSection

MAX_DETECTED_CHARACTERS = 10_000  # a text's first characters; langdetect itself reads no more
_SCORE_DIGITS = 4  # the last digits of a float may differ between processors
LanguageCode = Annotated[str, pattern_rule("[a-z]{2}", "must be an ISO 639-1 code, such as en")]
DetectorName = Literal["py3langid", "langdetect"]


class Language(NamedTuple):
    """Language of a text; scores of two detectors are not comparable."""

    code: str  # ISO 639-1 code, or else ISO 639-3 code; `und` (undetermined) if no language is found
    score: float  # confidence of the detector, 0 to 1, rounded to four digits


UNDETERMINED = Language("und", 0.0)
IdentifyFunction = Callable[[str], tuple[str, float]]
LoadedPackage = tuple[IdentifyFunction, frozenset[str]]
"""Function of a package that detects languages, and the codes of its languages."""


class LanguageRecipe(RecipeSection):
    """Languages to keep.

    Attributes:
        keep: ISO 639-1 codes.
        threshold: Minimum score; None for the detector's default, see `DetectorPackage`.
    """

    detector: DetectorName = "py3langid"
    keep: Annotated[tuple[LanguageCode, ...], pydantic.Field(strict=False, min_length=1)] = ("en",)
    threshold: Share | None = None

    @property
    def min_score(self) -> str:
        """Minimum score in effect, as a decimal: `threshold`, or the detector's default."""
        return DETECTOR_PACKAGES[self.detector].default_threshold if self.threshold is None else self.threshold

    def keeps(self, language: Language) -> bool:
        """Check whether a text in this language, with this score, is kept."""
        return language.code in self.keep and language.score >= float(self.min_score)

    def check_codes(self) -> None:
        """Raise UsageError if the detector does not know a language to keep."""
        known = load_detector(self.detector).language_codes
        if unknown := [code for code in self.keep if code not in known]:
            fix = f"correct `keep`; its codes are {', '.join(sorted(code for code in known if len(code) == 2))}"
            what = f"{self.detector} detects no language {', '.join(unknown)}"
            raise UsageError(what, RecipeKey("filters.language"), fix)

    def detection_settings(self) -> dict[str, str]:
        """Return the detector's name and version and the minimum score, for the manifest."""
        version = load_detector(self.detector).version
        return {"detector": self.detector, "version": version, "threshold": self.min_score}


@dataclass(frozen=True)
class Detector:
    """Language detector: a package's version and function, and its language codes."""

    version: str
    identify: IdentifyFunction
    language_codes: frozenset[str]

    def detect(self, text: str) -> Language:
        """Detect the language of the first `MAX_DETECTED_CHARACTERS` of a text.

        In these characters, each run of whitespace becomes a space and each lone surrogate becomes `?`. If none of the
        characters is a letter, the language is undetermined.
        """
        beginning = " ".join(text[:MAX_DETECTED_CHARACTERS].encode("utf-8", "replace").decode().split())
        code, score = self.identify(beginning) if any(map(str.isalpha, beginning)) else UNDETERMINED
        score = min(round(score, _SCORE_DIGITS), 1.0)
        return Language(code, score) if score > 0 else UNDETERMINED


@functools.cache
def load_detector(name: DetectorName) -> Detector:
    """Load a detector once per process; raise UsageError if it is not installed."""
    package = DETECTOR_PACKAGES[name]
    try:
        return Detector(metadata.version(name), *package.load())
    except ImportError as error:
        raise not_installed_error(error, package.extra) from None


class LanguageFilter(Filter):
    """Filter of documents by their language."""

    def __init__(self, recipe: LanguageRecipe) -> None:
        self._recipe = recipe
        self._detector = load_detector(recipe.detector)
        self._limit = f"{', '.join(recipe.keep)} from {recipe.min_score}"

    def measure(self, candidate: Candidate) -> list[Measurement]:
        """Return a measurement of language and score, such as `de 0.998`."""
        # A character has at most four bytes. The cut may split one, whose bytes are then ignored.
        beginning = candidate.text[: 4 * MAX_DETECTED_CHARACTERS].decode("utf-8", "ignore")
        language = self._detector.detect(beginning)
        value = f"{language.code} {language.score}"
        return [Measurement("other_language", value, self._limit, not self._recipe.keeps(language))]


def _load_py3langid() -> LoadedPackage:
    import numpy as np
    from py3langid import langid

    from pipeline_assets.corpus.filters.language_scores import LanguageTables, add_feature_scores

    class CompiledIdentifier(langid.LanguageIdentifier):  # type: ignore[misc]
        """Classifier of py3langid whose scores are equal on all processors."""

        def __init__(self, nb_ptc: np.ndarray, *tables: object, tk_row: object) -> None:
            super().__init__(nb_ptc.astype(np.float32), *tables, norm_probs=True, tk_row=tk_row)
            self._tables = LanguageTables(
                np.asarray(self.tk_nextmove),
                np.asarray(self.tk_row),
                np.array(self.tk_output, np.int32),
                self.nb_ptc,
                np.zeros(len(self.nb_ptc), np.int32),
            )

        def _raw_score(self, text: bytes) -> np.ndarray:
            scores = np.zeros(len(self.nb_classes))
            if add_feature_scores(np.frombuffer(text, np.uint8), self._tables, scores):
                scores += self.nb_pc
            return scores

    identifier = CompiledIdentifier.from_model_file(langid.MODEL_FILE)
    return cast(IdentifyFunction, identifier.classify), frozenset(map(str, identifier.nb_classes))


def _load_langdetect() -> LoadedPackage:
    from langdetect import DetectorFactory, LangDetectException, detector_factory

    factory = DetectorFactory()
    profiles = sorted(Path(detector_factory.PROFILES_DIRECTORY).iterdir())  # langdetect does not sort them
    factory.load_json_profile([profile.read_text(encoding="utf-8") for profile in profiles])
    factory.set_seed(0)  # langdetect samples each text at random

    def identify(text: str) -> tuple[str, float]:
        detector = factory.create()
        detector.append(text)
        try:
            candidates = detector.get_probabilities()
        except LangDetectException:  # the text has no letter that langdetect knows
            return UNDETERMINED
        if not candidates:
            return UNDETERMINED
        return candidates[0].lang.partition("-")[0], candidates[0].prob  # zh-cn and zh-tw are zh

    return identify, frozenset(code.partition("-")[0] for code in factory.langlist)


class DetectorPackage(NamedTuple):
    """Package that detects languages."""

    extra: str  # optional dependency of corpusmill that installs the package
    default_threshold: str  # minimum score: the highest one that keeps 99.8 % of a sample of English documents
    load: Callable[[], LoadedPackage]


DETECTOR_PACKAGES: dict[DetectorName, DetectorPackage] = {
    "py3langid": DetectorPackage("languages", "0.96", _load_py3langid),
    "langdetect": DetectorPackage("langdetect", "1", _load_langdetect),
}
