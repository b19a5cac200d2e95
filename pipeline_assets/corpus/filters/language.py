"""Which language a text is in, by one of two packages: which one, its version and the threshold are one choice.

A score means something else in each, so neither takes the other's threshold. Their tables lie in their wheels: neither
asks the network.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, cast

import pydantic

from pipeline_assets.spine.install_hints import not_installed
from pipeline_assets.spine.section import RecipeSection, Share

LOOKED_AT = 10_000  # characters at a text's beginning; langdetect itself reads no more
_SCORE_DIGITS = 4  # the last ones of a float may differ between processors
Code = Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z]{2}$")]
DetectorName = Literal["py3langid", "langdetect"]


class Language(NamedTuple):
    """What a text is in.

    Attributes:
        code: ISO 639-1, or 639-3 where that has none; `und`, undetermined, of a text that has no letter.
        score: how sure the detector is, 0 to 1, to four digits.
    """

    code: str
    score: float


UNDETERMINED = Language("und", 0.0)
Identify = Callable[[str], tuple[str, float]]


class LanguageRecipe(RecipeSection):
    """Which languages stay.

    Attributes:
        detector: the package that tells.
        keep: codes of ISO 639-1.
        threshold: the least score that is believed; None is the detector's own, which was measured on English.
    """

    detector: DetectorName = "py3langid"
    keep: Annotated[tuple[Code, ...], pydantic.Field(strict=False, min_length=1)] = ("en",)
    threshold: Share | None = None

    @property
    def least_score(self) -> str:
        """The threshold that holds, as a decimal."""
        return PACKAGES[self.detector].threshold if self.threshold is None else self.threshold

    def keeps(self, language: Language) -> bool:
        """Whether a text in a language stays."""
        return language.code in self.keep and language.score >= float(self.least_score)

    def detection(self) -> dict[str, str]:
        """What a manifest is to record: verdicts may differ where any of it does.

        Raises:
            UsageError: the detector is not installed.
        """
        version = detector(self.detector).version
        return {"detector": self.detector, "version": version, "threshold": self.least_score}


@dataclass(frozen=True)
class Detector:
    """A package that is loaded, of the version that is installed."""

    version: str
    identify: Identify

    def language(self, text: str) -> Language:
        """Of a text's first `LOOKED_AT` characters, in one line; lone surrogates are read as `?`."""
        seen = " ".join(text[:LOOKED_AT].encode("utf-8", "replace").decode().split())
        code, score = self.identify(seen) if any(map(str.isalpha, seen)) else UNDETERMINED
        score = min(round(score, _SCORE_DIGITS), 1.0)
        return Language(code, score) if score > 0 else UNDETERMINED


@functools.cache
def detector(name: DetectorName) -> Detector:
    """A package, loaded once in a process.

    Raises:
        UsageError: it is not installed.
    """
    package = PACKAGES[name]
    try:
        return Detector(metadata.version(name), package.load())
    except ImportError as error:
        raise not_installed(error, package.extra) from None


def _py3langid() -> Identify:
    import numpy as np
    from py3langid import langid

    from pipeline_assets.corpus.filters.language_scores import LanguageTables, add_feature_scores

    class CompiledIdentifier(langid.LanguageIdentifier):  # type: ignore[misc]
        """The package's classifier with compiled sums; its own single floats differ between processors."""

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

    return cast(Identify, CompiledIdentifier.from_model_file(langid.MODEL_FILE).classify)


def _langdetect() -> Identify:
    from langdetect import DetectorFactory, LangDetectException, detector_factory

    factory = DetectorFactory()
    profiles = sorted(Path(detector_factory.PROFILES_DIRECTORY).iterdir())  # it would take the folder's own order
    factory.load_json_profile([profile.read_text(encoding="utf-8") for profile in profiles])
    factory.set_seed(0)  # it tries each text at random

    def identify(text: str) -> tuple[str, float]:
        trial = factory.create()
        trial.append(text)
        try:
            found = trial.get_probabilities()
        except LangDetectException:  # there is no letter that it knows
            return UNDETERMINED
        return (found[0].lang.partition("-")[0], found[0].prob) if found else UNDETERMINED  # zh-cn and zh-tw are zh

    return identify


class Package(NamedTuple):
    """A package that detects languages, and the highest threshold that keeps 99.8 % of English documents."""

    extra: str
    threshold: str
    load: Callable[[], Identify]


PACKAGES: dict[DetectorName, Package] = {
    "py3langid": Package("languages", "0.96", _py3langid),
    "langdetect": Package("langdetect", "1", _langdetect),
}
