"""`hub serve` has no faults; those of `FaultyHub` are asserted by the tests that inject them."""

from pathlib import Path

from command_results import Corpusmill


def test_the_command_has_no_faults_and_names_who_has(corpusmill: Corpusmill, repo: Path) -> None:
    served = corpusmill("hub", "serve", repo, "--fault", "503:*:2")

    assert served.returncode == 2
    assert served.stderr == (
        "corpusmill: --fault: hub serve has no faults; use tests/harness/faulty_hub.py, which has them\n"
    )
