"""What normalised rows ask, as Documents: gathered, decontaminated, compared. Each leads to the row that asks it."""

from typing import ClassVar

from pipeline_assets.corpus.nemotron.schema import DROPPED_FILE
from pipeline_assets.corpus.rows.conversations import ConversationRows, fate_of_row, line_of_source
from pipeline_assets.corpus.rows.derived import DecontaminatedRows, DeduplicatedRows
from pipeline_assets.corpus.rows.documents import BESIDES, DocumentRows, SourceRows
from pipeline_assets.corpus.rows.store import Fate, Labels, Line, Part


class _Asked(DocumentRows):
    """Documents whose ids are those of normalised rows, behind the names of their splits."""

    def origin(self, part: Part) -> Line:
        rows = ConversationRows(self.listing(part.source).corpus, self.lineage)
        return line_of_source(rows, part.record.meta.source_file, part.record.meta.source_row)

    def id_upstream(self, part: Part) -> str:
        return part.id.removeprefix(f"{part.source}/")


class PromptRows(_Asked, SourceRows):
    """What the rows of a split ask that stay whatever others say."""

    labels = Labels("prompts", "prompts", "prompt", "asked", BESIDES)
    reads_sources = False
    kept_aside: ClassVar = {"dropped": DROPPED_FILE}

    def fate(self, part: Part) -> Fate | None:
        return fate_of_row(self, part)


class DecontaminatedPrompts(_Asked, DecontaminatedRows):
    """Prompts that hold no item of an evaluation set."""

    labels = Labels("decontaminated", "decontaminated", "prompt", "asked", BESIDES)


class ComparedPrompts(_Asked, DeduplicatedRows):
    """Prompts that are nearly no other."""

    labels = Labels("compared", "near_duplicates", "prompt", "asked", BESIDES)
