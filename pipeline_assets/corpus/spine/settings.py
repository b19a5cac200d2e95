"""Run settings as environment variables have them: text with limits."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from pipeline_assets.corpus.spine.errors import UsageError
from pipeline_assets.corpus.spine.start_method import StartMethod, default_start_method

_UNLIMITED = 2**31


@dataclass(frozen=True)
class NumberSetting:
    """A variable that holds a whole number, and what it is where it is unset or empty."""

    variable: str
    default: int
    at_least: int
    at_most: int = _UNLIMITED

    def parse(self, text: str) -> int:
        """
        Raises:
            UsageError: it is no whole number, or out of range.
        """
        value = text or str(self.default)
        if not value.isdecimal() or not self.at_least <= int(value) <= self.at_most:
            is_limited = self.at_most < _UNLIMITED
            limits = f"from {self.at_least} to {self.at_most}" if is_limited else f"of {self.at_least} or more"
            raise UsageError(f"it is {value!r}", self.variable, f"set a whole number {limits}")
        return int(value)


WORKERS = NumberSetting("CORPUSMILL_WORKERS", 2, at_least=0)
LOG_EVERY = NumberSetting("CORPUSMILL_LOG_EVERY", 10, at_least=1)
ZSTD_LEVEL = NumberSetting("CORPUSMILL_ZSTD_LEVEL", 3, at_least=1, at_most=22)
MEMORY_MIB = NumberSetting("CORPUSMILL_MEMORY_MIB", 2048, at_least=1)
HUB_TRIES = NumberSetting("CORPUSMILL_HUB_TRIES", 6, at_least=1)
FAISS_GPU = NumberSetting("CORPUSMILL_FAISS_GPU", 0, at_least=0)
START_METHOD = "CORPUSMILL_START_METHOD"


NUMBERS = (WORKERS, LOG_EVERY, ZSTD_LEVEL, MEMORY_MIB, HUB_TRIES, FAISS_GPU)
SETTINGS = (*(setting.variable for setting in NUMBERS), START_METHOD)


def parse_gpu(text: str) -> int | None:
    """The GPU that faiss is to search on; None where the text is empty.

    Raises:
        UsageError: it is no number.
    """
    return FAISS_GPU.parse(text) if text else None


def parse_start_method(text: str) -> StartMethod:
    """How workers start; the default where the text is empty.

    Raises:
        UsageError: there is no such method.
    """
    wanted, known = text or default_start_method(), get_args(StartMethod)
    method: StartMethod | None = next((name for name in known if name == wanted), None)
    if method is None:
        raise UsageError(f"it is {wanted!r}", START_METHOD, f"set one of {', '.join(known)}")
    return method


def check_settings(variables: Mapping[str, str]) -> None:
    """
    Raises:
        UsageError: one of the variables can't be used, whether or not there is work that would use it.
    """
    for setting in NUMBERS:
        setting.parse(variables.get(setting.variable, ""))
    parse_start_method(variables.get(START_METHOD, ""))
