"""Two consistent packed sets of equal size, one sealed in place of the other.

Every token, doc_id and boundary of a set encodes its letter, so a mixture of the two sets is visible anywhere.
"""

import json
from pathlib import Path

import numpy as np
import zstandard

from pipeline_assets.corpus.formats.memmap import (
    BOUNDARIES_FILE,
    BOUNDARY_OFFSETS_FILE,
    INDEX_FILE,
    INPUT_IDS_FILE,
    META_FILE,
    Frame,
    PackedSet,
    PackedSetMeta,
)
from pipeline_assets.spine import durable
from pipeline_assets.spine.manifest import Identity, Manifest, StageVersion
from pipeline_assets.spine.opening import open_staging_dir
from pipeline_assets.spine.staging import OutputFile, StagingDir

SET = Path("stage_a", "packed", "letters")
TOKENS = {"a": 11, "b": 22}
FIRST = {"a": 3, "b": 2}  # tokens of the first segment of each row
_ROWS, _SEQ_LEN = 3, 4


def seal_set(root: Path, letter: str) -> Path:
    """Seal the set of a letter in place of the other."""
    with open_staging_dir(root / SET, {"letter": letter}) as building:
        files, label = _files(building, letter)
        content = [file.content for file in files]
        identity = Identity(StageVersion("packed", 1), {"letter": letter}, [], None, {}, {}, content)
        stored = [file.stored for file in (*files, label)]
        building.seal(Manifest("stage_a/packed", "letters", identity, stored, {}))
    return root / SET


def read_letter(packed: PackedSet) -> str:
    """Return the letter of a set after reading all of its content."""
    letters = {next(letter for letter, token in TOKENS.items() if token == value) for value in packed.input_ids.flat}
    letters.add(packed.meta.tokenizer_family)
    for row in range(len(packed)):
        segments, first = packed.segments(row), packed.boundaries(row)[0, 1]
        letters |= {segment.doc_id for segment in segments}
        letters |= {letter for letter, length in FIRST.items() if length in (segments[0].length, first)}
    return "".join(sorted(letters))


def _files(building: StagingDir, letter: str) -> tuple[list[OutputFile], OutputFile]:
    """Write the files of a set; return them and its label."""
    lengths = [FIRST[letter], _SEQ_LEN - FIRST[letter]]
    segments = [
        {"doc_id": letter, "source": "s", "start": start, "length": length}
        for start, length in zip((0, lengths[0]), lengths, strict=True)
    ]
    frame = zstandard.compress(b"".join(json.dumps(segments).encode() + b"\n" for _ in range(_ROWS)))
    boundaries = np.array([[0, lengths[0]], [lengths[0], lengths[1]]] * _ROWS, np.int32)
    for name, array in ((BOUNDARIES_FILE, boundaries), (BOUNDARY_OFFSETS_FILE, np.arange(0, 2 * _ROWS + 1, 2))):
        np.save(building.path(name), array)
    meta = PackedSetMeta(
        seq_len=_SEQ_LEN,
        n_seqs=_ROWS,
        dtype="int32",
        tokenizer_family=letter,
        tokenizer_sha256="0" * 64,
        tokenizer_path="tokenizer.json",
        vocabulary_size=60,
        eod_id=1,
        pad_id=0,
        strategy="best_fit",
        documents=1,
        tokens=_ROWS * _SEQ_LEN,
        padding_tokens=0,
        created_at="2026-01-01T12:00:00+00:00",
        index_frames=[Frame(0, 0)],
    )
    data = {
        INPUT_IDS_FILE: np.full((_ROWS, _SEQ_LEN), TOKENS[letter], "<i4").tobytes(),
        INDEX_FILE: frame,
        META_FILE: meta.to_bytes(),
        BOUNDARIES_FILE: building.path(BOUNDARIES_FILE).read_bytes(),
        BOUNDARY_OFFSETS_FILE: building.path(BOUNDARY_OFFSETS_FILE).read_bytes(),
    }
    files = {name: _written(building, name, content) for name, content in data.items()}
    label = files.pop(META_FILE)
    return list(files.values()), label


def _written(building: StagingDir, name: str, data: bytes) -> OutputFile:
    sha256 = durable.write_durably(building.path(name), data)
    return OutputFile(name, _ROWS, len(data), sha256, sha256)
