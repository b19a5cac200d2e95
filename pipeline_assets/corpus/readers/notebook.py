"""Text of a Jupyter notebook: Markdown and code cells in order, without outputs."""

import re
from typing import Any

from pipeline_assets.corpus.readers.columns import find_column
from pipeline_assets.corpus.readers.faults import Fault
from pipeline_assets.corpus.readers.json_lines import parse_row
from pipeline_assets.corpus.readers.lines import UTF8_MARK

_TICKS = re.compile("`{3,}")


def notebook_row(content: bytes) -> dict[str, Any] | Fault:
    """Return a row with the text of a notebook (format 4), or a fault.

    Fences around code are longer than its backtick runs. A stated language is in `language` and after opening fences.
    """
    notebook = parse_row(content.removeprefix(UTF8_MARK), "file")
    if isinstance(notebook, Fault):
        return notebook
    columns = (find_column(notebook, f"metadata.{path}") for path in ("language_info.name", "kernelspec.language"))
    values = (column.value for column in columns if column)
    language = next((value for value in values if value and isinstance(value, str)), "")
    texts = []
    try:
        for cell in notebook["cells"]:
            text = "".join(cell["source"]).strip("\n")
            if cell["cell_type"] == "code" and text:
                fence = "`" * (1 + max(map(len, _TICKS.findall(text)), default=2))
                text = f"{fence}{language}\n{text}\n{fence}"
            texts += [text] if cell["cell_type"] != "raw" and text.strip() else []
    except (KeyError, TypeError):
        return Fault("not_notebook", "the file has no list of cells with a `source`")
    return {"text": "\n\n".join(texts)} | ({"language": language} if language else {})
