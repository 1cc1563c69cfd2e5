import dataclasses
import subprocess
import sys

import pytest

from rlreps.errors import InputError
from rlreps.experiments.amid_warmuth_2020.online_pca.config import PAPER_RULES, PRESETS, Contender

SMOKE = PRESETS["smoke"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows_per_update": 0}, "rows_per_update >= 1, got 0"),
        ({"power": -0.1}, "finite power >= 0, got -0.1"),
        ({"learning_rates": (1.0, 0.0)}, "finite learning_rates > 0, got 0.0"),
        ({"learning_rates": (float("inf"),)}, "finite learning_rates > 0, got inf"),
    ],
)
def test_contenders_are_checked(change, message):
    with pytest.raises(InputError, match=message):
        Contender(rule="oja", **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"contenders": ()}, "different contenders, at least one"),
        ({"contenders": (Contender(rule="oja"),) * 2}, "different contenders"),
        ({"components": (4, 4)}, "different components"),
        ({"components": (0, 4)}, "components and repeats >= 1, got 0"),
        ({"repeats": 0}, ">= 1, got 0"),
        ({"passes": 0}, "passes and evaluations >= 1, got 0"),
        ({"shown_components": 3}, r"shown_components among components \(2, 4\), got 3"),
        ({"tuning_fraction": 0.0}, r"tuning_fraction in \(0, 1\]"),
        ({"seed": -1}, r"seed in \[0, 2\*\*31\)"),
    ],
)
def test_configurations_are_checked(change, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(SMOKE, **change)


def test_the_same_rule_may_contend_with_batches_of_several_sizes():
    contenders = (Contender(rule="oja"), Contender(rule="oja", rows_per_update=5))
    config = dataclasses.replace(SMOKE, contenders=contenders)
    assert [contender.name for contender in config.contenders] == ["oja-1", "oja-5"]


def test_the_papers_rules_have_its_schedules_on_single_rows():
    for name in ("laptop", "paper"):
        found = {
            each.rule: (each.power, each.learning_rates)
            for each in PRESETS[name].contenders
            if each.rule in PAPER_RULES and each.rows_per_update == 1
        }
        grid = (0.1, 1, 2, 10, 100, 1e3, 1e4, 1e5)
        assert found == {
            "oja": (0.9, grid),
            "krasulina": (0.9, grid),
            "explicit_krasulina": (0.8, grid),
            "implicit_krasulina": (0.8, grid),
        }
        assert PRESETS[name].components == (5, 10, 20, 50)
    assert PRESETS["paper"].repeats == 10


def test_the_configuration_does_not_import_jax():
    code = (
        "import sys; import rlreps.experiments.amid_warmuth_2020.online_pca.config; "
        "sys.exit('jax' in sys.modules or 'matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
