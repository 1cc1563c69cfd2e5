"""Environments of dm_env as environments of Gymnasium."""

import dm_env
import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces

from rlreps.envs.from_dm_env import FromDmEnv, space_of_spec


@pytest.mark.parametrize(
    ("dtype", "low", "high", "taken"),
    [
        (np.uint8, 0, 255, np.uint8),
        (np.int16, -np.inf, np.inf, np.float64),
        (np.bool_, 0, 1, np.bool_),
        (np.float32, -np.inf, np.inf, np.float64),
    ],
)
def test_bytes_and_booleans_have_bounds_without_any_in_their_spec(dtype, low, high, taken):
    space = space_of_spec(specs.Array((6, 5, 3), dtype))
    assert space == spaces.Box(low, high, (6, 5, 3), taken)


def test_structures_of_specs_are_spaces_of_the_same_structure():
    number, bounded = specs.DiscreteArray(3), specs.BoundedArray((2,), np.float64, [0, -1], 1)
    found = space_of_spec({"pair": (number, bounded), "said": specs.StringArray(())})
    pair = spaces.Tuple([spaces.Discrete(3), spaces.Box(np.array([0.0, -1.0]), 1.0, (2,), float)])
    assert found == spaces.Dict(pair=pair, said=spaces.Text(1))


class Strict(dm_env.Environment):
    """Takes actions of its specification alone, and ends as they say."""

    ends = (dm_env.transition, dm_env.truncation, dm_env.termination)

    def observation_spec(self):
        return specs.DiscreteArray(2)

    def action_spec(self):
        return specs.DiscreteArray(3, dtype=np.int16)

    def reset(self):
        return dm_env.restart(0)

    def step(self, action):
        self.action_spec().validate(action)
        return self.ends[action](2.5, 1)


@pytest.mark.parametrize(
    ("action", "ends"), [(0, (False, False)), (1, (False, True)), (np.int64(2), (True, False))]
)
def test_actions_have_the_type_of_their_spec_and_ends_are_told_apart(action, ends):
    environment = FromDmEnv(Strict())
    assert environment.reset(seed=3) == (0, {})
    assert environment.np_random_seed == 3
    assert environment.step(action) == (1, 2.5, *ends, {})
