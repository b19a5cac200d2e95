"""Tokenizer of single bytes, stored like a model's own."""

from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from pipeline_assets.corpus.harmony.message import CONTROL_TOKENS


def _alphabet() -> list[str]:
    return sorted(pre_tokenizers.ByteLevel.alphabet())


def token_id(letter: str) -> int:
    """Return the token of an ASCII character."""
    return _alphabet().index(letter)


def save_tokenizer(
    folder: Path, controls: tuple[str, ...] = CONTROL_TOKENS, special: bool = True, *, has_ascii_only: bool = False
) -> Path:
    """Save a byte-level tokenizer.json of single bytes and control tokens."""
    alphabet = [letter for letter in _alphabet() if letter.isascii() or not has_ascii_only]
    library = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    tokens = [AddedToken(control, special=special) for control in controls]
    library.add_special_tokens(tokens) if special else library.add_tokens(tokens)
    library.save(str(folder / "tokenizer.json"))
    return folder
