"""Configuration of the Atari experiment and its presets; presets change numbers only.

This module does not import JAX.
"""

import dataclasses
import math

from rlreps.errors import require, require_positive


@dataclasses.dataclass(frozen=True, kw_only=True)
class AtariConfig:
    """Slow features of a random agent's frames, beside PCA's and successor features.

    Attributes:
        game: A game of the Arcade Learning Environment, such as ``MsPacman``.
        num_frames: Frames of the random agent, all of them kept in memory: num_frames x size² bytes
            once on the host and once on the device.
        size: Height and width of a frame in pixels, after area-averaging.
        num_features: d, features of every method.
        channels: Of the convolutions, for the slow features and for the predictor's code.
        hidden: Width of the hidden layers.
        pairs: Pairs of consecutive frames in an update.
        steps: Updates of the slow features.
        learning_rate: Adam's highest learning rate, for both networks: it rises over the first
            tenth of the updates and falls to zero by a cosine.
        code_size: Numbers in the next-frame predictor's code.
        predictor_steps: Updates of the predictor.
        discount: γ of the successor features, in [0, 1).
        evaluations: Points of each learning curve after its start.
        seed: Of the agent, the networks and the batches.
    """

    game: str = "MsPacman"
    num_frames: int = 1_000_000
    size: int = 84
    num_features: int = 9
    channels: tuple[int, ...] = (32, 32, 32)
    hidden: int = 256
    pairs: int = 512
    steps: int = 50_000
    learning_rate: float = 1e-3
    code_size: int = 64
    predictor_steps: int = 50_000
    discount: float = 0.99
    evaluations: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("size", "num_features", "hidden", "steps", "predictor_steps", "evaluations"):
            require_positive(name, getattr(self, name))
        require(len(self.channels) >= 1, "at least one convolution", self.channels)
        for width in self.channels:
            require_positive("channels", width)
        require(
            self.pairs > self.num_features,
            f"pairs > {self.num_features}, the number of features",
            self.pairs,
        )
        require(
            self.code_size >= self.num_features,
            f"code_size >= {self.num_features}, the number of features",
            self.code_size,
        )
        require(
            self.num_frames >= 20 * self.num_features,
            f"num_frames >= {20 * self.num_features}, twenty for each feature",
            self.num_frames,
        )
        require(
            self.num_features <= self.size**2,
            f"num_features <= {self.size**2}, the pixels of a frame",
            self.num_features,
        )
        require(
            self.learning_rate > 0.0 and math.isfinite(self.learning_rate),
            "a finite learning_rate > 0",
            self.learning_rate,
        )
        require(0.0 <= self.discount < 1.0, "discount in [0, 1)", self.discount)
        require(0 <= self.seed < 2**31, "seed in [0, 2**31)", self.seed)
        for name in ("steps", "predictor_steps"):
            require(
                getattr(self, name) % self.evaluations == 0,
                f"{name} to be a multiple of evaluations ({self.evaluations})",
                getattr(self, name),
            )


# The paper preset is of published work's size; its frames take 7 GB on the host and 7 GB on the
# device. Architecture and updates are ours in every preset.
PRESETS: dict[str, AtariConfig] = {
    "smoke": AtariConfig(
        num_frames=300,
        size=24,
        num_features=3,
        channels=(8, 8),
        hidden=16,
        pairs=32,
        steps=60,
        code_size=4,
        predictor_steps=60,
        discount=0.9,
        evaluations=3,
    ),
    "laptop": AtariConfig(
        num_frames=40_000,
        size=64,
        channels=(8, 16, 32),
        hidden=256,
        pairs=128,
        steps=2000,
        code_size=32,
        predictor_steps=2000,
        discount=0.95,
        evaluations=20,
    ),
    "paper": AtariConfig(),
}
"""Preset name → configuration."""
