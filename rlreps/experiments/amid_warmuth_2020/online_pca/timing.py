"""Times of single updates, of streaming rules and of one with a QR decomposition, taken alike."""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.experiments.amid_warmuth_2020.online_pca.config import PAPER_RULES
from rlreps.experiments.amid_warmuth_2020.online_pca.curves import ExcessCurve
from rlreps.experiments.amid_warmuth_2020.pca_problem import PcaProblem
from rlreps.experiments.amid_warmuth_2020.pca_tuning import decaying_rule
from rlreps.streaming.rules.orthonormal import orthonormalize

WITH_QR = "qr"
"""Oja's update where a QR decomposition restores orthonormality."""

_ROWS = 1000
_TRIALS = 5

Stream = tuple[Callable[[Any, Array], Any], Any]
"""(state, rows [n, features]) → state, and the state to start from."""


def papers_rules(curves: Sequence[ExcessCurve], k: int) -> dict[str, ExcessCurve]:
    """The curves for k of the paper's rules that see one row an update, by rule."""
    return {
        each.contender.rule: each
        for each in curves
        if each.k == k
        and each.contender.rule in PAPER_RULES
        and each.contender.rows_per_update == 1
    }


def seconds_per_row(
    problem: PcaProblem,
    k: int,
    curves: Sequence[ExcessCurve],
    devices: Sequence[jax.Device] | None,
) -> dict[str, list[float]]:
    """Times a row of the paper's rules, and of Oja's with a QR decomposition, in turns.

    The library's Oja and Krasulina have a closed form in the decomposition's place
    (``orthonormal.add_outer``). All go over the same rows, one an update, in a single dispatch.

    Args:
        problem: The rows.
        k: Components.
        curves: Of a run, with the learning rates that were chosen.
        devices: Of which the first one is measured.

    Returns:
        Rule, or ``WITH_QR``, → seconds a row, one number for each trial.
    """
    features = problem.rows.shape[1]
    with jax.default_device(None if devices is None else devices[0]):
        rows = jnp.asarray(problem.rows[:_ROWS])
        key = jax.random.key(0)
        streams: dict[str, Stream] = {
            WITH_QR: (_update_each_with_qr, orthonormalize(jax.random.normal(key, (k, features))))
        }
        for rule, curve in papers_rules(curves, k).items():
            build = decaying_rule(rule, features, k, curve.contender.power)
            made = build(jnp.asarray(curve.learning_rate, jnp.float32))
            # A rule with an array cannot be hashed; a partial function is hashed by identity.
            streams[rule] = (functools.partial(made.update_each), made.init(key))
        return {
            name: [seconds / len(rows) for seconds in trials]
            for name, trials in _in_turns(streams, rows).items()
        }


def _in_turns(streams: Mapping[str, Stream], rows: Array) -> dict[str, list[float]]:
    """Seconds of each trial: streams take turns, so that what slows the machine meets them all."""
    compiled: dict[str, Stream] = {}
    for name, (update_each, start) in streams.items():
        function = jax.jit(update_each)
        # Once over the rows before time is taken: a factor's first updates are anchored one by one.
        compiled[name] = function, jax.block_until_ready(function(start, rows))
    trials: dict[str, list[float]] = {name: [] for name in compiled}
    for _ in range(_TRIALS):
        for name, (update_each, state) in compiled.items():
            began = time.perf_counter()
            jax.block_until_ready(update_each(state, rows))
            trials[name].append(time.perf_counter() - began)
    return trials


def _update_each_with_qr(basis: Array, rows: Array) -> Array:
    def update(basis: Array, row: Array) -> tuple[Array, None]:
        weights = jnp.matmul(basis, row)
        return orthonormalize(basis + 1e-3 * jnp.outer(weights, row)), None

    last: Array = jax.lax.scan(update, basis, rows)[0]
    return last
