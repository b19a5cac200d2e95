"""Every engine builds the artifacts that one process builds."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from demo_systems import WRITE_RECIPE, build_system
from named_engines import counted_ray_jobs, ray_here

from pipeline_assets.spine.engine import RunSettings

pytestmark = pytest.mark.slow
ON_RAY = RunSettings(2, engine="ray")  # no stage is too small for workers


@pytest.fixture(scope="module", autouse=True)
def ray() -> Iterator[None]:
    with ray_here():
        yield


@pytest.mark.parametrize("system", WRITE_RECIPE)
def test_system_has_equal_digests_in_one_process_in_workers_and_on_ray(system: str, tmp_path: Path) -> None:
    expected = build_system(system, tmp_path / "here", RunSettings())
    forked = build_system(system, tmp_path / "forked", RunSettings(2))
    with counted_ray_jobs() as jobs:
        on_ray = build_system(system, tmp_path / "ray", ON_RAY)

    assert forked == on_ray == expected
    assert (jobs[0] > 20) is (system != "parallel_text")  # the stages ran on Ray, except for parallel text
