"""A journal of batches: what it says is durable before anybody is told."""

from pathlib import Path

from crash_points import steps_of

from pipeline_assets.corpus.scoring.remote_shard import BatchJournal


def test_a_batch_is_durable_before_it_is_told_and_known_to_who_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    seen: list[int] = []
    journal = BatchJournal(path, lambda: seen.append(len(path.read_bytes().splitlines())))

    with journal:
        steps = steps_of(lambda: journal.add([0, 3], [1.5, None]))

    assert steps == [("append", path), ("fsync", path)]
    assert seen == [1, 2]  # of who began, and of the batch
    with BatchJournal(path, lambda: None) as other:
        assert (other.known([0, 3]), other.known([3, 0])) == ([1.5, None], None)
