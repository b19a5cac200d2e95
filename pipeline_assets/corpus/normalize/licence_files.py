"""The licence files of a source: under which licence a file is, by the nearest one above it."""

import io
from collections.abc import Sequence
from pathlib import PurePosixPath

from pipeline_assets.corpus.licence_texts import LICENCE_TEXT_BYTES, licence_of_text
from pipeline_assets.corpus.licences import UNKNOWN, Licensed
from pipeline_assets.corpus.readers.source_folder import SourceFile, open_source
from pipeline_assets.corpus.spine.errors import RetryableError
from pipeline_assets.corpus.spine.files import unreadable

_SHOWN = 3


class LicenceFiles:
    """Licence files by their folders; one is read when a file is first asked about that it is nearest to."""

    def __init__(self, files: Sequence[SourceFile]) -> None:
        self._files: dict[PurePosixPath, list[SourceFile]] = {}
        self._licensed: dict[PurePosixPath, Licensed] = {}
        for file in sorted(files, key=lambda file: file.name):
            self._files.setdefault(PurePosixPath(file.name).parent, []).append(file)

    def nearest(self, name: str) -> Licensed | None:
        """What the licence files say that lie in the folder of a file, else in the next one above it that has some;
        None where none has.

        Raises:
            InputError: one can't be read, or is not as it was listed.
        """
        folder = next((above for above in PurePosixPath(name).parents if above in self._files), None)
        if folder is None:
            return None
        if folder not in self._licensed:
            self._licensed[folder] = _agreed([_read(file) for file in self._files[folder]])
        return self._licensed[folder]


def _agreed(said: Sequence[Licensed]) -> Licensed:
    """What all licence files of a folder say; `unknown` where they differ: they may hold together, or be a choice."""
    if len({one.tag for one in said}) == 1:
        return said[0]
    shown = ", ".join(f"{one.evidence.removeprefix('file: ')} ({one.tag})" for one in said[:_SHOWN])
    return Licensed(UNKNOWN, f"file: {shown}" + ", …" * (len(said) > _SHOWN))


def _read(file: SourceFile) -> Licensed:
    with open_source(file) as opened:
        try:
            text = io.BufferedReader(opened).read(LICENCE_TEXT_BYTES + 1)  # type: ignore[type-var]
        except OSError as error:
            raise RetryableError(unreadable(error), file.path, "give back the file") from None
    evidence = f"file: {file.name}"
    if len(text) > LICENCE_TEXT_BYTES:
        return Licensed(UNKNOWN, evidence)
    return licence_of_text(text.decode("utf-8", errors="replace"), evidence)
