"""Settings of scoring on Modal in the description of estimated costs."""

import datetime

import pytest

from pipeline_assets.corpus.scoring.modal_settings import ModalSettings


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (ModalSettings(), "at 17,000 tokens/s per container, 16 containers at a time; settings: all by default"),
        (
            ModalSettings(places=4, prices_read=datetime.date(2026, 5, 7)),
            "at 17,000 tokens/s per container, 4 containers at a time, prices of 2026-05-07; "
            "settings: places 4, prices_read 2026-05-07",
        ),
    ],
)
def test_an_estimate_names_its_speed_and_its_changed_settings(settings: ModalSettings, line: str) -> None:
    assert settings.describe_rates() == line
