"""Encoders of stored configurations."""

from rlreps.config import options, with_sizes
from rlreps.configs import EncoderConfig
from rlreps.encoders import ENCODERS, Encoder


def make_encoder(
    config: EncoderConfig, *, num_inputs: int, num_states: int, num_features: int
) -> Encoder:
    """Make the encoder that a configuration names."""
    cls = ENCODERS[config.name]
    found = {"hidden": config.hidden, "frequencies": config.frequencies}
    known = {field.name: found[field.name] for field in options(cls) if field.name in found}
    return with_sizes(
        cls(**known), num_inputs=num_inputs, num_states=num_states, num_features=num_features
    )
