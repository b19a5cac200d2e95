"""Search for words in every file of a folder, without code of the product.

Compressed lines, tables and token files are decoded by the libraries that define them; other files are read as bytes.
"""

import base64
import functools
import json
import re
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import sentencepiece
import tiktoken
import zstandard

_IDS = {"tokens.bin": np.int32, "input_ids.mmap": np.int32}
_WORD = re.compile(r"[0-9A-Za-z_]+")


@functools.cache
def o200k(vocabulary: Path) -> Callable[[list[int]], str]:
    """Return a decoder of o200k ids from the lines of a vocabulary.

    Control tokens, such as the end of a document, become spaces.
    """
    ranks = {base64.b64decode(token): int(rank) for token, rank in map(str.split, vocabulary.read_text().splitlines())}
    encoding = tiktoken.Encoding("plain", pat_str=r".+", mergeable_ranks=ranks, special_tokens={})
    (space,) = encoding.encode(" ")
    return lambda ids: encoding.decode([token_id if token_id < len(ranks) else space for token_id in ids])


def words_in(path: Path, decode: Callable[[list[int]], str]) -> set[str]:
    """Return all words of ASCII letters, digits and underscores in a file."""
    if path.suffix == ".zst":
        with open(path, "rb") as file:
            text = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read().decode()
    elif path.suffix == ".parquet":
        text = json.dumps(pq.read_table(path).to_pylist(), default=str)
    elif path.name in _IDS:
        text = decode(np.fromfile(path, _IDS[path.name]).tolist())
    elif path.suffix == ".npy":
        array = np.load(path)
        text = array.tobytes().decode("latin-1") if array.dtype.kind == "S" else decode(array.reshape(-1).tolist())
    else:
        text = path.read_bytes().decode("latin-1")
        if path.suffix == ".arrow":
            text = json.dumps(pa.ipc.open_file(path).read_all().to_pylist(), default=str)
    return set(_WORD.findall(text.replace("\\n", " ")))


def find_words(root: Path, words: Collection[str], decode: Callable[[list[int]], str]) -> dict[str, set[str]]:
    """Find the files of a folder that contain some of the words, with these words."""
    searched, found = {*words}, dict[str, set[str]]()
    for path in sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink()):
        matches = words_in(path, decode) & searched
        if matches:
            found[str(path.relative_to(root))] = matches
    return found


def sentencepiece_decoder(model: Path) -> Callable[[list[int]], str]:
    """Return the decoder of a SentencePiece model, which skips padding ids."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    return lambda ids: processor.decode([token_id for token_id in ids if 0 <= token_id < processor.vocab_size()])
