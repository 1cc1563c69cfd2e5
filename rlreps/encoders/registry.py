"""The one dictionary from an encoder's name to the encoder."""

from collections.abc import Callable

from rlreps.configs import EncoderConfig
from rlreps.encoders.base import Encoder
from rlreps.encoders.cosines import cosine
from rlreps.encoders.lookup import tabular
from rlreps.encoders.perceptrons import fourier_mlp, mlp

ENCODERS: dict[str, Callable[[EncoderConfig, int, int, int], Encoder]] = {
    "cosine": lambda config, num_inputs, num_states, num_features: cosine(
        num_inputs, num_features, frequencies=config.frequencies
    ),
    "fourier_mlp": lambda config, num_inputs, num_states, num_features: fourier_mlp(
        num_inputs, num_features, hidden=config.hidden, frequencies=config.frequencies
    ),
    "mlp": lambda config, num_inputs, num_states, num_features: mlp(
        num_inputs, num_features, hidden=config.hidden
    ),
    "tabular": lambda config, num_inputs, num_states, num_features: tabular(
        num_states, num_features
    ),
}
"""Encoder name → encoder for (configuration, input coordinates, states, features)."""


def make_encoder(
    config: EncoderConfig, *, num_inputs: int, num_states: int, num_features: int
) -> Encoder:
    """The encoder that a configuration names.

    Args:
        config: Its name and options.
        num_inputs: Coordinates of a state.
        num_states: n, for a tabular encoder.
        num_features: d.

    Returns:
        The encoder. A ``tabular`` one takes state indices [b], the others coordinates
        [b, num_inputs].

    Raises:
        InputError: For sizes below 1.
    """
    return ENCODERS[config.name](config, num_inputs, num_states, num_features)
