"""Hypothesis strategies for Harmony conversations and tool schemas."""

from hypothesis import strategies as st

from pipeline_assets.corpus.harmony.message import SPECIAL_PATTERN, Message, Refusal, Role, render_header

# Pieces that make control tokens, or nearly, at the seams of content and structure.
PIECES = ["<|", "|>", "<", "|", ">", "start", "end", "message", "call", "return", "channel", "constrain", "<|end|>"]
PIECES += ["<|start|>", "<|message|>", "assistant", " to=", "functions.f", "\n", "é", "漢", "🙂", "a", " ", "<|en"]
ANY_CONTENT = st.lists(st.sampled_from(PIECES), max_size=12).map("".join) | st.text(max_size=30)
CONTENTS = ANY_CONTENT.filter(lambda text: SPECIAL_PATTERN.search(text) is None and _is_utf8(text))
NAMES = st.text(st.characters(exclude_categories=["Cs", "Z", "C"], exclude_characters="<"), min_size=1, max_size=8)
FIELDS = st.sampled_from(["functions.f", "assistant", "browser.search", "python"]) | NAMES
CHANNELS = st.sampled_from([None, "analysis", "commentary", "final"])
CONTENT_TYPES = st.sampled_from([None, None, "<|constrain|>json", "json", "code", "<|constrain|>python"])


def _is_utf8(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _is_writable(message: Message) -> bool:
    try:
        render_header(message.role, message.name, message.recipient, message.channel, message.content_type)
    except Refusal:
        return False
    return True


MESSAGES = st.builds(
    Message,
    role=st.sampled_from(Role),
    content=CONTENTS,
    name=st.none() | FIELDS,
    recipient=st.none() | FIELDS,
    channel=CHANNELS | NAMES,
    content_type=CONTENT_TYPES,
).filter(_is_writable)
SPEAKERS = st.sampled_from([Role.SYSTEM, Role.DEVELOPER, Role.USER, Role.ASSISTANT])
PLAIN = st.tuples(SPEAKERS, CONTENTS).map(lambda fields: Message(*fields))
ANSWERS = st.tuples(CONTENTS, CHANNELS).map(lambda fields: Message(Role.ASSISTANT, fields[0], channel=fields[1]))
CALLS = CONTENTS.map(
    lambda content: Message(Role.ASSISTANT, content, None, "functions.f", "commentary", "<|constrain|>json")
)
REPLIES = CONTENTS.map(lambda content: Message(Role.TOOL, content, "functions.f", "assistant", "commentary"))
USUAL_CONVERSATIONS = st.lists(st.one_of(PLAIN, ANSWERS, CALLS, REPLIES), max_size=6)
TURNS = st.one_of(PLAIN, ANSWERS, CALLS, REPLIES, MESSAGES)
CONVERSATIONS = st.lists(TURNS, max_size=6)

WORDS = st.sampled_from(["a", "b", "null", 'say "x"', "é\n漢", "", "object", "x|y"])
# Numbers that the library reads exactly; it often misreads the last digit of others.
INTEGERS = st.integers(-(2**63), 2**64 - 1) | st.sampled_from([10**20, -(10**30)])
FLOATS = st.builds(
    lambda digits, exponent: float(f"{digits}e{exponent}"), st.integers(-(10**15), 10**15), st.integers(-22, 7)
)
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | FLOATS | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)
TYPES = st.sampled_from(["object", "object", "array", "string", "number", "integer", "boolean", "null", "odd"])
ABOUT = {
    "description": WORDS,
    "title": WORDS,
    "default": JSON,
    "nullable": st.booleans(),
    "enum": st.lists(WORDS | st.integers(), max_size=3),
    "examples": st.lists(WORDS | st.integers(), max_size=3),
    "required": st.lists(WORDS, max_size=3),
}


def _schemas(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """Draw schemas with any keywords in any order, some with an invalid value."""
    keywords = ABOUT | {
        "type": TYPES | st.lists(TYPES, max_size=3),
        "properties": st.dictionaries(WORDS, inner, max_size=3),
        "items": inner,
        "oneOf": st.lists(inner, max_size=3),
        "anyOf": st.lists(inner, max_size=2),
    }
    entries = [st.tuples(st.just(key), values) for key, values in keywords.items()]
    odd = st.tuples(st.sampled_from(sorted(keywords)), JSON)
    shaped = st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(WORDS, inner, max_size=3)}, optional=dict(ABOUT)
    )
    return shaped | st.lists(st.one_of(*entries, odd), max_size=5).map(dict)


SCHEMAS = st.recursive(st.fixed_dictionaries({"type": TYPES}, optional=dict(ABOUT)), _schemas, max_leaves=8)
