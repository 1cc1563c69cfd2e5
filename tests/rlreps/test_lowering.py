"""Programs are lowered for accelerators on a machine that has none."""

import jax
import numpy as np
import pytest
from jax import export
from optax import adam

from rlreps.agents import AgentConfig, AuxiliaryConfig, DQNConfig, make_program
from rlreps.config import with_sizes
from rlreps.cumulants import Discs
from rlreps.encoders import MLP
from rlreps.envs import load_arena
from rlreps.losses import OBJECTIVES, PAIR_OBJECTIVES
from rlreps.numerics import seed_key
from rlreps.sources import chain_source, matrix_source, puddle_world_source
from rlreps.streaming import RULES
from rlreps.training import Learner

ENCODER = MLP(3, num_inputs=2, hidden=(4,))
PLACES = np.random.default_rng(0).random((8, 2), np.float32)
ENTRIES = matrix_source(np.eye(8, 7, dtype=np.float32), PLACES, with_population=True)
PAIRS = chain_source(np.full((8, 8), 1 / 8), PLACES)


LINEAR_ALGEBRA = [
    "danskin_chunked",
    "danskin_empirical",
    "danskin_lissa",
    "explicit",
    "large_batch",
    "spin",
    "neural_eigenfunctions",
    "td_low_rank",
]
"""Objectives with factorisations, scans or scatters; others have products and sums alone."""


def lower(function, *arguments):
    """Lower a function of a seed; fail if there is no program for both platforms."""
    lowered = export.export(jax.jit(function), platforms=["cuda", "tpu"])(np.uint32(0), *arguments)
    assert lowered.platforms == ("cuda", "tpu")
    assert lowered.out_avals


@pytest.mark.parametrize("name", LINEAR_ALGEBRA)
def test_the_update_of_an_objective_lowers(name):
    source = ENTRIES if name in OBJECTIVES else PAIRS
    sizes = {"num_features": 3, "num_tasks": 7, "encoder": ENCODER, "encoder_learning_rate": 0.1}
    objective = with_sizes((OBJECTIVES | PAIR_OBJECTIVES)[name](), **sizes)
    learner = Learner(encoder=ENCODER, objective=objective, optimizer=adam(0.1), rows=100, tasks=7)
    lower(lambda seed: learner.update(learner.init(seed), source, seed))


def test_the_sample_of_the_live_source_lowers():
    source = puddle_world_source(load_arena("sutton"), Discs(), horizon=3, discount=0.9)
    lower(lambda seed: source.sample(seed_key(seed, 0), 4, 2))


def test_the_step_of_the_compiled_agent_lowers():
    config = AgentConfig(
        encoder=MLP(hidden=(4,)),
        dqn=DQNConfig(batch_size=4),
        auxiliary=AuxiliaryConfig(weight=0.1),
    )
    program = make_program(config)
    lower(lambda _: program.train(program.init(), 0, 2_000))


@pytest.mark.parametrize("name", ["eigengame", "implicit_krasulina", "incremental_pca"])
def test_a_streaming_rule_lowers(name):
    rule = RULES[name].at_rate(6, 2, 0.1)

    def learn(seed, rows):
        states = jax.vmap(rule.update, in_axes=(None, 0))(rule.init(seed_key(seed, 0)), rows)
        return rule.components(rule.combine(states, np.ones(2, np.float32)))

    lower(learn, np.zeros((2, 4, 6), np.float32))
