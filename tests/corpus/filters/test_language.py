"""Language detection: equal in any process, without network or exceptions."""

import json
import os
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refusal

from pipeline_assets.corpus.filters.language import (
    DETECTOR_PACKAGES,
    MAX_DETECTED_CHARACTERS,
    UNDETERMINED,
    Detector,
    DetectorName,
    Language,
    LanguageRecipe,
    load_detector,
)
from pipeline_assets.spine.errors import UsageError

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

PROJECT = Path(__file__).parents[3]
MODEL = "data/model.npz.xz"
INSTALLED = [name for name in get_args(DetectorName) if find_spec(name) is not None]
CLEAR = {
    "en": "The ministers met on Tuesday to discuss the budget, and nobody was surprised by what they had to say.",
    "fr": "Les ministres se sont réunis mardi pour discuter du budget, et personne n'a été surpris par leurs propos.",
    "de": "Die Minister trafen sich am Dienstag, um über den Haushalt zu sprechen, und niemand war davon überrascht.",
    "es": "Los ministros se reunieron el martes para hablar del presupuesto, y nadie se sorprendió de lo que dijeron.",
    "it": "I ministri si sono riuniti martedì per discutere il bilancio, e nessuno è rimasto sorpreso dalle parole.",
    "pl": "Ministrowie spotkali się we wtorek, aby omówić budżet, i nikogo nie zdziwiło to, co mieli do powiedzenia.",
    "ru": "Министры встретились во вторник, чтобы обсудить бюджет, и никого не удивило то, что они сказали.",
    "ja": "大臣たちは火曜日に集まって予算について話し合いましたが、その発言に驚いた人は誰もいませんでした。",
    "zh": "部长们星期二开会讨论预算问题，没有人对他们所说的话感到惊讶，因为这些话大家早就听过了。",
    "ko": "장관들은 화요일에 모여 예산을 논의했으며, 그들이 한 말에 놀란 사람은 아무도 없었다.",
    "vi": "Các bộ trưởng đã họp vào thứ Ba để thảo luận về ngân sách, và không ai ngạc nhiên về những gì họ nói.",
    "ar": "اجتمع الوزراء يوم الثلاثاء لمناقشة الميزانية، ولم يفاجأ أحد بما قالوه في هذا الاجتماع الطويل.",
}
WITHOUT_LETTERS = ["", " \n\t ", "0 1 2 + 3", "\ud800", "\udfff\ud800 \0", "😀"]
ODD = [*WITHOUT_LETTERS, "ⵣ", "ᚠᚢᚦ", "http://example.com", "a", "x" * 50_000]
every_detector = pytest.mark.parametrize("name", INSTALLED)


def double_score(self: "LanguageIdentifier", visits: dict[int, int], table: np.ndarray) -> np.ndarray:
    """Sum the package's own feature counts in double floats."""
    counts = np.fromiter(visits.values(), np.float64, len(visits))
    return np.log1p(counts) @ table[list(visits)].astype(np.float64) + self.nb_pc


OTHER_PROCESS = """
import json, sys

tried = []

def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto", "socket.gethostbyname"):
        tried.append(event)
        raise OSError("there is no network here")

sys.addaudithook(refuse)
from pipeline_assets.corpus.filters.language import load_detector
loaded = sorted({"py3langid", "langdetect", "numpy", "numba"} & set(sys.modules))
names, texts = json.load(sys.stdin)
answers = {name: [load_detector(name).detect(text) for text in texts] for name in names}
print(json.dumps({"loaded": loaded, "tried": tried, "answers": answers}))
"""


@pytest.fixture(scope="module")
def other_process() -> dict:
    """Detect in another process: reverse order, another processor, no network."""
    texts = [*CLEAR.values(), *ODD][::-1]
    command = [sys.executable, "-c", OTHER_PROCESS]
    stdin = json.dumps([INSTALLED, texts])
    env = {
        **os.environ,
        "OPENBLAS_CORETYPE": "Prescott",
        "NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3",
        "PYTHONHASHSEED": "7",
    }
    result = subprocess.run(command, input=stdin, cwd=PROJECT, env=env, capture_output=True, text=True, check=True)
    return json.loads(result.stdout)


@pytest.mark.parametrize("name", DETECTOR_PACKAGES)
def test_a_clear_text_is_in_its_language(name: DetectorName) -> None:
    languages = {code: load_detector(name).detect(text) for code, text in CLEAR.items()}

    assert {code: language.code for code, language in languages.items()} == {code: code for code in CLEAR}
    assert all(0.5 < language.score <= 1 for language in languages.values())


def excerpts() -> Iterator[str]:
    """Yield thousands of texts: clear, mixed, odd, and of many lengths."""
    for text, other in zip(CLEAR.values(), [*CLEAR.values()][1:], strict=False):
        yield from (text[start : start + size] for size in (1, 2, 5, 20, 60) for start in range(0, len(text), 2))
        yield from (text[:cut] + other[cut:] for cut in range(1, len(text), 3))
        yield from (text.upper(), text.title(), unicodedata.normalize("NFD", text), text.encode().decode("latin-1"))
        yield text * 200
    yield from ODD
    yield from (f"{chr(code)}{chr(code + 1)} " * 9 for code in range(0x20, 0x20000, 97) if not 0xD7FE < code < 0xE000)


def test_compiled_kernel_gives_the_answers_of_the_package() -> None:
    package = pytest.importorskip("py3langid", reason="needs the extra `languages`").langid.LanguageIdentifier
    in_doubles = type("InDoubles", (package,), {"_sparse_score": double_score})
    expected = Detector("0", in_doubles.from_model_file(MODEL, norm_probs=True).classify, frozenset())
    texts = list(excerpts())

    answers = [load_detector("py3langid").detect(text) for text in texts]

    assert len(texts) > 4000
    assert len({language.code for language in answers}) > 60
    assert answers == [expected.detect(text) for text in texts]


@every_detector
def test_another_process_gives_the_same_answers(name: DetectorName, other_process: dict) -> None:
    language = load_detector(name).detect

    answers = [language(text) for text in [*CLEAR.values(), *ODD]]

    assert answers == [language(text) for text in [*CLEAR.values(), *ODD]]
    assert answers == [Language(*answer) for answer in other_process["answers"][name][::-1]]


def test_detection_uses_no_network_and_loads_packages_on_demand(other_process: dict) -> None:
    assert other_process["tried"] == []
    assert other_process["loaded"] == []


@every_detector
@pytest.mark.parametrize("text", WITHOUT_LETTERS)
def test_a_text_without_a_letter_is_undetermined(name: DetectorName, text: str) -> None:
    assert load_detector(name).detect(text) == UNDETERMINED == Language("und", 0.0)
    assert not LanguageRecipe(detector=name, threshold="0").keeps(UNDETERMINED)


@every_detector
def test_line_feeds_and_runs_of_blanks_are_single_blanks(name: DetectorName) -> None:
    lines = CLEAR["fr"].replace(" ", " \r\n\n\t")

    assert load_detector(name).detect(lines) == load_detector(name).detect(CLEAR["fr"])


@every_detector
def test_text_after_the_first_characters_is_ignored(name: DetectorName) -> None:
    head = f"{CLEAR['en']} " * (MAX_DETECTED_CHARACTERS // len(CLEAR["en"]) + 1)

    long = load_detector(name).detect(head[:MAX_DETECTED_CHARACTERS] + CLEAR["ru"] * 100_000)

    assert long == load_detector(name).detect(head[:MAX_DETECTED_CHARACTERS])
    assert long.code == "en"


@every_detector
@settings(max_examples=25, deadline=None)
@given(st.text(st.characters(codec=None), max_size=60))
def test_any_text_has_one_language(name: DetectorName, text: str) -> None:
    language = load_detector(name).detect(text)

    assert language == load_detector(name).detect(text)
    assert 2 <= len(language.code) <= 3 and language.code.isascii() and language.code.islower()
    assert 0 <= language.score <= 1
    assert language.score == round(language.score, 4)


def test_text_in_a_kept_language_is_kept_from_the_threshold_on() -> None:
    recipe = LanguageRecipe(detector="py3langid", keep=("en", "fr"), threshold="0.85")

    verdicts = [recipe.keeps(Language(*pair)) for pair in (("en", 0.85), ("fr", 1.0), ("en", 0.8499), ("de", 1.0))]

    assert verdicts == [True, True, False, False]


def test_default_threshold_is_that_of_the_detector() -> None:
    thresholds = {name: LanguageRecipe(detector=name).min_score for name in DETECTOR_PACKAGES}

    assert thresholds == {"py3langid": "0.96", "langdetect": "1"}
    assert LanguageRecipe().keeps(Language("en", 0.96))
    assert not LanguageRecipe().keeps(Language("en", 0.9599))


@every_detector
def test_default_threshold_is_reachable(name: DetectorName) -> None:
    assert LanguageRecipe(detector=name).keeps(load_detector(name).detect(" ".join([CLEAR["en"]] * 5)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"detector": "lingua"}, "`detector` must be 'py3langid' or 'langdetect', got 'lingua'; correct the value"),
        ({"keep": []}, "keep"),
        ({"keep": ["eng"]}, "`keep.0` must be an ISO 639-1 code, such as en, got 'eng'"),
        ({"keep": ["EN"]}, "`keep.0` must be an ISO 639-1 code, such as en, got 'EN'"),
        ({"threshold": "1.1"}, "threshold"),
    ],
)
def test_invalid_settings_are_refused(content: dict, message: str) -> None:
    assert message in refusal(lambda: LanguageRecipe.from_mapping(content, "recipe.yaml"), UsageError)


@every_detector
def test_unknown_language_code_is_refused(name: DetectorName) -> None:
    LanguageRecipe(detector=name, keep=("en", "ja", "zh")).check_codes()

    refused = refusal(LanguageRecipe(detector=name, keep=("en", "jp")).check_codes, UsageError)

    assert refused.startswith(f"filters.language: {name} detects no language jp; correct `keep`; its codes are af, ")
    assert ", ja, " in refused


@pytest.mark.parametrize(("name", "extra"), [("py3langid", "languages"), ("langdetect", "langdetect")])
def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch, name: DetectorName, extra: str) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    load_detector.cache_clear()

    assert refusal(LanguageRecipe(detector=name).detection_settings, UsageError) == (
        f"{extra}: {name} is not installed; in the project's folder run "
        f".venv/bin/python -m pip install -c constraints.txt -e '.[{extra}]'"
    )
