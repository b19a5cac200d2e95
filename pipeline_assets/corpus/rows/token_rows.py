"""Rows of tokens of one length, each with parts of several documents, whose texts lie upstream."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from numpy.typing import NDArray

from pipeline_assets.corpus.packing.recipe import TOKENIZER_FILE
from pipeline_assets.corpus.rows.documents import DocumentRows
from pipeline_assets.corpus.rows.source_row import input_for_source
from pipeline_assets.corpus.rows.store import Content, Line, Part, Row, RowStore
from pipeline_assets.corpus.tokens.families import AnyTokenizerRecipe, TokenizerFile, load_tokenizer
from pipeline_assets.corpus.tokens.o200k_harmony import TokenizerRecipe
from pipeline_assets.corpus.tokens.tokenizer import Tokenizer


class TokenRows(RowStore):
    """Rows of tokens.

    Attributes:
        seq_len: tokens in a row, its padding counted.
    """

    holds_tokens = holds_several = True

    @property
    @abstractmethod
    def seq_len(self) -> int: ...

    @property
    @abstractmethod
    def tokenizer(self) -> Tokenizer: ...

    @abstractmethod
    def tokens_of(self, row: int) -> NDArray:
        """All tokens of a row, shape (seq_len,)."""

    def load_tokenizer(self, recipe: AnyTokenizerRecipe, *lay_at: Path) -> Tokenizer:
        """The tokenizer of the rows. Its file is looked for where a rebuild takes it from, since a data root moves,
        then where it lay when they were made.
        """
        if isinstance(recipe, TokenizerRecipe):
            return load_tokenizer(TokenizerFile(recipe))
        asked = self.artifact.manifest.provenance.get(TOKENIZER_FILE)
        places = [self.lineage.root / asked] if isinstance(asked, str) else []
        places.extend(lay_at)
        file = next((place for place in places if place.is_file()), places[0] if places else None)
        return load_tokenizer(TokenizerFile(recipe, file))

    def __iter__(self) -> Iterator[Content]:
        return iter(())

    def row_of(self, number: int, parts: Iterable[Part]) -> Row:
        """A row of parts, each as the store knows it but for its text, one after the other; behind them is padding."""
        tokens, told = self.tokens_of(number), []
        for part in parts:
            text = self.tokenizer.decode(tokens[part.column : part.column + (part.tokens or 0)])
            told.append(replace(part, text=text))
        filled = sum(part.tokens or 0 for part in told)
        return Row(number, tuple(told), number * self.seq_len, tokens[:filled], self.seq_len - filled)

    def row_of_token(self, position: int) -> int:
        self.check_range("token", position, len(self) * self.seq_len)
        return position // self.seq_len

    def origin(self, part: Part) -> Line:
        digest = input_for_source(self.artifact.manifest, part.source)["digest"]
        if digest not in self._corpora:
            self._corpora[digest] = DocumentRows(self.lineage.locate(digest), self.lineage)
        return self._corpora[digest].line(part)

    @cached_property
    def _corpora(self) -> dict[str, DocumentRows]:
        return {}
