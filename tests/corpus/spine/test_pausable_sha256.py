"""A sha256 that is put down and taken up: at any byte the hash of hashlib."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_assets.corpus.spine.pausable_sha256 import OpenSsl, PausableSha256, load_openssl


@pytest.fixture(scope="module")
def openssl() -> OpenSsl:
    found = load_openssl()
    if found is None:
        pytest.skip("this Python's hashlib has no OpenSSL whose functions can be called")
    return found


@given(data=st.binary(max_size=400), cuts=st.lists(st.integers(0, 400), max_size=4))
def test_however_often_it_is_put_down_it_is_the_hash_of_hashlib(openssl: OpenSsl, data: bytes, cuts: list[int]) -> None:
    digest = PausableSha256(openssl)
    start = 0
    for cut in [*sorted(min(cut, len(data)) for cut in cuts), len(data)]:
        digest.update(memoryview(bytearray(data[start:cut])))
        digest = PausableSha256(openssl, digest.state)
        start = cut

    assert digest.hexdigest() == hashlib.sha256(data).hexdigest()


def test_asking_for_the_hash_does_not_end_it(openssl: OpenSsl) -> None:
    digest = PausableSha256(openssl)
    digest.update(memoryview(bytearray(b"one")))

    first = digest.hexdigest()
    digest.update(memoryview(bytearray(b"two")))

    assert first == hashlib.sha256(b"one").hexdigest()
    assert digest.hexdigest() == hashlib.sha256(b"onetwo").hexdigest()
    assert digest.is_within_bounds()


def test_the_library_names_its_version(openssl: OpenSsl) -> None:
    assert PausableSha256(openssl).library == openssl.version
    assert openssl.version.endswith(" endian")
