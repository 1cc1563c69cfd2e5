import math

import pytest

from rlreps.errors import InputError
from rlreps.experiments.amid_warmuth_2020.distributed_pca.config import (
    PRESETS,
    DistributedPcaConfig,
)
from rlreps.streaming import RULES


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rules": ("explicit_krasulina",)}, "rules to be one of"),
        ({"rules": ("oja", "oja")}, "different rules"),
        ({"power": -0.5}, "power >= 0"),
        ({"components": (0,)}, ">= 1, got 0"),
        ({"workers": 1}, "workers >= 2"),
        ({"combine_every": 0}, "combine_every"),
        ({"learning_rates": (0.0,)}, "finite learning_rates > 0"),
        ({"learning_rates": (math.nan,)}, "finite learning_rates > 0"),
        ({"tuning_fraction": 1.5}, "tuning_fraction"),
        ({"repeats": 0}, "repeats"),
        ({"seed": 2**31}, "seed"),
    ],
)
def test_what_makes_no_sense_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        DistributedPcaConfig(**change)


def test_rules_of_every_preset_are_registered():
    assert all(rule in RULES for config in PRESETS.values() for rule in config.rules)


def test_the_laptop_preset_is_the_papers_protocol():
    config = PRESETS["laptop"]
    assert (config.workers, config.combine_every, config.repeats, config.power) == (
        10,
        1000,
        10,
        0.9,
    )
    assert config.components == (5, 10, 20)
