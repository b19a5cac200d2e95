"""Counts of row contents in the summary, the manifest, the check and the UI."""

import json
from pathlib import Path

from command_results import Corpusmill

from pipeline_assets.corpus.nemotron.row_checks import texts_parse
from pipeline_assets.corpus.nemotron.schema import COLUMN_DESCRIPTIONS
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.systems.registry import SYSTEMS
from resources.artifact_metadata import artifact_metadata

QUESTION = {"role": "user", "content": "inside \boxed{}?", "name": "ann"}
ANSWER = {"role": "assistant", "content": "<think>Count.</think>4", "audio": {"id": 1}}
CALL = {"role": "assistant", "tool_calls": [{"function": {"name": "look", "arguments": {"a": 1}}}]}
REPLY = {"role": "tool", "content": {"found": "nothing"}}
TEXT = "<|start|>assistant<|channel|>thinking<|message|>4<|end|>"
ROWS = [
    {"messages": [QUESTION, ANSWER]},
    {"messages": [QUESTION, CALL, REPLY, CALL, REPLY, CALL, REPLY]},
    {"text": TEXT + "\n"},
    {"text": "no Harmony"},
    {"text": "<|start|>user<|message|>not closed"},
]


def test_row_contents_are_counted_in_summary_manifest_check_and_ui(corpusmill: Corpusmill, tmp_path: Path) -> None:
    folder, root = tmp_path / "chats", tmp_path / "out"
    folder.mkdir()
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    arguments = ("--dataset", folder, "--domain", "math", "--think-tags", "split", "--out-dir", root)

    result = corpusmill("nemotron", "normalize", *arguments, "--cpu-threads", 0)

    assert result.returncode == 0, result.stderr
    for line in (
        "messages as json 3",
        "  invalid harmony: 1 message_not_closed, 1 text_outside_messages\n",
        "  unread message keys: 1 assistant.audio, 2 user.name\n",
        "  think tags: 1 assistant\n",
        *("control characters 2", "stalled calls 1", "unknown channels 1"),
    ):
        assert line in result.stdout
    artifact = open_artifact(root / "nemotron/normalize-chats/normalized_shards/chats/train")
    counts = artifact.manifest.identity.counts
    assert counts["invalid_harmony"] == {"message_not_closed": 1, "text_outside_messages": 1}
    assert counts["unread_message_keys"] == {"assistant.audio": 1, "user.name": 2}
    verdict = texts_parse(artifact)
    assert verdict.passed and "1 source rows are not Harmony: message_not_closed" in verdict.because
    assert verdict.numbers["invalid_text_outside_messages"] == 1
    facts = {name: value.value for name, value in artifact_metadata(artifact, SYSTEMS.kinds, was_current=False).items()}
    assert facts["unread_message_keys_user.name"] == 2
    assert facts["invalid_harmony_message_not_closed"] == facts["stalled_calls"] == 1
    columns = facts["dagster/column_schema"].columns
    assert {column.name: column.description for column in columns} == COLUMN_DESCRIPTIONS
    assert artifact.manifest.identity.recipe["rows"]["think_tags"] == "split"
