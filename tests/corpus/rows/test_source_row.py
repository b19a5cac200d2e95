"""A row of a hub file reads back as it is written; what is none is refused."""

import pytest

from pipeline_assets.corpus.rows.source_row import SourceRow
from pipeline_assets.corpus.spine.errors import UsageError


def test_a_source_row_reads_back_as_it_is_written() -> None:
    text = f"HuggingFaceFW/fineweb-edu@{'ab' * 20}:data/a#b:c/x.parquet#17"

    source = SourceRow.parse(text)

    assert (source.path, source.row, str(source)) == ("data/a#b:c/x.parquet", 17, text)


@pytest.mark.parametrize("text", ["", "maker/pages", "maker/pages@main:a.parquet#3", f"maker/pages@{'0' * 40}:a"])
def test_what_is_no_row_of_a_hub_file(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        SourceRow.parse(text)

    assert str(refused.value) == (
        f"{text}: this is no row of a hub file; "
        "write owner/name@commit:path#row, the commit with 40 hex digits, rows from 0"
    )
