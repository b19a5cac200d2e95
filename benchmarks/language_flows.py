"""One detector over a file of texts, in a process of its own; `none` reads the file and does nothing else.

`package` is the classifier of py3langid itself, in its own single floats.

python benchmarks/language_flows.py py3langid texts.jsonl
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

from pipeline_assets.corpus.filters.language import LOOKED_AT, detector


def package_language() -> Callable[[str], tuple[str, float]]:
    """Load py3langid without the compiled kernel."""
    from py3langid import langid

    identifier = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)
    return lambda text: identifier.classify(" ".join(text[:LOOKED_AT].split()))


def main() -> None:
    name, path = sys.argv[1:]
    texts = [json.loads(line) for line in Path(path).read_bytes().splitlines()]
    if name == "none":
        print(len(texts))
        return
    language = package_language() if name == "package" else detector(name).language
    print(json.dumps([language(text) for text in texts]))


if __name__ == "__main__":
    main()
