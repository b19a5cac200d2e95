"""Hub with the datasets of the shipped Nemotron recipe.

File names, cards and configs are real. The three rows per split are synthetic, with the shapes of real ones; tests
marked `real` write the real rows.
"""

import json
from pathlib import Path
from typing import Any

import yaml
from real_samples import sample

from pipeline_assets.build.rows.source_row import AnySourceRow

SHIPPED = Path(__file__).parents[2] / "manifests" / "recipes" / "nemotron_v1.yaml"
SPLITS: dict[str, list[str]] = {
    section["dataset"]: section["splits"] for section in yaml.safe_load(SHIPPED.read_text())["datasets"]
}
TEXTS = "radna0/nemotron-math-v2-harmony-tools"
_FILES = {"high_part00": "high.part_00", "high_part01": "high.part_01", "high_part02": "high.part_02"}
_WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]},
    },
}
Row = dict[str, Any]


def write_hub(folder: Path, real: bool = False) -> None:
    """Write all datasets below `folder`.

    Args:
        real: write the real rows, of the folder of samples.
    """
    for dataset in SPLITS:
        write_dataset(folder / "datasets" / dataset, dataset, real)


def write_dataset(folder: Path, dataset: str, real: bool = False) -> None:
    """Write the card and the splits of one dataset."""
    (folder / "data").mkdir(parents=True)
    (folder / "README.md").write_text(render_card(dataset))
    for split in SPLITS[dataset]:
        (folder / split_path(split)).write_bytes(render_split(dataset, split, real))


def split_path(split: str) -> str:
    return f"data/{_FILES.get(split, split)}.jsonl"


def render_card(dataset: str) -> str:
    lines = ["---", "license: cc-by-4.0", "configs:", "- config_name: default", "  data_files:"]
    for split in SPLITS[dataset]:
        lines += [f"  - split: {split}", f"    path: {split_path(split)}"]
    return "\n".join([*lines, "---", f"# {dataset}", ""])


def render_split(dataset: str, split: str, real: bool = False) -> bytes:
    """Return the lines of a split; Harmony texts are always synthetic."""
    if real and dataset != TEXTS:
        return sample(f"nemotron/rows/{dataset.partition('/')[2]}/{split}.jsonl").read_bytes()
    rows = _text_rows() if dataset == TEXTS else synthetic_rows(split)
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


def synthetic_rows(split: str) -> list[Row]:
    """Return three synthetic rows with the traps of their split."""
    match split:
        case "high_part00" | "high_part01" | "high_part02" | "medium" | "low":
            return [_math_row(number, split) for number in range(3)]
        case "lean":
            return [_proof_row(number) for number in range(3)]
        case "interactive_agent" | "tool_calling":
            return [_agentic_row(number, split) for number in range(3)]
    return [_chat_row(number, split) for number in range(3)]


def _text_rows() -> list[Row]:
    """Return rows that contain only a Harmony text."""
    text = (
        "<|start|>user<|message|>{0} + 2?<|end|><|start|>assistant<|channel|>analysis<|message|>{0} + 2<|end|>"
        "<|start|>assistant<|channel|>final<|message|>\\boxed{{{1}}}<|return|>"
    )
    return [{"text": text.format(number, number + 2)} for number in range(3)]


def _chat_row(number: int, split: str) -> Row:
    """Build one of three rows that differ in all words; the first has a backspace."""
    question = (
        f"\bWhich gas do green plants take from the air, according to {split}?",
        "Why does a lump of ice float on a lake?",
        "How far away from the Sun is Mars?",
    )[number]
    answer = (
        "Carbon dioxide, from which they build sugar by means of light.",
        "Water expands when it freezes, hence ice is lighter: \\boxed{0.917}.",
        "About 228 million kilometres on average: \\boxed{1.5} times as far as Earth.",
    )[number]
    row: Row = {
        "uuid": f"{split}-{number}",
        "messages": [
            {"role": "user", "content": question, "reasoning_content": None},
            {"role": "assistant", "content": answer, "reasoning_content": "Hm."},
        ],
        "license": "odc-by-1.0",
        "used_in": ["nano_v3"],
        "tools": [],
    }
    return row | ({"reasoning": "on"} if split == "chat_if" else {})


def _math_row(number: int, split: str) -> Row:
    """Build a maths row; high parts have no uuid, the second one has tools."""
    answer = {"role": "assistant", "content": f"\\boxed{{{number + 2}}}", "reasoning_content": f"{number} + 2"}
    counted = {"count": 8, "pass": number, "accuracy": 0.125 * number}
    row: Row = {
        "expected_answer": f"{number + 2}",
        "original_expected_answer": None if number else "2",
        "messages": [{"role": "user", "content": f"{number} + 2?"}, answer],
        "metadata": {"reason_high_no_tool": counted, "reason_low_no_tool": {"count": 0, "pass": 0, "accuracy": "0"}},
        "license": "cc-by-sa-4.0" if split == "high_part02" else "cc-by-4.0",
        "used_in": ["nano_v3"],
    }
    row |= {} if split.startswith("high") else {"uuid": f"{split}-{number}"}
    return row | ({"tools": [_WEATHER]} if split == "high_part01" else {})


def _proof_row(number: int) -> Row:
    """Build a proof row; only the last has messages, and a licence of its own."""
    row: Row = {
        "uuid": f"lean-{number}",
        "problem": f"Show that {number} + 0 = {number}.",
        "lean_header": "import Mathlib",
        "formal_statement": f"theorem t : {number} + 0 = {number} := by sorry",
        "messages": [],
        "tools": [],
        "license": "cc-by-sa-4.0" if number == 2 else "cc-by-4.0",
    }
    if number == 2:
        question = {"role": "user", "content": row["formal_statement"]}
        row["messages"] = [question, {"role": "assistant", "content": "theorem t : 2 + 0 = 2 := by simp"}]
    return row


def _agentic_row(number: int, split: str) -> Row:
    """Build a tool call whose arguments and reply are text or an object."""
    is_text = split == "interactive_agent"
    arguments: object = '{"city": "Bonn"}' if is_text else {"city": "Bonn", "days": number}
    call = {"id": f"call_{number}", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    content: object = "\n\nsunny" if is_text else {"weather": "sunny", "degrees": 21.5}
    messages = [
        {"role": "system", "content": ""},
        {"role": "user", "content": "How is it in Bonn?"},
        {"role": "assistant", "content": "", "reasoning_content": "", "tool_calls": [call]},
        {"role": "tool", "content": content, **({"tool_call_id": f"call_{number}"} if is_text else {})},
        {"role": "assistant", "content": "Sunny.", "reasoning_content": "", "tool_calls": None},
    ]
    row: Row = {"uuid": f"{split}-{number}", "messages": messages, "tools": [_WEATHER], "license": "cc-by-4.0"}
    return row | ({"reasoning": "on"} if is_text else {})


SCIENCE = "nvidia/Nemotron-Science-v1"


def is_science_line(text: str, source: AnySourceRow, real: bool) -> bool:
    """Check whether a text has the question of its source line in SCIENCE."""
    line = render_split(SCIENCE, Path(source.path).stem, real)[source.row :].splitlines()[0]
    return str(json.loads(line)["messages"][0]["content"]).strip()[:40] in text
