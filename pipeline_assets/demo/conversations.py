"""Generated conversations in the columns of the six Nemotron datasets.

Each dataset has rows for each of its pools. Each split has a duplicate row and, except in Math-v2 and Math-Proofs-v1,
a faulty row: invalid Harmony, a tool argument of the wrong type, or a very short answer.
"""

from collections.abc import Mapping
from typing import Any

from pipeline_assets.build.recipe_paths import PROJECT_RECIPES_FOLDER
from pipeline_assets.spine.recipe_yaml import read_yaml

Row = dict[str, Any]
_LONG_ROW_STEPS = 1_500  # in one row: more than 16,384 tokens
_LICENCES = ("cc-by-4.0", "cc-by-4.0", "cc-by-sa-4.0")
_PARAMETERS = {"type": "object", "properties": {key: {"type": "integer"} for key in "ab"}, "required": ["a", "b"]}
_CALCULATOR = {"name": "multiply", "description": "The product of two numbers.", "parameters": _PARAMETERS}


def conversations() -> Mapping[str, Mapping[str, Mapping[str, list[Row]]]]:
    """Return rows by dataset, split and file, for all splits of the shipped recipe."""
    content: dict[str, Any] = read_yaml(PROJECT_RECIPES_FOLDER / "nemotron_v1.yaml")
    return {
        section["dataset"]: {
            split: {f"data/{split.replace('_part', '.part_')}.jsonl": _split_rows(section["dataset"], split)}
            for split in section["splits"]
        }
        for section in content["datasets"]
    }


def _split_rows(dataset: str, split: str) -> list[Row]:
    rows = [_conversation_row(dataset.partition("/")[2], split, number) for number in range(11)]
    return [*rows, rows[3] | ({"uuid": f"{split}-again"} if "uuid" in rows[3] else {})]


def _conversation_row(dataset: str, split: str, number: int) -> Row:
    a, b, is_long = number + 12, number * 3 + 5, number == 1 and split.startswith("high")
    question = f"A shop sells {a} boxes of {b} pens each in {split}. How many pens is that, and how did you find out?"
    answer = f"There are {a} boxes with {b} pens each, so {a} · {b} pens in all: \\boxed{{{a * b}}}"
    steps = (f"Step {step}: {a} times {step} is {a * step}." for step in range(_LONG_ROW_STEPS if is_long else 5))
    last: Row = {"role": "assistant", "content": answer, "reasoning_content": "\n".join(steps)}
    row: Row = {
        "uuid": f"{split}-{number}",
        "messages": [{"role": "user", "content": question}, last],
        "tools": [],
        "license": _LICENCES[number % 3],
        "used_in": ["nano_v3"],
    }
    match dataset:
        case "Nemotron-Math-v2":
            right = (0, 2, 8, 6)[number % 4]
            row |= {"problem": question, "expected_answer": str(a * b), "data_source": "made"}
            row |= {"metadata": {"reason_high_no_tool": {"count": 8, "pass": right, "accuracy": right / 8}}}
            if split.startswith("high"):
                del row["uuid"]
            if split == "high_part01":
                _add_calculator_call(row, a, b, a * b)
        case "Nemotron-Math-Proofs-v1":
            statement = f"theorem made_{number} (n : Nat) (h : n = {number}) : n + {number} = {2 * number} := by"
            proof = f"{statement}\n  subst h\n  norm_num\n  -- which is what was to be shown"
            row |= {"problem": f"Prove that n + {number} = {2 * number}.", "lean_header": "import Mathlib"}
            row |= {"formal_statement": None if number == 5 else f"{statement} sorry"}
            question = f"Prove it in Lean.\n{statement} sorry"
            dialogue = [{"role": "user", "content": question}, {"role": "assistant", "content": proof}]
            row["messages"] = dialogue if number % 2 else []
        case "Nemotron-Agentic-v1":
            row["messages"].insert(0, {"role": "system", "content": "You may use a calculator."})
            _add_calculator_call(row, a, "three" if number == 2 else b, a * b)  # the tool expects an integer
            row |= {"reasoning": "on"} if split == "interactive_agent" else {}
        case "nemotron-math-v2-harmony-tools":
            end = "" if number == 6 else "<|return|>"  # without its end, the text is not valid Harmony
            thought = f"<|start|>assistant<|channel|>analysis<|message|>{last['reasoning_content']}<|end|>"
            final = f"<|start|>assistant<|channel|>final<|message|>{answer}{end}"
            return {"text": f"<|start|>user<|message|>{question}<|end|>{thought}{final}"}
        case _:
            last |= {"content": "Ok." if number == 4 else answer} | ({} if number % 2 else {"reasoning_content": None})
            target = ("chat", "instruction_following")[number % 2]
            labels = {"reasoning": "on" if number % 2 else "off", "capability_target": target}
            row |= labels if split == "chat_if" else {}
    return row


def _add_calculator_call(row: Row, a: int, b: int | str, product: int) -> None:
    """Add a tool, and insert a call and its result before the last message."""
    call = {"id": f"call_{a}", "type": "function", "function": {"name": "multiply", "arguments": {"a": a, "b": b}}}
    calling = {"role": "assistant", "content": "", "reasoning_content": "It asks for a product.", "tool_calls": [call]}
    result = {"role": "tool", "content": str(product), "tool_call_id": f"call_{a}"}
    row["messages"][-1:-1] = [calling, result]
    row["tools"] = [{"type": "function", "function": _CALCULATOR}]
