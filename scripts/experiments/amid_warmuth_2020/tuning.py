"""Streaming rules to compare, and the choice of their learning rates on a part of the rows."""

import contextlib
import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from rlreps.experiments.amid_warmuth_2020.passes import PassResult, run_passes
from rlreps.experiments.amid_warmuth_2020.printed import PAPER_RULES, SANGER
from rlreps.experiments.reconstruction import loss_from_moments
from rlreps.streaming import RULES, PowerDecay, StreamingRule
from rlreps.study import in_path
from rlreps.subspace import second_moments

RATES = (0.1, 1.0, 2.0, 10.0, 100.0, 1e3, 1e4, 1e5)
"""Initial learning rates to choose from. The authors' code has these, and some that grow with k."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contender:
    """A streaming rule of a comparison, with its candidate learning rates.

    Attributes:
        rule: One of ``rlreps.streaming.RULES``.
        variant: How it differs from the paper's way to run the rule; empty if it does not.
        powers: Candidates for γ of the learning rate η0 / t^γ at update t = 1, 2, …; empty for a
            rule without a learning rate.
        learning_rates: Candidates for η0; empty for a rule without a learning rate.
        rows_per_update: b, rows of an update.
        initial_scale: Standard deviation of a factor's entries at the start; None takes the rule's
            own.
        double: Whether the rule runs in float64.
        mean_qr: Whether workers' models are combined by their mean and a QR decomposition, as the
            paper combines orthonormal bases; otherwise the rule's ``combine`` combines them.
    """

    rule: str
    variant: str = ""
    powers: tuple[float, ...] = (0.8,)
    learning_rates: tuple[float, ...] = RATES
    rows_per_update: int = 1
    initial_scale: float | None = None
    double: bool = False
    mean_qr: bool = False

    @property
    def name(self) -> str:
        """Return its name in files; contenders with the same name are the same."""
        rows = "" if self.rows_per_update == 1 else f"-{self.rows_per_update}"
        return f"{self.rule}{rows}{'-' if self.variant else ''}{in_path(self.variant)}"

    @property
    def label(self) -> str:
        """Return its name in figures, with the number of rows per update if there are several."""
        rows = "" if self.rows_per_update == 1 else f" ({self.rows_per_update:,})"
        theirs = ' ("Sanger")' if self.rule == SANGER and self.published else ""
        return f"{RULES[self.rule].title}{theirs}{rows}{', ' * bool(self.variant)}{self.variant}"

    @property
    def published(self) -> bool:
        """Return whether the paper runs it."""
        return self.rule in PAPER_RULES and not self.variant and self.rows_per_update == 1

    def stream(
        self,
        rows: npt.NDArray[np.float32],
        seeds: Sequence[int],
        rates: Sequence[float | None],
        power: float | None,
        k: int,
        **options: Any,
    ) -> PassResult:
        """Call ``run_passes`` on rows [n, features]; options go to it.

        Rates are each run's η0, power is γ; both are None for a rule without a learning rate.
        """
        scale = self.initial_scale
        start: dict[str, Any] = {} if scale is None else {"initial_scale": scale}

        def make(initial: jax.Array) -> StreamingRule:
            rate = PowerDecay(initial, power or 0.0)
            return dataclasses.replace(RULES[self.rule].at_rate(rows.shape[1], k, rate), **start)

        with jax.enable_x64(True) if self.double else contextlib.nullcontext():
            return run_passes(
                make,
                rows.astype(np.float64) if self.double else rows,
                seeds,
                [1.0 if rate is None else rate for rate in rates],
                rows_per_update=self.rows_per_update,
                **options,
            )

    def choose_rates(
        self,
        rows: npt.NDArray[np.float32],
        k: int,
        *,
        fraction: float,
        seed: int,
    ) -> dict[str, Any]:
        """Try γ and η0 on a random part of the rows, one pass over it for each pair.

        Amid & Warmuth 2020 choose γ and η0 on a tenth of the data. As in their code, the criterion
        is the loss on the same part of the rows.

        Args:
            rows: Centred, [n, features].
            k: Number of components.
            fraction: Share of the rows in the part.
            seed: Seed of the part and of every run.

        Returns:
            ``power`` and ``learning_rate`` of the first pair with the least loss, ``tuning_losses``
            [powers, rates] (NaN if a run diverged) and ``all_diverged``. If all diverged, the pair
            is the first power and the smallest rate. Both are None for rules without a rate.
        """
        rates, powers = self.learning_rates, self.powers
        if not rates:
            none: dict[str, Any] = {"power": None, "learning_rate": None, "tuning_losses": []}
            return {**none, "all_diverged": False}
        count = int(len(rows) * fraction)
        part = rows[np.sort(np.random.default_rng(seed).permutation(len(rows))[:count])]
        loss = partial(loss_from_moments, second_moments(part))
        options = {"evaluate": loss, "evaluate_every": count}
        losses = np.stack(
            [
                self.stream(part, [seed] * len(rates), rates, power, k, **options).figures[-1]
                for power in powers
            ]
        )
        finite = np.isfinite(losses)
        diverged = not finite.any()
        best = np.unravel_index(np.argmin(np.where(finite, losses, np.inf)), losses.shape)
        power, rate = (0, int(np.argmin(rates))) if diverged else map(int, best)
        return {
            "power": powers[power],
            "learning_rate": rates[rate],
            "tuning_losses": losses.tolist(),
            "all_diverged": diverged,
        }
