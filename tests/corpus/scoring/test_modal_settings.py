"""Settings of scoring on Modal, read from variables and options."""

import datetime

import pytest
from refusals import refusal

from pipeline_assets.corpus.scoring.modal_settings import ModalSettings
from pipeline_assets.spine.errors import UsageError


def test_an_estimate_names_its_speed_and_its_changed_settings() -> None:
    speed, changed = "at 17,000 tokens/s per container", {"places": 4, "prices_read": datetime.date(2026, 5, 7)}

    assert ModalSettings().describe_rates() == f"{speed}, 16 containers at a time; settings: all by default"
    assert ModalSettings.model_validate(changed).describe_rates() == (
        f"{speed}, 4 containers at a time, prices of 2026-05-07; settings: places 4, prices_read 2026-05-07"
    )


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("PLACES", "many", "invalid value 'many'"),
        ("GPU_PRICE", "-1", "invalid value '-1'"),
        ("TOKENS_PER_S", "inf", "invalid value 'inf'"),  # every estimate would be within every limit
        ("PRICES_READ", "yesterday", "invalid value 'yesterday'"),
        ("APP", "My App", "invalid value 'My App'"),
        ("PLACE", "4", "unknown setting; did you mean CORPUSMILL_MODAL_PLACES?"),
        (
            "KERNELS",
            "",
            "kernels are no longer fetched from a hub; unset it, and for quantized weights set `scoring.dequantise`",
        ),
    ],
)
def test_an_invalid_setting_is_named(name: str, value: str, text: str) -> None:
    variable = f"CORPUSMILL_MODAL_{name}"

    line = refusal(lambda: ModalSettings.from_mapping({variable: value}), UsageError)

    assert line.startswith(f"{variable}: {text}")


def test_options_override_variables() -> None:
    variables = {"CORPUSMILL_MODAL_GPU": "H200", "CORPUSMILL_MODAL_COST_LIMIT": "5", "CORPUSMILL_MODAL_GPUS": ""}

    settings = ModalSettings.from_mapping(variables, cost_limit=7.5, gpu_price=None)

    assert (settings.gpu, settings.gpus, settings.cost_limit) == ("H200", 1, 7.5)


def test_the_cost_covers_all_resources_of_a_container() -> None:
    settings = ModalSettings(
        gpus=2, gpu_price=4, cpu=8, cpu_price=0.05, memory_gib=100, memory_price=0.01, region_factor=1.5
    )

    assert settings.cost(7200) == pytest.approx(2 * (8 + 0.4 + 1) * 1.5)
    assert ModalSettings().cost(7200) is None
    assert ModalSettings(gpu="none", gpu_price=4).cost(7200) is None
    assert ModalSettings(gpu="none", gpu_price=4, cpu=2, cpu_price=0.05).cost(7200) == pytest.approx(0.2)
