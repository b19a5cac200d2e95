"""Tokenizers of all families: pinned files, ids, ends of documents and refusals."""

import hashlib
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refusal

from pipeline_assets.corpus.tokens.describe import describe_sentencepiece
from pipeline_assets.corpus.tokens.families import TokenizerFile, load_tokenizer
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, HarmonyRecipe
from pipeline_assets.corpus.tokens.pinned_file import FileTokenizerRecipe
from pipeline_assets.corpus.tokens.tokenizer import Tokenizer
from pipeline_assets.spine.errors import InputError, UsageError

Load = Callable[..., Tokenizer]
Content = dict[str, Any]


def encode_texts(tokenizer: Tokenizer, *texts: str) -> list[list[int]]:
    runs = tokenizer.encode(texts)
    return [run.tolist() for run in runs.split()]


def added_token(number: int, content: str, special: bool = True) -> Content:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": number, "content": content, "special": special, **flags}


def hf_content(**changes: Any) -> Content:
    """Content of a tokenizer.json with three words, an unknown token and an end."""
    vocabulary = {"<unk>": 0, "one": 1, "two": 2, "three": 3, "<end>": 4}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added_token(0, "<unk>"), added_token(4, "<end>")],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
    } | changes


def padding_section(number: int, token: str) -> Content:
    """Padding section in the form that the library writes."""
    form = {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None, "pad_type_id": 0}
    return {**form, "pad_id": number, "pad_token": token}


def bpe_content(**changes: Any) -> Content:
    vocabulary = {"a": 0, "b": 1, "ab": 2, "<end>": 3}
    model = {"type": "BPE", "vocab": vocabulary, "merges": [["a", "b"]], "unk_token": None, "dropout": None}
    return hf_content(model=model | changes, added_tokens=[added_token(3, "<end>")], pre_tokenizer=None)


@pytest.fixture
def load_hf(tmp_path: Path) -> Load:
    """Return a function that loads a tokenizer.json with this content, or bytes."""
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")

    def load(content: Content | bytes, end_of_document: str = "<end>") -> Tokenizer:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        path = tmp_path / "tokenizer.json"
        path.write_bytes(data)
        pinned = hashlib.sha256(data).hexdigest()
        recipe = FileTokenizerRecipe(family="hf_tokenizer", sha256=pinned, end_of_document=end_of_document)
        return load_tokenizer(TokenizerFile(recipe, path))

    return load


def test_a_tokenizer_json_gives_the_ids_of_plain_text_and_names_its_end(load_hf: Load) -> None:
    tokenizer = load_hf(hf_content())

    assert encode_texts(tokenizer, "one two", "", "three nine") == [[1, 2], [], [3, 0]]
    assert tokenizer.encode(["één", "two"]).text_bytes == 8
    assert (tokenizer.end_of_document_id, tokenizer.padding_id, tokenizer.vocabulary_size) == (4, 4, 5)
    assert not tokenizer.contains_special(tokenizer.encode(["one nine"]).ids)
    assert tokenizer.contains_special(tokenizer.encode(["one <end>"]).ids)
    assert tokenizer.decode(np.array([1, 2, 4], np.int32)) == "one two <end>"


def test_truncation_padding_and_template_of_the_file_are_ignored(load_hf: Load) -> None:
    truncation = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    padding = padding_section(5, "<pad>") | {"strategy": {"Fixed": 8}}
    template = {
        "type": "TemplateProcessing",
        "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<end>", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<end>": {"id": "<end>", "ids": [4], "tokens": ["<end>"]}},
    }

    tokens = [added_token(0, "<unk>"), added_token(4, "<end>"), added_token(5, "<pad>")]

    tokenizer = load_hf(
        hf_content(truncation=truncation, padding=padding, post_processor=template, added_tokens=tokens)
    )

    assert encode_texts(tokenizer, "one two three one", "two") == [[1, 2, 3, 1], [2]]
    assert tokenizer.padding_id == 5
    assert tokenizer.contains_special(np.array([1, 5], np.int32))


@pytest.mark.parametrize(("number", "token"), [(1, "[PAD]"), (0, "<unk>")])
def test_padding_with_an_id_of_text_is_ignored(load_hf: Load, number: int, token: str) -> None:
    tokenizer = load_hf(hf_content(padding=padding_section(number, token)))

    assert tokenizer.padding_id == tokenizer.end_of_document_id == 4
    assert not tokenizer.contains_special(tokenizer.encode(["one two", "nine"]).ids)


def test_an_unencodable_text_is_an_error_of_the_tokenizer_file(load_hf: Load, tmp_path: Path) -> None:
    model = {"type": "WordLevel", "vocab": {"one": 0, "<end>": 1}, "unk_token": "<unk>"}
    tokenizer = load_hf(hf_content(model=model, added_tokens=[added_token(1, "<end>")]))

    assert encode_texts(tokenizer, "one one") == [[0, 0]]
    with pytest.raises(
        InputError, match=r"the tokenizer cannot encode a text \(.*\); use a tokenizer.json that has an id"
    ) as error:
        tokenizer.encode(["one", "nine"])
    assert error.value.where == str(tmp_path / "tokenizer.json")


def test_a_special_token_in_a_text_is_encoded_as_characters(load_hf: Load) -> None:
    tokenizer = load_hf(bpe_content())

    [ids] = encode_texts(tokenizer, "ab<end>ba")

    assert ids == [2, 1, 0]  # the characters of <end> are not in the vocabulary
    assert not tokenizer.contains_special(tokenizer.encode(["ab<end>ba"]).ids)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no JSON", "not a tokenizer.json ("),
        (b'{"a": 1}', "not a tokenizer.json ("),
        (b"\xff\xfe", "not a tokenizer.json ("),
        (hf_content(added_tokens=[added_token(9, "<end>")]), "'<end>' has id 9 in the file, 4 when loaded; use a file"),
        (
            hf_content(added_tokens=[added_token(4, "<end>"), added_token(9, "<gap>")]),
            "'<gap>' has id 9 in the file, 5 when loaded; use a file whose ids have no gap",
        ),
        (
            hf_content(model={"type": "WordLevel", "vocab": {"a": 2**31, "<end>": 4}, "unk_token": "a"}),
            "the largest id is 2147483648; use a tokenizer with ids below 2,147,483,648, because tokens are int32",
        ),
        (
            hf_content(padding=padding_section(99_999, "[PAD]")),
            "padding id is 99999, the largest id is 4; use a file whose `padding.pad_id` is the id of a",
        ),
        (hf_content(padding=padding_section(2**31 + 5, "[PAD]")), "padding id is 2147483653, the largest id is"),
        (bpe_content(dropout=0.1), "the tokenizer drops merges at random (model.dropout); use a file without dropout"),
    ],
)
def test_an_unusable_file_is_refused(load_hf: Load, content: Content | bytes, message: str) -> None:
    if isinstance(content, dict) and content["added_tokens"][0]["id"] == 0:
        content["added_tokens"] = content["added_tokens"][1:]

    with pytest.raises(InputError) as error:
        load_hf(content)

    assert message in f"{error.value.what}; {error.value.fix}"
    assert error.value.where.endswith("tokenizer.json")


@pytest.mark.parametrize(
    ("content", "end", "fix"),
    [
        (hf_content(), "</s>", "name the token that ends a document; it has <unk>, <end>"),
        (hf_content(added_tokens=[]), "<end>", "use a file with special tokens"),
    ],
)
def test_an_end_other_than_a_special_token_is_refused(load_hf: Load, content: Content, end: str, fix: str) -> None:
    assert refusal(lambda: load_hf(content, end_of_document=end), UsageError) == (
        f"pack.tokenizer.end_of_document: '{end}' is not a special token of tokenizer.json; {fix}"
    )


def test_only_the_shipped_tokenizer_needs_no_file() -> None:
    shipped = load_tokenizer(TokenizerFile(HarmonyRecipe(family="o200k_harmony", sha256=VOCABULARY_SHA256)))

    assert (shipped.end_of_document_id, shipped.padding_id, shipped.vocabulary_size) == (199_999, 199_999, 201_088)
    assert encode_texts(shipped, "Hello world") == [[13225, 2375]]
    recipe = FileTokenizerRecipe(family="sentencepiece", sha256="0" * 64, end_of_document="</s>")
    with pytest.raises(
        UsageError,
        match=r"^pack\.tokenizer: the tokenizer file of sentencepiece is not set",
    ):
        load_tokenizer(TokenizerFile(recipe))


@pytest.fixture
def load_model(tmp_path: Path) -> Load:
    """Return a function that trains a SentencePiece model on a few words and loads it."""
    sentencepiece = pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")

    def load(end_of_document: str = "</s>", data: bytes | None = None, **options: Any) -> Tokenizer:
        if data is None:
            model = io.BytesIO()
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(["hello world and all the others in it"] * 20),
                model_writer=model,
                vocab_size=40,
                hard_vocab_limit=False,
                num_threads=1,
                minloglevel=2,
                **options,
            )
            data = model.getvalue()
        path = tmp_path / "unigram.model"
        path.write_bytes(data)
        sha256 = hashlib.sha256(data).hexdigest()
        recipe = FileTokenizerRecipe(family="sentencepiece", sha256=sha256, end_of_document=end_of_document)
        return load_tokenizer(TokenizerFile(recipe, path))

    return load


@pytest.mark.parametrize("library", ["tokenizers", "sentencepiece"])
def test_a_missing_library_is_named_with_its_install_command(
    library: str, load_hf: Load, load_model: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)

    assert refusal(lambda: load_hf(hf_content()) if library == "tokenizers" else load_model(data=b""), UsageError) == (
        f"tokenizers: {library} is not installed; "
        "in the project's folder run .venv/bin/python -m pip install -c constraints.txt -e '.[tokenizers]'"
    )


def test_a_sentencepiece_model_gives_the_ids_of_plain_text_and_no_control_symbol(load_model: Load) -> None:
    tokenizer = load_model()

    runs = tokenizer.encode(["hello world", "", "the </s> end"])

    assert runs.lengths[1] == 0 and runs.lengths[0] > 1
    assert (tokenizer.end_of_document_id, tokenizer.padding_id) == (2, 2)
    assert 2 not in runs.ids and not tokenizer.contains_special(runs.ids)
    assert runs.ids.max() < tokenizer.vocabulary_size
    assert tokenizer.decode(runs.ids[: runs.lengths[0]]) == "hello world"


def test_a_model_may_have_a_padding_id_and_a_user_defined_end(load_model: Load) -> None:
    tokenizer = load_model("<sep>", user_defined_symbols=["<sep>"], pad_id=3)

    assert tokenizer.padding_id == 3
    assert tokenizer.contains_special(tokenizer.encode(["hello <sep> world"]).ids)
    assert not tokenizer.contains_special(tokenizer.encode(["hello world"]).ids)


@pytest.mark.parametrize("data", [b"", b"no model at all", b"\x0a\x03abc"])
def test_an_invalid_model_file_is_refused(load_model: Load, data: bytes) -> None:
    with pytest.raises(InputError, match=r"not a SentencePiece model; put the \.model file there"):
        load_model(data=data)


@pytest.mark.parametrize("end", ["<|endoftext|>", "<unk>"])
def test_an_end_that_a_model_lacks_is_refused(load_model: Load, end: str) -> None:
    with pytest.raises(UsageError, match=r"is not a piece of unigram\.model; name the piece"):
        load_model(end)


def test_a_model_without_an_end_piece_is_described(load_model: Load, tmp_path: Path) -> None:
    load_model("<s>", eos_id=-1)

    description = describe_sentencepiece(tmp_path / "unigram.model")

    assert description["ids"] == {"unknown": 0, "begin": 1, "end": -1, "pad": -1}
