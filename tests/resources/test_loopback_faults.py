"""The command `hub serve` injects no faults."""

from pathlib import Path

from command_results import Corpusmill


def test_fault_option_is_refused_and_names_faulty_hub(corpusmill: Corpusmill, repo: Path) -> None:
    result = corpusmill("hub", "serve", repo, "--fault", "503:*:2")

    assert result.returncode == 2
    assert result.stderr == (
        "corpusmill: --fault: hub serve has no faults; use tests/harness/faulty_hub.py, which has them\n"
    )
