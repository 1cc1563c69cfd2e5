"""A next-frame predictor: frame → small code → next frame, and what is asked of it."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from rlreps.encoders import MLP, Convolutional, Encoder, FunctionEncoder, Params
from rlreps.experiments.pfau_2019.atari.config import AtariConfig
from rlreps.experiments.pfau_2019.atari.problem import Problem
from rlreps.losses.base import Batch, Encode, Metrics, Objective


class Predictor(NamedTuple):
    """A predictor of the next frame.

    Attributes:
        encoder: Grey levels [b, height, width, 1] → codes [b, k]; its parameters hold the decoder's
            too.
        predict: (parameters, codes [b, k]) → standardised pixels of the next frames, [b, pixels].
        objective: Its training, on the batches of a ``PairSource``.
    """

    encoder: Encoder
    predict: Callable[[Params, Array], Array]
    objective: Objective


def next_frame_predictor(config: AtariConfig, problem: Problem) -> Predictor:
    """The convolutional encoder of the slow features, a code, one hidden layer, and pixels.

    The prediction is of the mean over the random agent's actions: it is not told the action, as the
    successor features are of that agent too.
    """
    height, width, _ = problem.frame_shape
    to_code = problem.on_frames(
        Convolutional(
            config.code_size,
            frame_shape=problem.frame_shape,
            channels=config.channels,
            hidden=config.hidden,
        )
    )
    decoder = MLP(height * width, num_inputs=config.code_size, hidden=(config.hidden,))

    def init(key: Array) -> Params:
        keys = jax.random.split(key)
        return {"code": to_code.init(keys[0]), "decoder": decoder.init(keys[1])}

    encoder = FunctionEncoder(init, lambda params, frames: to_code.apply(params["code"], frames))

    def predict(params: Params, codes: Array) -> Array:
        return decoder.apply(params["decoder"], codes)

    @dataclasses.dataclass(frozen=True)
    class NextFrame(Objective):
        """The squared error of the prediction."""

        def loss(
            self, params: Params, encode: Encode, batch: Batch, state: tuple[()], key: Array
        ) -> tuple[Array, tuple[tuple[()], Metrics]]:
            del key  # Deterministic given the batch.
            first, second = jnp.split(batch.inputs, 2)
            error = squared_error(predict(params, encode(params, first)), problem, second)
            return error, (state, {})

    return Predictor(encoder, predict, NextFrame(config.code_size))


def squared_error(predictions: Array, problem: Problem, frames: Array) -> Array:
    """Mean squared error of standardised pixels [b, pixels] against frames, [].

    The training frames' mean as the prediction has an error near one.
    """
    wanted = problem.standardised(frames).reshape(len(frames), -1)
    return jnp.mean(jnp.square(predictions - wanted))
