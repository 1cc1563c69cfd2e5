import dataclasses
import math

import pytest

from rlreps.errors import InputError
from rlreps.experiments.amid_warmuth_2020.learning_rate_sensitivity.config import (
    PRESETS,
    LearningRateSensitivityConfig,
)
from rlreps.streaming import RULES


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rules": ("oja", "sanger"), "powers": (0.9, 0.9)}, "rules to be one of"),
        ({"rules": ("oja", "oja"), "powers": (0.9, 0.9)}, "different rules"),
        ({"powers": (0.9,)}, "a power for each of the 4 rules"),
        ({"powers": (0.9, 0.9, 0.8, -0.1)}, "powers >= 0"),
        ({"components": (5, 0)}, ">= 1, got 0"),
        ({"components": ()}, "different components"),
        ({"learning_rates": (0.1, math.inf)}, "finite learning_rates > 0"),
        ({"learning_rates": ()}, "different learning_rates"),
        ({"scales": (0.1, 10.0)}, "1 among the scales"),
        ({"scales": (1.0, -1.0)}, "finite scales > 0"),
        ({"tuning_fraction": 0.0}, "tuning_fraction"),
        ({"repeats": 0}, "repeats"),
        ({"evaluations": 0}, "evaluations"),
        ({"seed": -1}, "seed"),
    ],
)
def test_what_makes_no_sense_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        LearningRateSensitivityConfig(**change)


def test_rules_of_every_preset_are_registered_and_have_a_learning_rate():
    for config in PRESETS.values():
        assert all(RULES[rule].needs_learning_rate for rule in config.rules)


def test_the_laptop_preset_is_the_papers_protocol_and_the_smoke_preset_is_not():
    assert PRESETS["laptop"].is_published
    assert PRESETS["paper"].is_published
    assert not PRESETS["smoke"].is_published
    assert not dataclasses.replace(PRESETS["paper"], powers=(0.9, 0.9, 0.8, 0.9)).is_published


def test_powers_are_the_papers_for_each_rule():
    config = PRESETS["paper"]
    assert dict(zip(config.rules, config.powers, strict=True)) == {
        "oja": 0.9,
        "krasulina": 0.9,
        "explicit_krasulina": 0.8,
        "implicit_krasulina": 0.8,
    }
