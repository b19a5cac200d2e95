"""openai/harmony's own vectors and rendered conversations, read and written back."""

import json
from dataclasses import replace

import openai_harmony
import pytest
from harmony_builtin_tools import BROWSER, PYTHON
from harmony_oracle import encoder, library, library_message, library_tokens
from harmony_vectors import RENDERED, VECTORS
from real_samples import sample

from pipeline_assets.corpus.harmony.encode import encode_harmony, render_harmony
from pipeline_assets.corpus.harmony.message import AnalysisMode, Ending, JsonValue, Message, Refusal, Role
from pipeline_assets.corpus.harmony.parse import ParsedText, parse_harmony
from pipeline_assets.corpus.harmony.prompt import (
    GPT_OSS_SYSTEM,
    DeveloperContent,
    FunctionTool,
    function_namespace,
    prompt_messages,
)

pytestmark = pytest.mark.real
TOKENS = {"test_simple_reasoning_response", "test_simple_tool_call"}
PROMPTS = [
    "test_browser_and_function_tool",
    "test_browser_and_python_tool",
    "test_browser_tool_only",
    "test_does_not_drop_if_ongoing_analysis",
    "test_dropping_cot_by_default",
    "test_keep_analysis_between_finals",
    "test_no_tools",
    "test_preserve_cot",
    "test_reasoning_system_message",
    "test_reasoning_system_message_no_instruction",
    "test_reasoning_system_message_with_dates",
    "test_render_functions_with_parameters",
    "test_simple_convo",
    *(
        f"test_simple_convo_{effort}_effort{instruction}"
        for effort in ("low", "medium", "high")
        for instruction in ("", "_no_instruction")
    ),
]
CONVERSATIONS = [
    "01_system_user_final",
    "02_analysis_final",
    "03_tool_round_trip",
    "04_tool_call_open",
    "05_multi_turn_analysis",
    "06_developer_tools_user",
    "07_two_tool_calls_with_preamble",
    "08_no_channel",
]

CITY = "The city and state, e.g. San Francisco, CA"
CITIES = 'List of city and state, e.g. ["San Francisco, CA", "New York, NY"]'
FORMAT: JsonValue = {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"}
KITCHEN = [
    FunctionTool("get_location", "Gets the location of the user.", None),
    FunctionTool(
        "get_current_weather",
        "Gets the current weather in the provided location.",
        {
            "type": "object",
            "properties": {"location": {"type": "string", "description": CITY}, "format": FORMAT},
            "required": ["location"],
        },
    ),
    FunctionTool(
        "get_multiple_weathers",
        "Gets the current weather in the provided list of locations.",
        {
            "type": "object",
            "properties": {
                "locations": {"type": "array", "items": {"type": "string"}, "description": CITIES},
                "format": FORMAT,
            },
            "required": ["locations"],
        },
    ),
    FunctionTool(
        "kitchensink",
        "A function with various complex schemas.",
        {
            "description": "params object",
            "properties": {
                "string": {
                    "type": "string",
                    "title": "STRING",
                    "description": "A string",
                    "examples": ["hello", "world"],
                },
                "string_nullable": {
                    "type": "string",
                    "nullable": True,
                    "description": "A nullable string",
                    "default": "the default",
                },
                "string_enum": {"type": "string", "enum": ["a", "b", "c"]},
                "oneof_string_or_number": {
                    "oneOf": [
                        {"type": "string", "default": "default_string_in_oneof"},
                        {"type": "number", "description": "numbers can happen too"},
                    ],
                    "description": "a oneof",
                    "default": 20,
                },
            },
        },
    ),
]


def vector(name: str) -> str:
    """Read a vector without the blanks at its end, which do not belong to it."""
    return sample(f"{VECTORS}/{name}.txt").read_text(encoding="utf-8").rstrip()


def parsed_vector(text: str) -> ParsedText:
    return parse_harmony(text, ending="next_role" if text.endswith("<|start|>assistant") else "closed")


def ids(parsed: ParsedText) -> list[int]:
    return encode_harmony([parsed], encoder())[0].ids.tolist()


@pytest.mark.parametrize("name", PROMPTS)
def test_vector_is_read_and_rendered_to_text_and_tokens_of_the_library(name: str) -> None:
    text = vector(name)
    parsed = parsed_vector(text)
    ending = Ending.COMPLETION if parsed.next_role else Ending.CONVERSATION

    rendering = render_harmony(parsed.conversation, analysis=AnalysisMode.KEEP, ending=ending)

    expected = library_tokens(parsed.conversation, AnalysisMode.KEEP, ending)
    assert rendering.text == text == library().decode_utf8(expected)
    assert ids(parsed) == expected


def test_prompts_are_built_from_their_content() -> None:
    weather = function_namespace(
        [
            FunctionTool(
                "lookup_weather",
                "Use this tool to lookup the weather in a given location. Call it with the parameter 'location', "
                "can be any textual description of a location.",
                {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]},
            )
        ]
    )
    dated = replace(GPT_OSS_SYSTEM, conversation_start_date="2025-06-28")
    no_commentary = replace(GPT_OSS_SYSTEM, valid_channels=("analysis", "final"))

    prompts = {
        "test_no_tools": prompt_messages(dated, None),
        "test_browser_tool_only": prompt_messages(replace(dated, tools=(BROWSER,)), None),
        "test_browser_and_python_tool": prompt_messages(replace(dated, tools=(PYTHON, BROWSER)), None),
        "test_browser_and_function_tool": prompt_messages(
            replace(dated, tools=(BROWSER,)), DeveloperContent(None, (weather,))
        ),
        "test_simple_convo_low_effort": [
            *prompt_messages(
                replace(GPT_OSS_SYSTEM, reasoning_effort="low"),
                DeveloperContent("Answer the user's questions like a robot.", ()),
            ),
            Message(Role.USER, "What is the capital of the largest country in the world?"),
        ],
        "test_reasoning_system_message_with_dates": [
            *prompt_messages(
                replace(no_commentary, knowledge_cutoff="2021-01", conversation_start_date="2021-01-01"), None
            ),
            Message(Role.USER, "What is 42 * pi?"),
        ],
        "test_render_functions_with_parameters": [
            *prompt_messages(
                replace(dated, reasoning_effort="high"),
                DeveloperContent("Always respond in riddles", (function_namespace(KITCHEN),)),
            ),
            Message(Role.USER, "What is the weather like in SF?"),
        ],
    }

    for name, messages in prompts.items():
        rendering = render_harmony(messages, analysis=AnalysisMode.KEEP, ending=Ending.COMPLETION)
        assert rendering.text == vector(name), name


def test_stream_is_read_after_the_announced_role() -> None:
    text = vector("test_streamable_parser")

    parsed = parse_harmony(text, opening=Role.ASSISTANT)

    library_parsed = library().parse_messages_from_completion_tokens(ids(parsed), openai_harmony.Role.ASSISTANT)
    assert [library_message(message) for message in parsed.conversation] == library_parsed
    assert [message.recipient for message in parsed.conversation] == [None, "browser.search", "assistant"]
    assert "<|start|>assistant to=browser.search<|channel|>commentary code<|message|>" in rewrite(parsed)


def test_a_reply_of_a_tool_may_be_open() -> None:
    parsed = parse_harmony(vector("test_tool_response_parsing"), ending="open")

    assert parsed.conversation == [
        Message(Role.TOOL, '{"result": "https://openai.com/"}', "browser.search", "assistant", "commentary")
    ]
    assert rewrite(parsed) == vector("test_tool_response_parsing") + "<|end|>"


@pytest.mark.parametrize("name", sorted(TOKENS))
def test_vector_of_tokens_is_read_as_by_the_library(name: str) -> None:
    tokens = [int(token) for token in vector(name).split()]
    text = library().decode_utf8(tokens)

    parsed = parse_harmony(text, opening=Role.ASSISTANT, ending="open")

    expected = library().parse_messages_from_completion_tokens(tokens, openai_harmony.Role.ASSISTANT)
    assert [library_message(message) for message in parsed.conversation] == expected
    assert ids(parsed) == tokens
    rewrite(parsed)


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_rendered_conversation_is_written_back_in_all_variants(name: str) -> None:
    rendered = json.loads(sample(f"{RENDERED}/{name}.json").read_text(encoding="utf-8"))
    whole = parse_harmony(rendered["variants"]["conversation_keep_analysis"]["text"])

    for variant, expected in rendered["variants"].items():
        analysis = AnalysisMode.KEEP if variant.endswith("_keep_analysis") else AnalysisMode.AUTO_DROP
        ending = Ending(variant.removesuffix("_keep_analysis"))
        text = render_harmony(whole.conversation, analysis=analysis, ending=ending).text

        assert text == expected["text"]
        assert ids(parsed_vector(text)) == expected["tokens"]


def test_content_that_the_library_renders_to_forged_turns_is_refused() -> None:
    rendered = json.loads(sample(f"{RENDERED}/09_special_text_in_content.json").read_text(encoding="utf-8"))
    messages = [Message(Role(message["role"]), message["content"][0]["text"]) for message in rendered["messages"]]

    with pytest.raises(Refusal, match="control_tokens_in_content"):
        render_harmony(messages, analysis=AnalysisMode.KEEP, ending=Ending.TRAINING)

    assert not rendered["variants"]["training"]["equals_encode_allowed_special_all"]


def rewrite(parsed: ParsedText) -> str:
    """Render a parsed text; check that text and ids equal those of the library."""
    text = render_harmony(parsed.conversation, analysis=AnalysisMode.KEEP, ending=Ending.TRAINING).text
    expected = library_tokens(parsed.conversation)
    assert text == library().decode_utf8(expected)
    assert ids(parse_harmony(text)) == expected
    return text
