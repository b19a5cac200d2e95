"""A conversation as people read it: message by message, what counts in the loss marked in the margin."""

from collections.abc import Iterator, Sequence

from pipeline_assets.commands.terminal import VISIBLE, styled
from pipeline_assets.corpus.harmony.message import Role
from pipeline_assets.corpus.harmony.parse import ParsedMessage

MARK, _MARGIN = "▌ ", "  "
_COLOURS = {Role.USER: "blue", Role.ASSISTANT: "cyan", Role.TOOL: "yellow"}


def conversation_lines(
    text: str, messages: Sequence[tuple[ParsedMessage, bool]], most_characters: int
) -> Iterator[str]:
    """The lines of each body between those of its control tokens: the mark stands before all of a body that counts in
    the loss, and before nothing else. An empty body has no line.

    Args:
        messages: of the text, each with whether its body counts.
        most_characters: of a body that are shown.
    """
    for (message, _, span, body), counts in messages:
        colour, said = _COLOURS.get(message.role, "magenta"), text[body.start : body.stop]
        shown = said[:most_characters].translate(VISIBLE).split("\n") if said else []
        if len(said) > most_characters:
            shown.append(f"… {len(said) - most_characters:,} more characters; --json gives all")
        yield _MARGIN + styled(text[span.start : body.start].translate(VISIBLE), colour)
        yield from (styled(MARK + line, "green") if counts else _MARGIN + line for line in shown)
        yield _MARGIN + styled(text[body.stop : span.stop], colour)
