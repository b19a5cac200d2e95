"""Tools of real Nemotron rows, rendered as openai-harmony renders them."""

import json

import pytest
from harmony_oracle import prompt_text
from harmony_vectors import RENDERED_TOOLS
from nemotron_hub import SPLITS, render_split
from real_samples import sample

from pipeline_assets.corpus.harmony.encode import render_harmony
from pipeline_assets.corpus.harmony.message import AnalysisMode, Ending
from pipeline_assets.corpus.harmony.prompt import (
    GPT_OSS_SYSTEM,
    DeveloperContent,
    FunctionTool,
    add_object_types,
    function_namespace,
    prompt_messages,
)


def functions(tools: list[dict[str, dict[str, object]]]) -> list[FunctionTool]:
    return [
        FunctionTool(**{key: tool["function"].get(key, "") for key in ("name", "description", "parameters")})
        for tool in tools
    ]


def completed(tools: list[FunctionTool]) -> list[FunctionTool]:
    return [FunctionTool(tool.name, tool.description, add_object_types(tool.parameters)) for tool in tools]


def developer_text(tools: list[FunctionTool]) -> str:
    messages = prompt_messages(None, DeveloperContent(None, (function_namespace(tools),)))
    return render_harmony(messages, analysis=AnalysisMode.KEEP, ending=Ending.CONVERSATION).text


@pytest.mark.real
def test_no_tool_of_the_interactive_agent_loses_its_arguments() -> None:
    row = json.loads(sample(f"{RENDERED_TOOLS}/interactive_agent_row0.json").read_text(encoding="utf-8"))

    text = developer_text(functions(row["tools"]))

    assert row["text"].count("(_: any) => any;") == len(row["tools"]) == 14
    assert "(_: any) => any;" not in text
    assert "payment_methods: {\n    payment_id: string,\n    amount: number,\n    }[],\n" in text


def test_tools_of_all_rows_are_rendered_as_by_openai_harmony(real: bool) -> None:
    rows = [
        json.loads(line)
        for dataset, splits in SPLITS.items()
        for split in splits
        for line in render_split(dataset, split, real).split(b"\n")
        if line
    ]
    with_tools = [completed(functions(row["tools"])) for row in rows if row.get("tools")]

    for tools in with_tools:
        developer = DeveloperContent("Help.", (function_namespace(tools),))
        text = render_harmony(
            prompt_messages(GPT_OSS_SYSTEM, developer),
            analysis=AnalysisMode.KEEP,
            ending=Ending.CONVERSATION,
        ).text
        assert text == prompt_text(GPT_OSS_SYSTEM, developer)
    assert len(with_tools) == 9
