"""Reads a dump with both passes, in small runs and buckets: python read_dump.py DUMP FOLDER.

Prints how many documents it has, and the most memory that the process has taken, in KiB.
"""

import sys
from pathlib import Path

from made_dump import site

from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.readers.stackexchange.threads import plan_buckets, plan_spill, read_threads, spill_rows
from pipeline_assets.corpus.spine.staging import BuildFolder
from pipeline_assets.corpus.spine.worker import WHOLE

RANGE_BYTES, RUN_BYTES, BUCKET_BYTES = 16 << 20, 4 << 20, 4 << 20


def main(dump: Path, root: Path) -> None:
    folder, recipe = BuildFolder(root), site()
    receipts = [spill_rows(shard, WHOLE, folder, RUN_BYTES) for shard in plan_spill(dump, RANGE_BYTES)]
    documents = sum(
        isinstance(outcome, Document)
        for bucket in plan_buckets(folder, receipts, BUCKET_BYTES)
        for outcome in read_threads(bucket, dump.name, recipe)
    )
    # Not ru_maxrss: that begins with what the process had which this one was forked from.
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    print(documents, next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
