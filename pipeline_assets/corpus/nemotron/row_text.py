"""A raw row → its Harmony text, rendered or as it came."""

from collections import Counter
from dataclasses import dataclass

from pipeline_assets.corpus.harmony.message import Message
from pipeline_assets.corpus.harmony.parse import ParsedText, parse_harmony
from pipeline_assets.corpus.harmony.refusal import Reason, Refusal
from pipeline_assets.corpus.harmony.render import render_harmony
from pipeline_assets.corpus.harmony.template import Ending, Template
from pipeline_assets.corpus.nemotron.conversation import read_conversation
from pipeline_assets.corpus.nemotron.presence import Row, is_there
from pipeline_assets.corpus.nemotron.row_fault import RowFault, RowReason
from pipeline_assets.corpus.nemotron.row_settings import Domain, RowSettings
from pipeline_assets.corpus.nemotron.tools_catalog import DeclaredTools


@dataclass(frozen=True)
class RowText:
    """The text of a row.

    Attributes:
        parsed: the text and its messages; none if it is no Harmony.
        messages: those that the row gives, before any is dropped.
        template: None if the text is no Harmony.
        came_as_text: the row had it.
        counts: `analysis_given`, `analysis_rendered`, and what `Conversation` counts.
    """

    parsed: ParsedText
    messages: list[Message]
    template: Template | None
    came_as_text: bool
    counts: Counter[str]


def row_text(row: Row, tools: DeclaredTools | None, settings: RowSettings, domain: Domain) -> RowText:
    """The text that a row has in the column `text`, unchanged; else its messages, rendered.

    Raises:
        RowFault: see `read_conversation`; or the column is no text.
        Refusal: the messages can't be rendered; or the row's own text is no Harmony and such are dropped, or no UTF-8
            has it.
    """
    given = row.get("text")
    if is_there(given):
        if not isinstance(given, str):
            raise RowFault(RowReason.WRONG_TYPE, f"text is {type(given).__name__}")
        return _given_text(given, settings.drop_invalid_harmony)
    conversation = read_conversation(row, tools, settings, domain)
    messages = conversation.messages
    rendering = render_harmony(messages, template=settings.template, analysis=settings.analysis, ending=Ending.TRAINING)
    analysis = Counter(analysis_given=rendering.analysis_given, analysis_rendered=rendering.analysis_rendered)
    return RowText(rendering.parsed, messages, settings.template, False, analysis + conversation.counts)


def _given_text(text: str, drops_invalid: bool) -> RowText:
    try:
        parsed = parse_harmony(text)
    except Refusal as refusal:
        if drops_invalid or refusal.reason is Reason.LONE_SURROGATE:
            raise
        return RowText(ParsedText(text, (), None), [], None, True, Counter())
    messages = parsed.conversation
    analysis = sum(message.channel == "analysis" for message in messages)
    counts = Counter(analysis_given=analysis, analysis_rendered=analysis)
    return RowText(parsed, messages, parsed.template, True, counts)
