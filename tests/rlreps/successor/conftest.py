"""A small chain as data without sampling error: every transition as often as it is likely."""

import dataclasses

import numpy as np
import pytest

from rlreps.successor.transitions import Transitions


@dataclasses.dataclass(frozen=True)
class Chain:
    """States x actions under the uniform policy.

    Attributes:
        quarters: Four times the transition probabilities, [n, A, n].
        terminal: Whether a state is terminal, [n].
        discount: γ.
    """

    quarters: np.ndarray
    terminal: np.ndarray
    discount: float = 0.8

    @property
    def size(self):
        return len(self.quarters)

    @property
    def probabilities(self):
        return self.quarters / 4.0

    def policy_matrix(self, policy=None):
        """P_π [n, n]; terminal states lead nowhere."""
        weights = np.full(self.quarters.shape[:2], 0.5) if policy is None else np.eye(2)[policy]
        return np.einsum("sa,sap->sp", weights, self.probabilities) * ~self.terminal[:, None]

    def measure(self):
        """M [n, A, n] = Σ_t γᵗ P(S_{t+1} = s' | s, a)."""
        following = np.eye(self.size) - self.discount * self.policy_matrix()
        return self.probabilities @ np.linalg.inv(following)

    def optimal_policy(self, rewards):
        """The best action of every state for rewards on arrival, by value iteration."""
        values = np.zeros(self.size)
        for _ in range(500):
            later = rewards + self.discount * np.where(self.terminal, 0.0, values)
            actions = self.probabilities @ later
            values = actions.max(axis=1)
        return actions.argmax(axis=1)

    def transitions(self):
        """Return every transition from a state that is not terminal, as its own episode."""
        starts, actions, ends, counts = [], [], [], self.quarters
        for (state, action, end), count in np.ndenumerate(counts):
            if not self.terminal[state]:
                starts += [state] * count
                actions += [action] * count
                ends += [end] * count
        rows = len(starts)
        return Transitions(
            observation=np.array(starts),
            action=np.array(actions),
            next_observation=np.array(ends),
            terminated=self.terminal[np.array(ends)],
            truncated=np.ones(rows, bool),
        )

    def reached(self):
        """Distribution of the states reached, [n]."""
        data = self.transitions()
        return np.bincount(data.next_observation, minlength=self.size) / len(data)


def ring(terminal):
    """Four states; action 0 goes on with chance 3/4, action 1 back with 1/2; else they stay."""
    quarters = np.zeros((4, 2, 4), int)
    for state in range(4):
        quarters[state, 0, (state + 1) % 4] += 3
        quarters[state, 0, state] += 1
        quarters[state, 1, (state - 1) % 4] += 2
        quarters[state, 1, state] += 2
    # Less symmetry: singular values differ.
    quarters[1, 1] = [1, 0, 3, 0]
    ends = np.zeros(4, bool)
    ends[3] = terminal
    return Chain(quarters, ends)


@pytest.fixture(scope="session", params=[False, True], ids=["endless", "terminal"])
def chain(request):
    return ring(request.param)


@pytest.fixture(scope="session")
def corridor():
    """Five states in a line, moves left and right, which slip with chance 1/4."""
    quarters = np.zeros((5, 2, 5), int)
    for state in range(5):
        for action, step in enumerate((-1, 1)):
            quarters[state, action, np.clip(state + step, 0, 4)] += 3
            quarters[state, action, state] += 1
    return Chain(quarters, np.zeros(5, bool))
