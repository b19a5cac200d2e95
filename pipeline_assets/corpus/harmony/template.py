"""Which text messages make, and what of it is there: all of these are choices of a recipe."""

from enum import StrEnum


class Template(StrEnum):
    """A way to write messages; the number changes whenever any conversation's text does.

    `harmony/1`: as openai-harmony 0.0.8 renders, with the object types of tool schemas filled in (`object_types`).
    `plain/1`: `<|start|>author<|message|>…<|end|>` and nothing else, as datasets have it that know no channels.
    """

    HARMONY_1 = "harmony/1"
    PLAIN_1 = "plain/1"


class Analysis(StrEnum):
    """What becomes of messages on the analysis channel, whoever sends them.

    `keep`: all are rendered. `drop`: none is. `auto_drop`: openai-harmony's default: if the last assistant message is
    on the final channel, those before the first message on it are dropped, so that a single turn loses all.
    """

    KEEP = "keep"
    DROP = "drop"
    AUTO_DROP = "auto_drop"


class Ending(StrEnum):
    """How the text ends.

    `training`: as `render_conversation_for_training`: a last assistant message on the final channel ends with
    `<|return|>`. `conversation`: each message ends with its own token. `completion`: then `<|start|>assistant`.
    """

    TRAINING = "training"
    CONVERSATION = "conversation"
    COMPLETION = "completion"
