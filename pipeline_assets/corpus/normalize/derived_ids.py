"""Ids of documents from local sources, for rows that have no id of their own."""

from pipeline_assets.corpus.document import derive_doc_id


def local_doc_id(source: str, text: str) -> str:
    """Derive the id of a local text from its source and its content.

    The file name is not used, so renaming, splitting or compressing a file changes no id.
    """
    return derive_doc_id("local", source, "", text)


def no_derived_id(text: str) -> str:
    """Return an empty id, for sources whose rows all have ids of their own."""
    return ""
