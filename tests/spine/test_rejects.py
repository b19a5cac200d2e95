"""Rejects name file, row and reason, and a summary shows each long detail once."""

from dataclasses import replace

from pipeline_assets.spine.rejects import Reject, summarize_reasons


def test_reject_text_is_file_row_reason_and_detail_and_json_has_every_field() -> None:
    plain, detailed = Reject("a.parquet", 3, "no_text"), Reject("a.parquet", 3, "invalid_utf8", "0xff at byte 12")

    assert (str(plain), str(detailed)) == (
        "a.parquet row 3: no_text",
        "a.parquet row 3: invalid_utf8 (0xff at byte 12)",
    )
    assert plain.to_json() == {"file": "a.parquet", "row": 3, "reason": "no_text", "detail": ""}


def test_long_detail_is_shown_once() -> None:
    sentence = "my_filter.py:3: PermissionError: a step must not open a network connection"
    rejects = [Reject("rows.jsonl", row, "step_failed", sentence) for row in range(3)]

    reasons, examples = summarize_reasons(rejects)

    assert reasons == "3 step_failed"
    for letters, times in ((20, 3), (21, 1)):
        detail = "a" * letters
        assert summarize_reasons([replace(reject, detail=detail) for reject in rejects])[1].count(detail) == times
    assert examples == f"{rejects[0]}; rows.jsonl row 1: step_failed; rows.jsonl row 2: step_failed"
