"""Compare a deterministic world with a table of BRIDGE (Laidlaw et al. 2023), along all paths.

    python -P scripts/compare_bridge.py TABLE.npz WORLD

TABLE.npz is a ``consolidated.npz`` of https://github.com/cassidylaidlaw/effective-horizon: its
actions are the first ones of the world, state 0 is the first, and -1 is an end.
"""

import argparse

import numpy as np

from rlreps import worlds


def main() -> None:
    """Print what agrees, from the pairs of states that equal actions lead to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table")
    parser.add_argument("world")
    given = parser.parse_args()
    theirs, ours = np.load(given.table), worlds.load(given.world)
    steps, rewards = theirs["transitions"], theirs["rewards"]
    pairs = {(0, int(np.argmax(ours.start)))}
    todo, ends, paid = [*pairs], 0, 0
    while todo:
        there, here = todo.pop()
        for action, after in enumerate(map(int, steps[there])):
            state = int(ours.next_states[here, action])
            ends += (after < 0) != ours.terminal[state]
            paid += not np.isclose(rewards[there, action], ours.rewards[here, action])
            if after >= 0 and (after, state) not in pairs:
                pairs.add((after, state))
                todo.append((after, state))
    first, second = ({*side} for side in zip(*pairs, strict=True))
    going = np.count_nonzero(~ours.terminal)
    print(f"{len(first)} of BRIDGE's {len(steps)} states in {len(pairs)} pairs")
    print(f"{len(second)} of the world's {going} states that end no episode")
    print(f"{len(pairs) * steps.shape[1]} steps: {ends} other ends, {paid} other rewards")


if __name__ == "__main__":
    main()
