"""Text that tokenizers lose: unknown tokens and missing characters.

The tests cover each tokenizer family, and the limits to such losses.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tokenizers", reason="tokenizers is not installed")

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from pipeline_assets.corpus.tokens.families import TokenizerFile, load_tokenizer
from pipeline_assets.corpus.tokens.loss_limit import LossLimit
from pipeline_assets.corpus.tokens.losses import Losses
from pipeline_assets.corpus.tokens.pinned_file import FileTokenizerRecipe

ALPHABET = "abcdefghijklmnopqrstuvwxyz.é"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
BYTE_LEVEL = pre_tokenizers.ByteLevel.alphabet()


def bpe(tokens: Any = ALPHABET, normalizer: Any = None, splitter: Any = None, **options: Any) -> Tokenizer:
    library = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(tokens)}, merges=[], **options))
    if normalizer is not None:
        library.normalizer = normalizer
    if splitter is not None:
        library.pre_tokenizer = splitter
    if options.get("byte_fallback"):
        library.decoder = decoders.ByteFallback()
    library.add_special_tokens(["<end>"])
    return library


def word_pieces() -> Tokenizer:
    library = Tokenizer(models.WordPiece({"[UNK]": 0, "ab": 1, "##cd": 2, "<end>": 3}, unk_token="[UNK]"))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    library.decoder = decoders.WordPiece()
    library.add_special_tokens(["<end>"])
    return library


def measure_losses(library: Tokenizer, path: Path, *texts: str) -> Losses:
    library.save(str(path))
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    recipe = FileTokenizerRecipe(family="hf_tokenizer", sha256=sha256, end_of_document="<end>")
    return load_tokenizer(TokenizerFile(recipe, path)).encode(texts).losses


UNKNOWN = {"unk_token": "<unk>"}
CASES: Mapping[str, tuple[Tokenizer, str, Losses]] = {
    "each unknown character is a token": (bpe(["<unk>", *"ab"], **UNKNOWN), "a的一b", Losses(4, 2, 4, 2)),
    "a run of them is a token": (bpe(["<unk>", *"ab"], fuse_unk=True, **UNKNOWN), "a的一b", Losses(3, 1, 4, 2)),
    "no unknown token": (bpe(), "ab的一 是", Losses(2, 0, 5, 3)),
    "an unknown word": (word_pieces(), "abcd abx", Losses(3, 1, 7, 3)),
    "all bytes": (bpe([*ALPHABET, *BYTES], byte_fallback=True), "a的", Losses()),
    "all bytes, and blanks are replaced": (
        bpe([*ALPHABET, "▁", *BYTES], normalizer=normalizers.Replace(" ", "▁"), byte_fallback=True),
        "a 的",
        Losses(),
    ),
    "some bytes": (bpe([*ALPHABET, *BYTES[:99]], byte_fallback=True), "a的", Losses(1, 0, 2, 1)),
    "byte level": (bpe(BYTE_LEVEL, splitter=pre_tokenizers.ByteLevel()), "a的", Losses()),
    "byte level without most bytes": (
        bpe("ab", splitter=pre_tokenizers.ByteLevel(add_prefix_space=False)),
        "a的 b",
        Losses(2, 0, 3, 1),
    ),
    "normalization that expands": (bpe(normalizer=normalizers.NFKC()), "…" * 9 + "的", Losses(27, 0, 28, 1)),
    "normalization to lower case": (bpe(normalizer=normalizers.Lowercase()), "ABc 的", Losses(3, 0, 4, 1)),
    "accents are no loss": (
        bpe(normalizer=normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])),
        "é ab",
        Losses(3, 0, 3, 0),
    ),
    "marks that no letter includes": (
        bpe([*ALPHABET, *BYTES, *"कर"], normalizer=normalizers.StripAccents(), byte_fallback=True),
        "कि री",
        Losses(3, 0, 4, 2),
    ),
    "replaced by a blank": (
        bpe([*ALPHABET, " "], normalizer=normalizers.Replace(Regex("[^a-z]"), " ")),
        "a的b",
        Losses(3, 0, 3, 1),
    ),
    "removed where words are split": (
        bpe(splitter=pre_tokenizers.Split(Regex("[x-z]+"), "removed")),
        "ab xyz",
        Losses(2, 0, 5, 3),
    ),
    "marks of blanks": (
        bpe([*ALPHABET, "▁"], splitter=pre_tokenizers.Metaspace()),
        "ab c",
        Losses(5, 0, 3, 0),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_lost_characters_and_unknown_tokens_are_counted(case: str, tmp_path: Path) -> None:
    library, text, losses = CASES[case]

    assert measure_losses(library, tmp_path / "tokenizer.json", text) == losses
    double = measure_losses(library, tmp_path / "tokenizer.json", text, "", text)
    assert double == losses + losses


@given(texts=st.lists(st.text("ab de\né的是\u00a0", max_size=12), max_size=4), has_unknown=st.booleans())
def test_a_tokenizer_of_single_characters_loses_missing_ones(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], has_unknown: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "tokenizer.json"
    library = bpe(["<unk>", *"abdé"], **UNKNOWN) if has_unknown else bpe([*"abdé"])
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()

    losses = measure_losses(library, path, *texts)

    characters = "".join("".join(text.split()) for text in texts)
    missing = sum(character not in "abdé" for character in characters)
    assert losses.lost_characters == missing
    assert losses.unknown_tokens == missing * has_unknown


@pytest.mark.parametrize(
    ("losses", "limit", "passes", "blocks"),
    [
        (Losses(), "0", True, False),
        (Losses(1000, 1, 1000, 1), "0.05", True, False),
        (Losses(999, 1, 1000, 1), "0.05", False, False),
        (Losses(20, 1, 20, 1), "0.05", False, False),
        (Losses(19, 1, 40, 1), "0.05", False, True),
        (Losses(40, 1, 40, 3), "0.05", False, True),
        (Losses(0, 0, 9, 9), "1", False, False),
        (Losses(1000, 1, 1000, 1), "0.0001", False, True),
    ],
)
def test_a_sources_larger_share_is_compared_to_limits(losses: Losses, limit: str, passes: bool, blocks: bool) -> None:
    verdict = LossLimit(limit).evaluate_losses({"whole": Losses(9, 0, 9, 0), "lossy": losses})

    assert (verdict.passed, not verdict.passed and not verdict.is_minor) == (passes, blocks)
    assert not blocks or verdict.because.startswith("lossy: ")


def test_counts_of_receipts_add_up_to_the_losses() -> None:
    losses = Losses(10, 1, 20, 2)

    assert Losses.from_counts({"tokens": 11, **losses.to_counts()}) == losses
    assert Losses().to_counts() == {}
    assert json.loads(json.dumps(losses.to_json())) == vars(losses) | {"fraction": "0.100000"}
