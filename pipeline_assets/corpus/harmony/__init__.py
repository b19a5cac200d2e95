"""Harmony format: parser, renderer and encoder of conversations."""

from pipeline_assets.corpus.harmony.parse import basic_quality_flags_from_text, parse_harmony, sha1_text_id

__all__ = ["basic_quality_flags_from_text", "parse_harmony", "sha1_text_id"]
