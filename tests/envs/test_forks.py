"""A fork after JAX was used: refused in the child, where JAX would wait for threads it lacks."""

import multiprocessing
import subprocess
import sys

import numpy as np
import pytest

from rlreps.envs import Image, PuddleWorldDmEnv, PuddleWorldEnv, PuddleWorldVectorEnv, forks

FORKED = """
import warnings
import gymnasium, jax.numpy, rlreps.envs
from gymnasium.vector import AsyncVectorEnv

warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)  # JAX's own, which hangs then.
makers = [lambda: gymnasium.make("rlreps/PuddleWorld-v0")] * 2
copies = AsyncVectorEnv(makers, context="fork")
print(copies.reset(seed=0)[0].shape)
copies.close()
jax.block_until_ready(jax.numpy.ones(3) + 1)
copies = AsyncVectorEnv(makers, context="fork")
try:
    copies.reset(seed=0)
except RuntimeError as error:
    print(error)
copies.close(terminate=True)
"""


@pytest.mark.integration
@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="no forks on this system"
)
def test_copies_in_forked_processes_work_before_jax_was_used_and_say_what_to_do_after():
    ran = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=100, check=True
    )
    before, after = ran.stdout.splitlines()
    assert before == "(2, 2)"
    assert "forked after JAX was used" in after
    assert 'AsyncVectorEnv(env_fns, context="spawn")' in after


def one(environment):
    return environment.reset, lambda: environment.step(0)


def several(environment):
    return environment.reset, lambda: environment.step(np.zeros(2, np.int64))


@pytest.mark.parametrize(
    "calls",
    [
        lambda: one(PuddleWorldEnv()),
        lambda: several(PuddleWorldVectorEnv(2)),
        lambda: one(PuddleWorldDmEnv()),
    ],
)
def test_everything_that_computes_refuses(calls, monkeypatch):
    computing = calls()
    monkeypatch.setattr(forks, "_stranded", True)
    for call in (*computing, PuddleWorldDmEnv, lambda: PuddleWorldEnv(observation=Image())):
        with pytest.raises(RuntimeError, match='context="spawn"'):
            call()
