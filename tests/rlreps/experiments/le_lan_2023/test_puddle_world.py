"""The PuddleWorld experiment: masked members, claims and refusals; its smoke preset."""

import dataclasses

import numpy as np
import pytest

from rlreps.experiments.le_lan_2023.puddle_world import EXPERIMENT, PRESETS

SMOKE = PRESETS["smoke"]


PAPER = dataclasses.replace(PRESETS["paper"], dimensions=(2, 50), headline_dimension=2)
SPREAD = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
FIGURE_4 = {"danskin_lissa": (0.1, 0.2), "explicit": (0.5, 0.6), "large_batch": (0.1, 0.8)}


def rows(ends, spread=1e-4, config=PAPER):
    """Five runs of each method, by their ends at d = 2 and 50; each is noisier than the last."""
    return [
        {
            "method": config.label_of(name),
            "d": d,
            "seed": seed,
            "step": 10**8,
            "subspace_distance": end + spread * (1 + place) * (1 + d) * SPREAD[seed],
        }
        for place, (name, pair) in enumerate(ends.items())
        for d, end in zip((2, 50), pair, strict=True)
        for seed in range(5)
    ]


@pytest.mark.parametrize(
    ("ends", "holds"),
    [
        ({}, [True, True, True]),
        ({"large_batch": (0.1, 0.15)}, [False, False, True]),
        ({"large_batch": (0.75, 0.8)}, [False, True, True]),
        ({"explicit": (0.5, 0.05)}, [True, True, False]),
    ],
)
def test_each_statement_of_the_paper_is_decided_by_pairs_of_five_runs(judge, ends, holds):
    found = judge(EXPERIMENT, PAPER, rows({**FIGURE_4, **ends}))
    assert [claim.holds for claim in found] == holds


def test_narrow_ranges_of_d_and_missing_methods_decide_nothing(judge):
    narrow = dataclasses.replace(PAPER, dimensions=(2, 25))
    found = judge(EXPERIMENT, narrow, rows(FIGURE_4, config=narrow))
    assert [claim.holds for claim in found] == [None] * 3
    fewer = dataclasses.replace(PAPER, objectives=PAPER.objectives[:2])
    left = {name: pair for name, pair in FIGURE_4.items() if name != "large_batch"}
    found = judge(dataclasses.replace(EXPERIMENT, decided_on=fewer), fewer, rows(left))
    assert [claim.holds for claim in found] == [None, None, True]


PROTOCOL = {
    # Sec. 5.3 and App. C.3. The text on centring is ambiguous; the authors' code subtracts the
    # means of rows. The text sums from t = 0, where their code does not.
    "successor.name": "monte_carlo",
    "successor.arena": "sutton",
    "successor.bins": 100,
    "successor.rollouts": 1000,
    "successor.horizon": 700,
    "successor.discount": 0.99,
    "successor.count_start": True,
    "successor.centring": "rows",
    "objectives.0.name": "danskin_lissa",
    "objectives.0.gradient_rows": 50,
    "objectives.0.weight_rows": 50,
    "objectives.0.covariance_rows": 50,
    "objectives.0.permutations": 1,
    "objectives.0.whitening": False,
    "objectives.0.kappa0": 1.9,
    "objectives.0.feature_norm": "batch",
    "objectives.1.name": "explicit",
    # The start and the optimizer of stored weights are in the authors' code alone.
    "objectives.1.weight_start": 1.0,
    "objectives.1.dense_optimizer": True,
    "objectives.2.name": "large_batch",
    "objectives.2.weight_rows": "all",
    "objectives.2.ridge": 0.0,
    "objectives.2.precondition": None,
    "objectives.2.leave_one_out": False,
    "training.encoder.name": "mlp",
    "training.encoder.hidden": [512, 512],
    "training.encoder.activation": "relu",
    "training.optimizer.name": "adam",
    "training.optimizer.learning_rate": 1e-4,
    "training.optimizer.schedule": "constant",
    "training.steps": 10**8,
    "training.rows": 250,
    "training.tasks": 1,
    "columns": [],
    "training.states": "uniform",
    "training.num_seeds": 5,
}


def test_the_paper_preset_is_the_published_protocol(check_protocol):
    check_protocol("puddle-world", PROTOCOL)
