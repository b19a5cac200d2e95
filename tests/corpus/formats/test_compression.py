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
@pytest.mark.parametrize(
    "tail", [b"\n", b"{}\n" * 20, b"\0" * 8 + b"{}\n" * 20], ids=["newline", "text", "zeros, text"]
)
def test_content_after_the_last_frame_is_damage(name: str, tail: bytes) -> None:
    with pytest.raises(InputError, match=f"the {name} stream is (damaged|truncated)"):
        read(COMPRESS[name](TEXT) + tail)


@pytest.mark.parametrize("name", ["zstd", "bzip2"])
def test_zero_bytes_after_the_last_frame_are_damage(name: str) -> None:
    with pytest.raises(InputError, match=f"the {name} stream is damaged"):
        read(COMPRESS[name](TEXT) + bytes(64))


@pytest.mark.parametrize("zeros", [1, 4, 512, 200_001])
def test_zero_bytes_after_the_last_gzip_member_are_skipped(zeros: int) -> None:
    assert read(gzip.compress(TEXT) + gzip.compress(b"") + bytes(zeros)) == TEXT


def test_gzip_member_after_zero_bytes_is_damage() -> None:
    with pytest.raises(InputError, match="the gzip stream is damaged"):
        read(gzip.compress(TEXT) + bytes(4) + gzip.compress(TEXT))


@pytest.mark.parametrize("zeros", [4, 512, 200_000])
def test_padding_after_xz_streams_is_skipped(zeros: int) -> None:
    stream = lzma.compress(TEXT) + bytes(zeros)

    assert read(stream) == TEXT
    assert read(stream + stream) == TEXT + TEXT


@pytest.mark.parametrize("zeros", [1, 6, 131_071])
def test_padding_of_xz_streams_is_a_multiple_of_four_bytes(zeros: int) -> None:
    stream = lzma.compress(TEXT) + bytes(zeros)

    for content in (stream, stream + stream):
        with pytest.raises(InputError, match="the xz stream is damaged"):
            read(content)


def test_stream_of_the_older_lzma_format_after_an_xz_stream_is_damage() -> None:
    with pytest.raises(InputError, match="the xz stream is damaged"):
        read(lzma.compress(TEXT) + lzma.compress(TEXT, format=lzma.FORMAT_ALONE))


def test_stream_that_needs_a_dictionary_is_reported_with_the_command_that_reads_it() -> None:
    dictionary = zstandard.train_dictionary(2_000, [b"%d is a number\n" % number * 5 for number in range(1_000)])
    content = zstandard.ZstdCompressor(dict_data=dictionary).compress(TEXT)

    assert refusal(functools.partial(read, content)).startswith(
        "here: the zstd stream is damaged or needs its dictionary (zstd -d -D DICTIONARY reads it); "
    )


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
