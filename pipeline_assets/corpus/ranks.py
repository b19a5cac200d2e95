"""Which places of an order of rows each rank of a training run reads."""


def places_of_rank(rows: int, batch: int, rank: int, ranks: int, step: int, drop_last: bool) -> range:
    """The places of one rank from a step on, in the order of its batches; `stop` is that of what all ranks are dealt.

    Every rank has as many batches, and at each step as many rows. The last rows, which can't be dealt so, are left
    over: fewer than `ranks`, or than ranks × batch where `drop_last` asks for full batches.

    Raises:
        ValueError: a rank that isn't one of `ranks`, or a step or batch that is none; too few rows for one batch.
    """
    if ranks < 1 or not 0 <= rank < ranks:
        raise ValueError(f"rank is {rank}, of {ranks} ranks: give 0 to ranks - 1")
    if batch < 1 or step < 0:
        raise ValueError(f"batch is {batch}, step {step}: give a batch of 1 or more, a step of 0 or more")
    share = ranks * batch if drop_last else ranks
    dealt = rows - rows % share
    if not dealt:
        fix = "give fewer ranks" + ", or a smaller batch" * drop_last
        raise ValueError(f"there are {rows} rows, and {ranks} ranks take {share} at least: {fix}")
    return range(step * ranks * batch + rank, dealt, ranks)
