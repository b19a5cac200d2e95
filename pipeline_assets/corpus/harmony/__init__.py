"""Harmony conversations: messages to text and back, with exact spans; the only parser and renderer of the format."""

from pipeline_assets.corpus.harmony.parse import basic_quality_flags_from_text, parse_harmony, sha1_text_id

__all__ = ["basic_quality_flags_from_text", "parse_harmony", "sha1_text_id"]
