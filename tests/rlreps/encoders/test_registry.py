"""Encoders by name."""

from typing import get_args

import jax
import numpy as np
import pytest

from rlreps.configs import EncoderConfig, EncoderName
from rlreps.encoders import ENCODERS, cosine, fourier_mlp, make_encoder, mlp, tabular
from rlreps.errors import InputError

NUM_STATES, NUM_FEATURES = 9, 4


def test_the_registry_holds_exactly_the_names_of_the_configuration():
    assert set(ENCODERS) == set(get_args(EncoderName))


@pytest.mark.parametrize("name", sorted(ENCODERS))
def test_a_configuration_makes_the_encoder_it_names(name):
    config = EncoderConfig(name=name, hidden=(8,), frequencies=3)
    encoder = make_encoder(config, num_inputs=2, num_states=NUM_STATES, num_features=NUM_FEATURES)
    direct = {
        "mlp": lambda: mlp(2, NUM_FEATURES, hidden=(8,)),
        "fourier_mlp": lambda: fourier_mlp(2, NUM_FEATURES, hidden=(8,), frequencies=3),
        "cosine": lambda: cosine(2, NUM_FEATURES, frequencies=3),
        "tabular": lambda: tabular(NUM_STATES, NUM_FEATURES),
    }[name]()
    jax.tree.map(
        np.testing.assert_array_equal,
        encoder.init(jax.random.key(0)),
        direct.init(jax.random.key(0)),
    )


def test_an_unknown_encoder_is_refused_with_the_list_of_names():
    names = "cosine, fourier_mlp, mlp, tabular"
    with pytest.raises(InputError, match=f"expected encoder to be one of {names}, got 'resnet'"):
        EncoderConfig(name="resnet")
