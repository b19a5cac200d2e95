"""Made conversations in the columns of the six Nemotron datasets, split by split.

Some rows of each dataset fit into every pool that its rows can be in; one of a split is there twice, one is no good.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pipeline_assets.corpus.spine.recipe import read_yaml
from pipeline_assets.systems.registry import PROJECT_RECIPES

Row = dict[str, Any]
RECIPE = PROJECT_RECIPES / "nemotron_v1.yaml"
ROWS = 12  # of a split
_LONG_STEPS = 1_500  # of one row: more than 16,384 tokens
_FILES = {f"high_part0{number}": f"high.part_0{number}" for number in range(3)}
_LICENCES = ("cc-by-4.0", "cc-by-4.0", "cc-by-sa-4.0")
_NUMBERS = {"a": {"type": "integer"}, "b": {"type": "integer"}}
_CALCULATOR = {
    "type": "function",
    "function": {
        "name": "multiply",
        "description": "The product of two numbers.",
        "parameters": {"type": "object", "properties": _NUMBERS, "required": ["a", "b"]},
    },
}


def conversations() -> Mapping[str, Mapping[str, tuple[str, list[Row]]]]:
    """Return a file and its rows by dataset and split, for each split of the shipped recipe."""
    content: dict[str, Any] = read_yaml(RECIPE)
    return {
        section["dataset"]: {
            split: (f"data/{_FILES.get(split, split)}.jsonl", _rows(_MAKERS[section["dataset"]], split))
            for split in section["splits"]
        }
        for section in content["datasets"]
    }


def _rows(make: Callable[[int, str], Row], split: str) -> list[Row]:
    rows = [make(number, split) for number in range(ROWS - 1)]
    return [*rows, rows[3] | ({"uuid": f"{split}-again"} if "uuid" in rows[3] else {})]


def _steps(number: int, count: int) -> str:
    lines = (f"Step {step}: {number + 7} times {step} is {(number + 7) * step}." for step in range(1, count + 1))
    return "\n".join(lines)


def _math_row(number: int, split: str) -> Row:
    a, b = number + 12, number * 3 + 5
    question = f"A shop sells {a} boxes of {b} pens each. How many pens is that?"
    answer = f"There are {a} boxes with {b} pens each, so {a} · {b} pens in all: \\boxed{{{a * b}}}"
    thought = _steps(number, _LONG_STEPS if number == 1 and split.startswith("high") else 5)
    messages: list[Row] = [{"role": "user", "content": question}]
    if split == "high_part01":
        call = {"type": "function", "function": {"name": "multiply", "arguments": {"a": a, "b": b}}}
        messages += [{"role": "assistant", "content": "", "reasoning_content": thought, "tool_calls": [call]}]
        messages += [{"role": "tool", "name": "multiply", "content": str(a * b)}]
    messages.append({"role": "assistant", "content": answer, "reasoning_content": thought})
    right = (0, 2, 8, 6)[number % 4]
    row: Row = {
        "problem": question,
        "expected_answer": str(a * b),
        "messages": messages,
        "metadata": {"reason_high_no_tool": {"count": 8, "pass": right, "accuracy": right / 8}},
        "data_source": "made",
        "license": _LICENCES[number % 3],
        "used_in": ["nano_v3"],
    }
    row |= {} if split.startswith("high") else {"uuid": f"{split}-{number}"}
    return row | ({"tools": [_CALCULATOR]} if split == "high_part01" else {})


def _proof_row(number: int, split: str) -> Row:
    statement = f"theorem made_{number} (n : Nat) (h : n = {number}) : n + {number} = {2 * number} := by"
    proof = f"{statement}\n  subst h\n  norm_num\n  -- which is what was to be shown"
    question = {"role": "user", "content": f"Prove it in Lean.\n{statement} sorry"}
    return {
        "uuid": f"{split}-{number}",
        "problem": f"Show that n + {number} = {2 * number} where n = {number}.",
        "lean_header": "import Mathlib",
        "formal_statement": None if number == 5 else f"{statement} sorry",
        "messages": [question, {"role": "assistant", "content": proof}] if number % 2 else [],
        "tools": [],
        "license": _LICENCES[number % 3],
        "used_in": [],
    }


def _agentic_row(number: int, split: str) -> Row:
    a, b = number + 3, number + 4
    arguments: object = {"a": a, "b": b} if number != 2 else {"a": "three"}  # this one doesn't fit the tool
    call = {"id": f"call_{number}", "type": "function", "function": {"name": "multiply", "arguments": arguments}}
    last = f"I asked the calculator, and it says that {a} times {b} is {a * b}. Is there more to work out?"
    row: Row = {
        "uuid": f"{split}-{number}",
        "messages": [
            {"role": "system", "content": "You may use a calculator."},
            {"role": "user", "content": f"What do {a} crates of {b} kilograms weigh, and how did you find out?"},
            {"role": "assistant", "content": "", "reasoning_content": _steps(number, 3), "tool_calls": [call]},
            {"role": "tool", "content": str(a * b), "tool_call_id": f"call_{number}"},
            {"role": "assistant", "content": last, "reasoning_content": ""},
        ],
        "tools": [_CALCULATOR],
        "license": "cc-by-4.0",
        "used_in": ["nano_v3"],
    }
    return row | ({"reasoning": "on"} if split == "interactive_agent" else {})


def _chat_row(number: int, split: str) -> Row:
    question = f"In {number + 2} sentences at most, tell me what a river of length {number + 40} km is like."
    length = f"{number + 40} kilometres"
    answer = f"It begins on a hill, and after {length} it ends in a lake or in the sea, wider than before."
    row: Row = {
        "uuid": f"{split}-{number}",
        "messages": [
            {"role": "user", "content": question},
            {
                "role": "assistant",
                "content": "Ok." if number == 4 else answer,
                "reasoning_content": _steps(number, 4) if number % 2 else None,
            },
        ],
        "license": "odc-by-1.0",
        "used_in": ["nano_v3"],
        "tools": [],
    }
    target = ("chat", "instruction_following")[number % 2]
    labels = {"reasoning": "on" if number % 2 else "off", "capability_target": target}
    return row | (labels if split == "chat_if" else {})


def _text_row(number: int, split: str) -> Row:
    end = "" if number == 6 else "<|return|>"  # without it, it is no Harmony
    return {
        "text": f"<|start|>user<|message|>What is {number + 9} times {number + 2}?<|end|>"
        f"<|start|>assistant<|channel|>analysis<|message|>{_steps(number, 3)}<|end|>"
        f"<|start|>assistant<|channel|>final<|message|>It is {(number + 9) * (number + 2)}, as counting shows.{end}"
    }


_MAKERS: Mapping[str, Callable[[int, str], Row]] = {
    "nvidia/Nemotron-Math-v2": _math_row,
    "nvidia/Nemotron-Math-Proofs-v1": _proof_row,
    "nvidia/Nemotron-Science-v1": _chat_row,
    "nvidia/Nemotron-Agentic-v1": _agentic_row,
    "nvidia/Nemotron-Instruction-Following-Chat-v1": _chat_row,
    "radna0/nemotron-math-v2-harmony-tools": _text_row,
}
