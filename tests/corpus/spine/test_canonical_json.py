"""Canonical JSON: one value, one byte string; what has no single spelling is refused."""

import hashlib
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_assets.corpus.spine.manifest import canonical_json, sha256_of

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


def in_another_order(value: object, dice: random.Random) -> object:
    if isinstance(value, list):
        return [in_another_order(item, dice) for item in value]
    if isinstance(value, dict):
        keys = dice.sample(sorted(value), len(value))
        return {key: in_another_order(value[key], dice) for key in keys}
    return value


def test_keys_are_sorted_at_every_depth_and_nothing_is_spaced() -> None:
    value = {"b": [{"z": 1, "y": None}], "a": True}

    written = canonical_json(value)

    assert written == b'{"a":true,"b":[{"y":null,"z":1}]}'


def test_keys_are_sorted_by_code_point_not_by_alphabet() -> None:
    value = {"é": 1, "z": 2, "Z": 3, "10": 4, "9": 5}

    written = canonical_json(value)

    assert written.decode() == '{"10":4,"9":5,"Z":3,"z":2,"é":1}'


def test_text_is_utf8_and_only_what_json_must_escape_is_escaped() -> None:
    value = 'ß 日本 😀 "quoted" \n \x00'

    written = canonical_json(value)

    assert written.decode() == '"ß 日本 😀 \\"quoted\\" \\n \\u0000"'


def test_letters_that_look_the_same_but_are_spelt_differently_stay_different() -> None:
    composed, decomposed = "é", "e\u0301"

    written = {canonical_json(composed), canonical_json(decomposed)}

    assert len(written) == 2


def test_whole_numbers_of_any_size_are_written_out() -> None:
    value = [0, -1, 2**64, True]

    written = canonical_json(value)

    assert written == b"[0,-1,18446744073709551616,true]"


def test_tuples_are_lists() -> None:
    assert canonical_json((1, (2,))) == canonical_json([1, [2]])


def test_the_sha256_of_a_value_is_that_of_its_canonical_bytes() -> None:
    value = {"name": "train", "documents": 3}

    digest = sha256_of(value)

    assert digest == hashlib.sha256(b'{"documents":3,"name":"train"}').hexdigest()


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (0.5, "got float 0.5"),
        ({"fraction": [1.0]}, "got float 1.0"),
        (float("nan"), "got float nan"),
        (float("inf"), "got float inf"),
        ({"bytes": b"x"}, "got bytes b'x'"),
        ({"set": {1}}, "got set {1}"),
        ([object], "got type <class 'object'>"),
        ({1: "one"}, "got the key 1"),
        ({"inner": {None: 0}}, "got the key None"),
    ],
)
def test_a_value_with_no_single_spelling_is_refused_and_named(value: object, named: str) -> None:
    with pytest.raises(TypeError) as refusal:
        canonical_json(value)

    allowed = "canonical JSON holds dicts with text keys, lists, text, whole numbers, booleans and null; "
    assert str(refusal.value) == allowed + named


@pytest.mark.parametrize("value", ["\ud800", {"\udfff": 1}, ["\ud83d"]])
def test_a_lone_surrogate_is_refused_since_utf8_cannot_hold_it(value: object) -> None:
    with pytest.raises(UnicodeEncodeError, match="surrogates not allowed"):
        canonical_json(value)


@given(values, st.randoms())
def test_equal_values_have_equal_bytes_in_whatever_order_their_keys_were_put(
    value: object, dice: random.Random
) -> None:
    other = in_another_order(value, dice)

    assert canonical_json(other) == canonical_json(value)


@given(values)
def test_a_json_reader_gives_the_value_back(value: object) -> None:
    assert json.loads(canonical_json(value)) == value


@given(values, values)
def test_different_values_have_different_bytes(one: object, other: object) -> None:
    is_same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)

    assert (canonical_json(one) == canonical_json(other)) == is_same
