"""Compressed streams: detected by their first bytes, and read whole or refused."""

import bz2
import functools
import gzip
import io
import lzma
import random
from collections.abc import Callable

import pytest
import zstandard
from refusals import refusal

from pipeline_assets.corpus.formats.codecs import detect_codec, read_decompressed
from pipeline_assets.spine.errors import InputError

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}
TEXT = b"".join(b"%d is a number\n" % (row * 7919) for row in range(40))
SKIPPABLE = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"pzst"
codecs = pytest.mark.parametrize("name", COMPRESS)


def read(content: bytes, block_bytes: int = 1 << 20) -> bytes:
    codec = detect_codec(content)
    assert codec is not None
    return b"".join(read_decompressed(io.BytesIO(content), codec, "here", "fetch it again", block_bytes))


@codecs
@pytest.mark.parametrize("text", [b"", b"x", TEXT], ids=["nothing", "a byte", "lines"])
def test_stream_is_detected_by_its_first_bytes_and_read_back(name: str, text: bytes) -> None:
    content = COMPRESS[name](text)

    codec = detect_codec(content[:16])

    assert codec is not None and codec.name == name
    assert read(content) == text


@pytest.mark.parametrize("head", [b"", b"{", b'{"text": "a"}', b"BZh9 is how bzip2 files begin", b"(\xb5/", b"P*M"])
def test_uncompressed_content_has_no_codec(head: bytes) -> None:
    assert detect_codec(head) is None


@codecs
def test_several_frames_are_one_text_and_skippable_frames_contain_none(name: str) -> None:
    between = SKIPPABLE if name == "zstd" else b""
    content = between.join([b"", *map(COMPRESS[name], (b"one\n", b"", b"two\n")), b""])

    assert read(content, block_bytes=1) == b"one\ntwo\n"


@codecs
def test_long_stream_is_read_in_blocks(name: str) -> None:
    numbers = random.Random(7)
    text = b"".join(numbers.randbytes(60).hex().encode() + b"\n" for _ in range(4_000))
    content = COMPRESS[name](text)

    blocks = list(read_decompressed(io.BytesIO(content), detect_codec(content), "here", "fetch it again", 1 << 16))  # type: ignore[arg-type]

    assert len(blocks) > 1
    assert b"".join(blocks) == text


@codecs
def test_stream_truncated_at_any_byte_is_refused(name: str) -> None:
    frame = COMPRESS[name](TEXT)

    for length in {*range(16, 2 * len(frame))} - {len(frame)}:
        message = refusal(functools.partial(read, (frame + frame)[:length]))
        assert message == f"here: the {name} stream is truncated; fetch it again"


@codecs
@pytest.mark.parametrize("tail", [b"\0" * 64, b"{}\n" * 20], ids=["zeros", "text"])
def test_content_after_the_last_frame_is_damage(name: str, tail: bytes) -> None:
    with pytest.raises(InputError, match=f"the {name} stream is (damaged|truncated)"):
        read(COMPRESS[name](TEXT) + tail)


def test_a_stream_that_needs_too_much_memory_is_not_called_damaged() -> None:
    window = zstandard.ZstdCompressionParameters(window_log=28)
    frame = zstandard.ZstdCompressor(compression_params=window).compressobj()
    streams = {
        "zstd": frame.compress(TEXT) + frame.flush(),
        "xz": lzma.compress(TEXT, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 28}]),
    }

    for name, content in streams.items():
        assert refusal(functools.partial(read, content)) == (
            f"here: the {name} stream needs more than 128 MiB of memory; decompress the file, such as by "
            "zstd -d --long=31 or xz -d, and read the result"
        )


@codecs
def test_damaged_stream_is_refused(name: str) -> None:
    content = bytearray(COMPRESS[name](TEXT))
    content[len(content) // 2] ^= 1

    assert refusal(lambda: read(bytes(content))).startswith(f"here: the {name} stream is damaged (")
