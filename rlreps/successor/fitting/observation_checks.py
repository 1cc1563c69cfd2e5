"""Check whether coordinates of observations are noise."""

from collections.abc import Sequence

import numpy as np

from rlreps.successor.fitting.actions import ActionBasis
from rlreps.successor.fitting.regressions import (
    FEWEST_TESTED_ROWS,
    MOST_TESTED_ROWS,
    errors,
    interactions,
)
from rlreps.successor.fitting.transitions import Transitions

_MOST_NUMBERS = 2_000  # With more numbers of state and action together, noise is not sought.
_PREDICTED = 0.1  # State and action explain less than this share of the variance of noise.
_USEFUL = 0.02  # Noise is kept if another coordinate's error is larger by this share without it.


def describe_noise(noise: Sequence[int]) -> str:
    """Say which coordinates a fit leaves out."""
    shown = ", ".join(map(str, noise[:8])) + (", ..." if len(noise) > 8 else "")
    return (
        f"{len(noise)} coordinates of the observations are noise, which no state or action "
        f"predicts, and are left out: {shown}; do not let rewards depend on them"
    )


def noise_coordinates(data: Transitions, actions: ActionBasis, seed: int) -> tuple[int, ...]:
    """Return the coordinates of observations [N, ...] that are noise.

    A coordinate is noise if state and action explain less than a tenth of the variance of its next
    value, by linear regression on [1, s] ⊗ b(a) tested on other rows, and if leaving it out does
    not predict any other coordinate worse by more than 2 %. The seed decides the rows.
    """
    count = int(np.prod(data.observation.shape[1:], dtype=int))
    if count == 1 or len(data) < FEWEST_TESTED_ROWS or actions.size * (count + 1) > _MOST_NUMBERS:
        return ()
    few = np.random.default_rng(seed).permutation(len(data))[: 2 * MOST_TESTED_ROWS]
    now, then = (
        _standard(states[few].reshape(len(few), -1))
        for states in (data.observation, data.next_observation)
    )
    taken = actions.weights(data.action[few])

    def left(used: np.ndarray) -> np.ndarray:
        """Return the share of the variance that coordinates ``used`` do not explain, [c]."""
        state = np.column_stack([np.ones(len(now)), now[:, used]])
        return errors(then, interactions(taken, state))

    whole = left(np.ones(count, np.bool_))
    noise = whole > 1.0 - _PREDICTED
    if not noise.any() or noise.all():
        return ()
    worse = left(~noise) > (1.0 + _USEFUL) * whole
    return () if worse[~noise].any() else tuple(np.flatnonzero(noise).tolist())


def _standard(states: np.ndarray) -> np.ndarray:
    deviation = states.std(axis=0, dtype=np.float64)
    centred = states - states.mean(axis=0, dtype=np.float64)
    return np.asarray(centred / np.where(deviation > 0.0, deviation, 1.0))
