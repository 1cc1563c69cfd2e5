"""What a newcomer gets wrong about encoders, objectives and evaluations: one line each."""

import dataclasses
import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx

from rlreps.encoders import MLP, from_linen, from_nnx
from rlreps.errors import InputError
from rlreps.losses import Explicit, LargeBatch
from rlreps.sources import matrix_source
from rlreps.training import train

SOURCE = matrix_source(jnp.eye(12) - 1 / 12, np.random.default_rng(0).random((12, 2), np.float32))


@dataclasses.dataclass(frozen=True)
class Alone(LargeBatch):
    """Returns the scalar alone, or with one thing, or no scalar."""

    returned: str = "scalar"

    def loss(self, params, encode, batch, state, key):
        value, others = super().loss(params, encode, batch, state, key)
        return {
            "scalar": value,
            "vector": (value[None], others),
            "metrics": (value, (state, value)),
        }[self.returned]


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Own:
    """A source that changes the batches of another."""

    change: Callable
    num_tasks = None

    def sample(self, key, num_rows, num_tasks):
        return self.change(SOURCE.sample(key, num_rows, num_tasks))


def run(encoder, objective=None, evaluate=None, source=SOURCE, **options):
    train(
        encoder,
        LargeBatch(3) if objective is None else objective,
        source,
        evaluate=evaluate,
        **{"optimizer": optax.sgd(1e-3), "steps": 1, "rows": 8, **options},
    )


FITTING = MLP(3, hidden=(4,))
CASES = [
    (lambda: run(FITTING, Alone(3)), "Alone.loss to return (scalar, (state, metrics)), got"),
    (lambda: run(FITTING, Alone(3, returned="vector")), "got 'a value of shape (1,)'"),
    (
        lambda: run(FITTING, Alone(3, returned="metrics")),
        "to return (scalar, (state, metrics)), metrics by name, got 'a",
    ),
    (lambda: run(MLP(5, hidden=(4,))), "an encoder of 3 features for LargeBatch, features of"),
    (lambda: run(MLP(3, num_inputs=4)), "inputs of shape (b, 4), as the encoder's num_inputs is 4"),
    (
        lambda: run(FITTING, evaluate=lambda params: {"norm": float(params[0]["bias"].sum())}),
        "an evaluate that JAX can trace",
    ),
    (
        lambda: from_nnx(nnx.Linear(2, 3, rngs=nnx.Rngs(0))),
        "such as lambda rngs: nnx.Linear(2, 10, rngs=rngs), got 'a Linear that is already built'",
    ),
    (
        lambda: run(FITTING, optimizer="adam"),
        "optimizer to be an Optimizer or an optax transformation, got 'adam'",
    ),
    (lambda: run(FITTING, optimizer=None), "or an optax transformation, got None"),
    (
        lambda: run(FITTING, Explicit(3, num_tasks=2)),
        "expected Explicit(..., weight_learning_rate=...), such as 1e-3, since",
    ),
    (
        lambda: run(FITTING, Explicit(3, num_tasks=2, weight_learning_rate=1e-3)),
        "an objective of num_tasks=12, the source's, got 2",
    ),
    (
        lambda: run(FITTING, evaluate=lambda params: {"loss": jnp.zeros(())}),
        "an evaluation with names of its own, got ['loss']",
    ),
    (
        lambda: run(FITTING, evaluate=lambda params: {"step": jnp.zeros(())}),
        "an evaluation with names of its own, got ['step']",
    ),
    (lambda: run(FITTING, source=Own(lambda batch: tuple(batch)[:2])), "a Batch, got 'tuple'"),
    (
        lambda: run(FITTING, source=Own(lambda batch: jax.tree.map(lambda leaf: leaf[:5], batch))),
        "a batch of 8 rows, got 5",
    ),
    (lambda: run(FITTING, source=object()), "a source that is a pytree (jax.tree_util.reg"),
    (lambda: run(FITTING, steps=1.5), "steps to be an integer, got 1.5"),
    (lambda: run(FITTING, seeds=(0.5,)), "integers, each in [0, 2**32), got (0.5,)"),
    (lambda: run(FITTING, seeds=3), "integers, each in [0, 2**32), got 3"),
    (lambda: from_linen(linen.Dense, jnp.ones((1, 2))), "a Linen module, such as linen.Dense(10)"),
]


@pytest.mark.parametrize(("mistake", "message"), CASES, ids=[message for _, message in CASES])
def test_mistakes_are_said_in_a_line(mistake, message):
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        mistake()
    assert "\n" not in str(caught.value)
