"""Conversation of a source row, read from its messages or its column `text`."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pipeline_assets.corpus.chat_templates.marked_text import MarkedSpans, format_loss_rule
from pipeline_assets.corpus.chat_templates.render import render_chat
from pipeline_assets.corpus.chat_templates.template import ChatTemplate
from pipeline_assets.corpus.harmony import encode
from pipeline_assets.corpus.harmony.message import Ending, JsonValue, Message, Reason, Refusal, Role, Template
from pipeline_assets.corpus.harmony.parse import ParsedText, parse_harmony
from pipeline_assets.corpus.harmony.prompt import DeveloperContent, prompt_messages
from pipeline_assets.corpus.nemotron import message_text
from pipeline_assets.corpus.nemotron.dataset_section import Domain
from pipeline_assets.corpus.nemotron.message_text import ThinkTags
from pipeline_assets.corpus.nemotron.open_calls import OpenCalls
from pipeline_assets.corpus.nemotron.proofs import PROOF_COLUMNS, read_formalisation
from pipeline_assets.corpus.nemotron.row_forms import read_train_turns
from pipeline_assets.corpus.nemotron.row_values import Row, RowFault, RowReason, has_value
from pipeline_assets.corpus.nemotron.rows_recipe import ChatTemplateSection, RowsRecipe
from pipeline_assets.corpus.nemotron.soft_checks import find_failed_checks
from pipeline_assets.corpus.nemotron.stalled_calls import collect_calls
from pipeline_assets.corpus.nemotron.text_flags import restore_latex
from pipeline_assets.corpus.nemotron.tools import DeclaredTools, read_tools

_SYSTEM_ROLES = ("system", "developer")
_ROLES_WITH_CONTENT = ("user", "assistant")  # a system prompt may be empty, and so may a tool's result
_PROMPT_END_CHARACTERS = 500  # where a request for `<think>` and `<solution>` blocks is expected
_READ_KEYS = {
    "system": frozenset({"role", "content"}),
    "developer": frozenset({"role", "content"}),
    "user": frozenset({"role", "content"}),
    "assistant": frozenset({"role", "content", "tool_calls"}),  # and the keys of reasoning
    "tool": frozenset({"role", "content", "tool_call_id", "name"}),
}


class _MessageReader:
    """Reader of one row's messages, which matches replies with earlier tool calls.

    Attributes:
        counts: Counts of the row, by key:
            `replies_matched_by_HOW`: replies of tools, where HOW is a `MatchedBy`.
            `message_fields_unread`: message keys whose values have no place in Harmony.
            `unread_message_keys/ROLE.KEY`: the same keys by name, and other unread keys, such as those of text parts.
            `messages_as_json`: contents and reasoning that became JSON.
            `think_tags/ROLE`, `think_tags/analysis`: messages with `<think>` tags.
            `think_tags/unpaired`: assistant messages whose tags do not pair up.
            `think_tags/contradicted`: assistant messages with reasoning and without `<think>` in their content,
            although the last user message ends with a request for `<think>` and `<solution>` tags.
    """

    def __init__(self, rules: RowsRecipe) -> None:
        self._rules = rules
        self._reasoning_keys = message_text.REASONING_KEYS if rules.reasoning_key is None else (rules.reasoning_key,)
        self._read_keys = {**_READ_KEYS, "assistant": _READ_KEYS["assistant"].union(self._reasoning_keys)}
        self.calls = OpenCalls()
        self.counts: Counter[str] = Counter()
        self.roles: list[str] = []  # of the row's messages, in order
        # For each message that `read` returned, the index of its source message in the row, or 0 for the opening
        # messages; empty for a proof without messages.
        self.source_indexes: list[int] = []
        self._requests_tags = False

    def read(self, row: Row, tools: DeclaredTools | None, domain: Domain) -> list[Message]:
        """Return the messages of a row for rendering.

        1. The system message of the recipe comes first, if the recipe has one.
        2. A developer message follows if the row has tools, or if its first message is a system or developer message
           with text. That text is the instructions. Later non-empty messages of these roles become developer messages.
        3. Reasoning becomes a message on the analysis channel, unless it is blank. Calls, and non-empty text before
           calls in the same message, are on the commentary channel. Other text of the assistant is on the final
           channel, even if blank or empty.

        A row is rejected if the content of a user or assistant message without calls is absent or null. See `read_text`
        for other content, `ThinkTags` for `<think>` blocks, and `read_formalisation` for a proof without messages.
        """
        raw_messages = row.get("messages")
        if not has_value(raw_messages):
            if domain != "proof" or not any(has_value(row.get(column)) for column in PROOF_COLUMNS):
                raise RowFault(RowReason.NO_MESSAGES, "the row has neither messages nor a text")
            return [*_opening_messages(None, tools, self._rules), *read_formalisation(row)]
        if not isinstance(raw_messages, list):
            raise RowFault(RowReason.WRONG_TYPE, f"messages is {type(raw_messages).__name__}")
        first = raw_messages[0]
        has_instructions = isinstance(first, dict) and first.get("role") in _SYSTEM_ROLES
        instructions = self._read_content(first) if isinstance(first, dict) and has_instructions else ""
        messages = _opening_messages(instructions or None, tools, self._rules)
        self.source_indexes = [0] * len(messages)
        for number, message in enumerate(raw_messages):
            if not isinstance(message, dict):
                raise RowFault(RowReason.MALFORMED_MESSAGE, f"message {number} is {type(message).__name__}")
            role = message.get("role")
            read_keys = self._read_keys.get(role) if isinstance(role, str) else None
            if read_keys is None:
                raise RowFault(RowReason.UNKNOWN_ROLE, f"message {number} is by {role!r:.80}")
            for key in message.keys() - read_keys:
                if has_value(message[key]):
                    self.counts.update(["message_fields_unread", message_text.unread_count_key(str(role), key)])
            if (
                role in _ROLES_WITH_CONTENT
                and message.get("content") is None
                and not has_value(message.get("tool_calls"))
            ):
                raise RowFault(RowReason.MALFORMED_MESSAGE, f"message {number}, of the {role}, has no content")
            self.roles.append(str(role))
            if number > 0 or not has_instructions:
                messages += self._read_message(role, message)
                self.source_indexes += [number] * (len(messages) - len(self.source_indexes))
                if has_value(message.get("tool_calls")):
                    self.calls.reserve(_following_replies(raw_messages, number + 1))
        return messages

    def _read_message(self, role: JsonValue, message: Row) -> list[Message]:
        content = self._read_content(message)
        match role:
            case "user":
                end = content[-_PROMPT_END_CHARACTERS:]
                self._requests_tags = "<think>" in end and "<solution>" in end
                return [Message(Role.USER, content)]
            case "assistant":
                return self._read_assistant_message(message, content)
            case "tool":
                reply, matched = self.calls.add_reply(content, message.get("tool_call_id"), message.get("name"))
                self.counts[f"replies_matched_by_{matched}"] += 1
                return [reply]
        return prompt_messages(None, DeveloperContent(content, ())) if content else []

    def _read_assistant_message(self, message: Row, content: str) -> list[Message]:
        reasoning = message_text.read_reasoning(message, self._reasoning_keys, self.counts)
        tool_calls, messages = message.get("tool_calls"), []
        if reasoning is not None:
            message_text.count_think_tags("analysis", reasoning, self.counts)
            if self._requests_tags and "<think>" not in content:
                self.counts[f"{message_text.THINK_TAGS_COUNT_KEY}/contradicted"] += 1
            messages.append(Message(Role.ASSISTANT, reasoning, channel="analysis"))
        before, content = self._split_thoughts(content, reasoning)
        messages += before
        if not has_value(tool_calls):
            return [*messages, Message(Role.ASSISTANT, content, channel="final")]
        if content:
            messages.append(Message(Role.ASSISTANT, content, channel="commentary"))
        return messages + self.calls.add_calls(tool_calls)

    def _split_thoughts(self, content: str, reasoning: str | None) -> tuple[list[Message], str]:
        """Apply the recipe's `ThinkTags`; return new messages and the remaining text.

        If the tags do not pair up, the text is the unchanged content.
        """
        rule = self._rules.think_tags
        parts = None if rule is ThinkTags.KEEP or "<think>" not in content else message_text.split_think_blocks(content)
        if parts is None:
            return [], content
        if rule is ThinkTags.DROP:
            return [], "".join(text for is_thought, text in parts if not is_thought)
        # A thought that repeats the reasoning is omitted.
        texts = [part for part in parts[:-1] if part[1].strip() and part != (True, (reasoning or "").strip("\r\n"))]
        channels = {True: "analysis", False: "commentary"}
        messages = [Message(Role.ASSISTANT, text, channel=channels[is_thought]) for is_thought, text in texts]
        return messages, parts[-1][1]

    def _read_content(self, message: Row) -> str:
        """Return content as text: `""` for null and `[]`, but `"[]"` for a tool's `[]`."""
        content, role = message.get("content"), str(message.get("role"))
        if content is None or (content == [] and role != "tool"):
            return ""
        text = message_text.read_text(content, role, self.counts)
        message_text.count_think_tags(role, text, self.counts)
        return text


def _following_replies(raw_messages: Sequence[JsonValue], start: int) -> Iterator[Row]:
    """Yield the tool messages from index `start` up to the next message with calls."""
    for number in range(start, len(raw_messages)):
        message = raw_messages[number]
        if not isinstance(message, dict) or has_value(message.get("tool_calls")):
            return
        if message.get("role") == "tool":
            yield message


def _opening_messages(instructions: str | None, tools: DeclaredTools | None, rules: RowsRecipe) -> list[Message]:
    """Return the messages that begin a conversation: system and developer, if set."""
    namespaces = () if tools is None else (tools.namespace,)
    has_developer = instructions is not None or tools is not None
    developer = DeveloperContent(instructions, namespaces) if has_developer else None
    return prompt_messages(rules.system_content, developer)


class RowConversation(NamedTuple):
    """Conversation of a row, as text and as messages; invalid Harmony has no messages.

    The loss mode is the recipe's, an `AssistantTurns` if the row has `train_turns`, or a chat template's `MarkedSpans`.
    """

    loss_mode: encode.LossMode
    parsed: ParsedText
    messages: list[Message]  # before rendering drops any
    template: str | None  # as in the column `template`; None if the text is not valid Harmony
    is_from_text_column: bool  # otherwise from the row's `messages`
    counts: Mapping[str, int]  # `analysis_given` and `analysis_rendered` are before and after rendering
    refusal: Refusal | None = None  # reason why the text is not valid Harmony
    has_own_mask: bool = False  # the row has `train_turns`, which can exclude its messages from the loss
    stalled_calls: int = 0  # calls that repeat an earlier call, see `CallLog.count_stalled`
    failed_checks: Sequence[str] = ()  # names in `CHECKS`
    tokens: encode.HarmonyTokens | None = None  # of a chat template's text; Harmony is encoded later


def read_conversation(
    row: Row, tools: DeclaredTools | None, rules: RowsRecipe, domain: Domain, chat_template: ChatTemplate | None = None
) -> RowConversation:
    """Return a row's conversation: its column `text`, or else its rendered messages.

    With `chat_template`, the messages of a column `text` are rendered, too, but without Harmony's system message.
    Without `chat_template`, a column `text` that is not valid Harmony is returned unparsed, with the reason in
    `refusal`. Raise Refusal for an unusable row.
    """
    text, declared = row.get("text"), None if tools is None else tools.parameter_schemas
    template: str | None = None if isinstance(rules.template, ChatTemplateSection) else rules.template
    if is_from_text_column := has_value(text):
        if not isinstance(text, str):
            raise RowFault(RowReason.WRONG_TYPE, f"text is {type(text).__name__}")
        if text.endswith(("|>\n", "|>\r\n")):  # the line end of a file, which is not part of a message
            text = text.rstrip("\r\n")
        try:
            parsed = parse_harmony(text)
        except Refusal as refusal:
            if chat_template is not None or refusal.reason is Reason.LONE_SURROGATE:
                raise
            unread = ParsedText(text, (), None, text.encode("utf-8"))
            return RowConversation(rules.loss_mode, unread, [], None, True, {}, refusal)
        messages, template, log = parsed.conversation, parsed.template, collect_calls(parsed.conversation)
        counts, roles = message_text.sum_think_tags(messages), [str(message.role) for message in messages]
        has_system = chat_template is not None and template == Template.HARMONY_1 and messages[0].role is Role.SYSTEM
        source_indexes = [*range(len(messages))]
        kept = source_indexes[int(has_system) :]
    else:
        reader = _MessageReader(rules)
        messages = reader.read(row, tools, domain)
        counts, roles, log = reader.counts, reader.roles, reader.calls.log
        if rules.restore_latex:
            messages = [restore_latex(message, counts) for message in messages]
        kept = encode.rendered_indexes(messages, rules.analysis)
        source_indexes, declared = reader.source_indexes, declared or {}
    turns, tokens, loss = read_train_turns(row, roles, counts), None, rules.loss_mode

    def choose_loss_mode(parsed: ParsedText, message_indexes: Sequence[int]) -> encode.LossMode:
        if not turns:
            return rules.loss_mode
        counting = encode.loss_message_indexes(parsed, rules.loss_mode)
        trained = (number for number in counting if turns[source_indexes[kept[message_indexes[number]]]])
        return encode.AssistantTurns(tuple(trained))

    if chat_template is not None:
        declared_tools = None if is_from_text_column else read_tools(row)
        conversation = [messages[number] for number in kept]
        answered = log.answered_calls
        parsed, tokens, counting = render_chat(conversation, declared_tools, chat_template, choose_loss_mode, answered)
        template, loss = chat_template.column_value, MarkedSpans(tuple(counting), format_loss_rule(parsed, counting))
    else:
        if not is_from_text_column:
            parsed = encode.render_harmony(messages, analysis=rules.analysis, ending=Ending.TRAINING)
        loss = choose_loss_mode(parsed, range(len(kept)))
    counts.update(analysis_given=_count_analysis(messages), analysis_rendered=_count_analysis(parsed.conversation))
    stalled, failed_checks = log.count_stalled(), find_failed_checks(parsed, log, declared)
    return RowConversation(
        loss, parsed, messages, template, is_from_text_column, counts, None, bool(turns), stalled, failed_checks, tokens
    )


def _count_analysis(messages: Sequence[Message]) -> int:
    return [message.channel for message in messages].count("analysis")
