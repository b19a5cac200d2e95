"""One detector over a file of texts, in a process of its own; `none` reads the file and does nothing else.

python benchmarks/language_flows.py py3langid texts.jsonl
"""

import json
import sys
from pathlib import Path

from pipeline_assets.corpus.filters.language import detector


def main() -> None:
    name, path = sys.argv[1:]
    texts = [json.loads(line) for line in Path(path).read_bytes().splitlines()]
    if name == "none":
        print(len(texts))
        return
    language = detector(name).language
    print(json.dumps([language(text) for text in texts]))


if __name__ == "__main__":
    main()
