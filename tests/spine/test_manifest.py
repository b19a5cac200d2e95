"""A manifest's digest covers its identity, but not storage and provenance."""

import json
import pickle
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_assets.spine import manifest as manifests
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.manifest import (
    FileContent,
    Identity,
    Manifest,
    StageVersion,
    StoredFile,
    canonical_json,
    is_seal_intact,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)
WHERE = Path("artifact/manifest.json")
IDENTITY = Identity(
    stage=StageVersion("tokenize", 3),
    recipe={"seed": "healing", "rows": 10},
    inputs=[{"name": "snapshot", "digest": "sha256:aa"}, {"name": "a.parquet", "digest": "sha256:bb"}],
    tokenizer={"family": "o200k", "sha256": "cc"},
    decisions={"english_filter_applied": True},
    counts={"documents": 9, "tokens": 80, "dropped": {"empty_text": 1}},
    files=[FileContent("train.bin", 9, "dd"), FileContent("train.idx", 9, "ee")],
)
EDITED = replace(IDENTITY, counts={**IDENTITY.counts, "documents": 1_000_000})
MANIFEST = Manifest(
    kind="healing/megatron_split",
    name="healing_text_v1/train",
    identity=IDENTITY,
    storage=[StoredFile("train.bin", 160, "dd"), StoredFile("train.idx", 40, "ee")],
    provenance={"seconds": 0.25, "host": "日本"},
)


def reorder_keys(value: object, generator: random.Random) -> object:
    if isinstance(value, list):
        return [reorder_keys(item, generator) for item in value]
    if isinstance(value, dict):
        keys = generator.sample(sorted(value), len(value))
        return {key: reorder_keys(value[key], generator) for key in keys}
    return value


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ({"b": [{"z": 1, "y": None}], "a": True}, '{"a":true,"b":[{"y":null,"z":1}]}'),
        ({"é": 1, "z": 2, "Z": 3, "10": 4, "9": 5}, '{"10":4,"9":5,"Z":3,"z":2,"é":1}'),
        ('ß 日本 😀 "quoted" \n \x00', '"ß 日本 😀 \\"quoted\\" \\n \\u0000"'),
        (["é", "e\u0301"], '["é","e\u0301"]'),
        ([0, -1, -(2**63), 2**64 - 1, 2**64, True], f"[0,-1,{-(2**63)},{2**64 - 1},{2**64},true]"),
        ((1, (2,)), "[1,[2]]"),
    ],
    ids=[
        "keys are sorted at every depth",
        "by code point, not by alphabet",
        "only what JSON must escape is escaped",
        "letters stay as they are spelt",
        "whole numbers of any size",
        "tuples are lists",
    ],
)
def test_each_value_has_one_encoding(value: object, written: str) -> None:
    assert canonical_json(value).decode() == written


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
def test_value_without_a_unique_encoding_is_refused_and_named(value: object, named: str) -> None:
    with pytest.raises(TypeError) as refusal:
        canonical_json(value)

    allowed = "canonical JSON contains only dicts with text keys, lists, text, whole numbers, booleans and null; "
    assert str(refusal.value) == allowed + named


@pytest.mark.parametrize("value", ["\ud800", {"\udfff": 1}, ["\ud83d"]])
def test_lone_surrogate_is_refused_because_utf8_cannot_encode_it(value: object) -> None:
    with pytest.raises(UnicodeEncodeError, match="surrogates not allowed"):
        canonical_json(value)


@given(values, st.randoms())
def test_only_equal_values_have_equal_bytes_which_a_json_reader_reads(value: object, generator: random.Random) -> None:
    written = canonical_json(value)

    assert canonical_json(reorder_keys(value, generator)) == written
    assert json.loads(written) == value
    assert json.dumps(json.loads(written), sort_keys=True) == json.dumps(value, sort_keys=True)  # 1 is not true


def edit_manifest(change: Callable[[dict[str, Any]], object]) -> bytes:
    value = json.loads(MANIFEST.to_bytes())
    change(value)
    return json.dumps(value).encode()


def refusal(data: bytes) -> InputError:
    with pytest.raises(InputError) as refused:
        Manifest.from_bytes(data, WHERE)
    assert refused.value.where == "artifact/manifest.json"
    return refused.value


def test_digest_of_a_fixed_identity_does_not_change() -> None:
    assert IDENTITY.digest == "sha256:fd1370536c1938a3dd3e05943bf0aa95253508fe16fe2d23dc00825016d4cd59"


def test_hub_files_are_inputs_but_not_upstream_artifacts() -> None:
    hub_file = {"name": "maker/pages@0f:a.parquet", "digest": "sha256:bb", "bytes": 7}

    assert replace(IDENTITY, inputs=[hub_file, *IDENTITY.inputs]).upstream == IDENTITY.inputs


def test_manifest_is_read_as_written() -> None:
    manifest = Manifest.from_bytes(MANIFEST.to_bytes(), WHERE)

    assert manifest == MANIFEST
    assert manifest.to_bytes() == MANIFEST.to_bytes()


def test_file_is_sorted_indented_utf8_with_a_final_newline() -> None:
    lines = MANIFEST.to_bytes().decode().splitlines(keepends=True)

    assert lines[:2] == ["{\n", f' "digest": "{IDENTITY.digest}",\n']
    assert '  "host": "日本",\n' in lines
    assert [line for line in lines if line.startswith(' "')] == sorted(line for line in lines if line.startswith(' "'))
    assert lines[-1] == "}\n"


@pytest.mark.parametrize(
    "other",
    [
        replace(IDENTITY, stage=StageVersion("tokenize", 4)),
        replace(IDENTITY, stage=StageVersion("tokenise", 3)),
        replace(IDENTITY, recipe={"seed": "healing", "rows": 11}),
        replace(IDENTITY, inputs=list(reversed(IDENTITY.inputs))),
        replace(IDENTITY, inputs=[*IDENTITY.inputs[:1], {"name": "a.parquet", "digest": "sha256:b0"}]),
        replace(IDENTITY, tokenizer={"family": "o200k", "sha256": "c0"}),
        replace(IDENTITY, tokenizer=None),
        replace(IDENTITY, decisions={"english_filter_applied": False}),
        replace(IDENTITY, counts={**IDENTITY.counts, "documents": 8}),
        replace(IDENTITY, files=IDENTITY.files[:1]),
        replace(IDENTITY, files=list(reversed(IDENTITY.files))),
        replace(IDENTITY, files=[FileContent("train.bin", 9, "d0"), IDENTITY.files[1]]),
        replace(IDENTITY, files=[FileContent("train.bin", 8, "dd"), IDENTITY.files[1]]),
        replace(IDENTITY, files=[FileContent("valid.bin", 9, "dd"), IDENTITY.files[1]]),
    ],
)
def test_digest_changes_with_any_part_of_the_identity(other: Identity) -> None:
    assert other.digest != IDENTITY.digest


@pytest.mark.parametrize(
    "other",
    [
        replace(MANIFEST, storage=[StoredFile("train.bin", 100, "recompressed")]),
        replace(MANIFEST, provenance={}),
        replace(MANIFEST, name="healing_text_v2/train"),
        replace(MANIFEST, identity=replace(IDENTITY, recipe={"rows": 10, "seed": "healing"})),
    ],
)
def test_digest_is_independent_of_storage_name_and_provenance(other: Manifest) -> None:
    assert other.digest == MANIFEST.digest


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda value: value.update(digest="sha256:00"), f"digest is sha256:00, its identity has {IDENTITY.digest}"),
        (lambda value: value["identity"]["recipe"].update(rows=11), f"digest is {IDENTITY.digest}, its identity has"),
        (
            lambda value: value["identity"]["counts"].update(documents=1_000_000),
            f"digest is {IDENTITY.digest}, its identity has {EDITED.digest}",
        ),
        (lambda value: value["identity"]["files"].pop(), f"digest is {IDENTITY.digest}, its identity has sha256:"),
        (lambda value: value["identity"].update(recipe_sha256="00"), f"digest is {IDENTITY.digest}, its identity has"),
    ],
)
def test_any_edit_of_the_identity_or_its_digests_is_refused(
    change: Callable[[dict[str, Any]], object], what: str
) -> None:
    error = refusal(edit_manifest(change))

    assert error.what.startswith(what)
    assert error.fix == "the manifest was edited; restore it, or run its recipe with --replace"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda value: value["identity"]["counts"].update(documents=0.5), "Expected `int | object`, got `float`"),
        (lambda value: value["identity"]["counts"].update(documents=-1), "Expected `int` >= 0"),
        (lambda value: value["identity"]["counts"].update(ledger=[]), "Expected `object`, got `array`"),
        (lambda value: value["identity"]["counts"].update(documents=float("nan")), "invalid JSON (JSON is malformed"),
        (lambda value: value["identity"]["counts"].update(words=0.5), "canonical JSON contains only dicts with text"),
        (lambda value: value["identity"]["counts"].update(words=1 << 64), "a number has more than 64 bits"),
        (lambda value: value["identity"]["files"][0].update(path="\ud800"), "invalid JSON ("),
        (lambda value: value["identity"]["files"][0].update(path="a\0b"), "Expected `str` matching regex"),
        (lambda value: value["identity"]["files"][0].update(rows="9"), "Expected `int`, got `str`"),
        (lambda value: value["identity"]["files"].append(None), "Expected `object`, got `null`"),
        (lambda value: value["identity"]["inputs"][0].pop("digest"), "Object missing required field `digest`"),
        (lambda value: value["identity"]["inputs"][0].update(digest="../.."), "Expected `str` matching regex"),
        (lambda value: value["identity"]["inputs"][0].update(member="../raw"), "Expected `str` matching regex"),
        (lambda value: value["identity"].update(note=1), "Object contains unknown field `note`"),
        (lambda value: value["identity"].update(recipe=[]), "Expected `object`, got `array`"),
        (lambda value: value.update(identity=[]), "Expected `object`, got `array`"),
        (lambda value: value.update(name=0.5), "Expected `str`, got `float`"),
        (lambda value: value.update(storage={"a": 1}), "Expected `array`, got `object`"),
        (lambda value: value["storage"][0].update(bytes=True), "Expected `int`, got `bool`"),
        (lambda value: value["storage"][0].pop("sha256"), "Object missing required field `sha256`"),
        (lambda value: value.update(provenance=[]), "Expected `object`, got `array`"),
        (lambda value: value["provenance"].update(builder="7"), "Expected `int`, got `str`"),
        (lambda value: value["provenance"].update(seconds=float("inf")), "invalid JSON ("),
        (lambda value: value["provenance"].update(seconds="long"), "Expected `float`, got `str`"),
        (lambda value: value["provenance"].update(seconds_of=[]), "Expected `object`, got `array`"),
        (lambda value: value["provenance"].update(peak_memory_bytes="x"), "Expected `int | null`, got `str`"),
        (lambda value: value.pop("digest"), "Object missing required field `digest`"),
        (lambda value: value["identity"].pop("recipe_sha256"), "Object missing required field `recipe_sha256`"),
        (lambda value: value["identity"].pop("tokenizer"), "Object missing required field `tokenizer`"),
        (lambda value: value.clear(), "Object missing required field `schema`"),
    ],
)
def test_invalid_manifest_is_refused_with_a_reason(change: Callable[[dict[str, Any]], object], problem: str) -> None:
    error = refusal(edit_manifest(change))

    assert error.what.startswith(f"not a valid manifest: {problem}")
    assert error.fix == "rebuild the artifact"


def test_another_schema_is_refused_with_both_names() -> None:
    error = refusal(edit_manifest(lambda value: value.update(schema="corpusmill/manifest/2")))

    assert error.what == "the schema is 'corpusmill/manifest/2', but this program reads 'corpusmill/manifest/1'"
    assert error.fix == "rebuild the artifact"


def test_missing_key_is_an_error_when_it_is_read() -> None:
    manifest = Manifest.from_bytes(MANIFEST.to_bytes(), WHERE)

    with pytest.raises(InputError) as refused:
        _ = manifest.identity.counts["dropped"]["no_text"]

    assert str(refused.value) == (
        "artifact/manifest.json: the manifest lacks `no_text`, which its kind requires; rebuild the artifact"
    )
    assert "no_text" not in manifest.identity.counts["dropped"]
    assert pickle.loads(pickle.dumps(manifest)) == manifest


def test_truncated_manifest_is_refused() -> None:
    data = MANIFEST.to_bytes()

    for length in range(len(data) - 2):
        refusal(data[:length])


def test_seal_is_intact_only_for_the_written_bytes() -> None:
    seal = next(line for line in MANIFEST.to_bytes().splitlines(keepends=True) if line.startswith(b' "seal"'))

    assert is_seal_intact(MANIFEST.to_bytes())
    assert not is_seal_intact(MANIFEST.to_bytes().replace(seal, b""))


def test_any_flipped_bit_breaks_the_seal_or_the_manifest() -> None:
    sealed = MANIFEST.to_bytes()

    for position in range(len(sealed)):
        for bit in range(8):
            flipped = sealed[:position] + bytes([sealed[position] ^ 1 << bit]) + sealed[position + 1 :]
            try:
                Manifest.from_bytes(flipped, WHERE)
            except InputError:
                continue
            assert not is_seal_intact(flipped), (position, bit)


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value["provenance"].update(seconds=0.5),
        lambda value: value["provenance"].update(builder=7),
        lambda value: value.update(name="healing_text_v2/train"),
        lambda value: value["storage"].pop(),
        lambda value: value.update(seal="sha256:00"),
        lambda value: value.update(note="new"),
        lambda value: None,  # another layout of the same values
    ],
)
def test_edit_outside_the_identity_breaks_the_seal(change: Callable[[dict[str, Any]], object]) -> None:
    data = edit_manifest(change)

    assert Manifest.from_bytes(data, WHERE).digest == MANIFEST.digest
    assert not is_seal_intact(data)


def test_manifest_above_the_size_limit_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = Manifest("corpora/words", "english", IDENTITY, [], {})
    data = manifest.to_bytes()
    file = manifests.MANIFEST_FORMAT

    monkeypatch.setattr(manifests, "MANIFEST_FORMAT", replace(file, max_bytes=len(data)))
    assert manifest.to_bytes() == data
    monkeypatch.setattr(manifests, "MANIFEST_FORMAT", replace(file, max_bytes=len(data) - 1))
    with pytest.raises(InputError) as refused:
        manifest.to_bytes()

    sizes = f"a manifest is limited to {len(data) - 1:,} bytes, got {len(data):,}"
    assert str(refused.value) == f"corpora/words english: {sizes}; split the source, so that it lists fewer files"
    assert file.max_bytes == 268_435_456
