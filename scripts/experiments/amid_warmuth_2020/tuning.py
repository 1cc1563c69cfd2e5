"""The choice of a streaming rule's learning rate by one pass over a part of the rows."""

import contextlib
import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from rlreps.config import checked
from rlreps.streaming import (
    RULES,
    MakeRule,
    PassResult,
    PowerDecay,
    Runs,
    StreamingRule,
    run_passes,
)
from rlreps.subspace import loss_from_moments, second_moments


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class TunedRule:
    """A streaming rule with its candidate learning rates, its start and its rows per update.

    Attributes:
        rule: One of ``rlreps.streaming.RULES``.
        powers: Candidates for γ of the learning rate η0 / t^γ at update t = 1, 2, …; empty for a
            rule without a learning rate.
        learning_rates: Candidates for η0; empty for a rule without a learning rate.
        rows_per_update: b, rows of an update.
        initial_scale: Standard deviation of a factor's entries at the start; None takes the rule's
            own.
        double: Whether the rule runs in float64.
    """

    rule: str
    powers: tuple[float, ...]
    learning_rates: tuple[float, ...]
    rows_per_update: int = 1
    initial_scale: float | None = None
    double: bool = False

    def build(self, features: int, k: int, power: float) -> MakeRule:
        """Return η0 → rule, whose learning rate is η0 / t^power."""
        start: dict[str, Any] = (
            {} if self.initial_scale is None else {"initial_scale": self.initial_scale}
        )

        def make(initial: jax.Array) -> StreamingRule:
            made = RULES[self.rule].at_rate(features, k, PowerDecay(initial, power))
            return dataclasses.replace(made, **start)

        return make

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
        with jax.enable_x64(True) if self.double else contextlib.nullcontext():
            return run_passes(
                self.build(rows.shape[1], k, power or 0.0),
                rows.astype(np.float64) if self.double else rows,
                Runs(seeds, [1.0 if rate is None else rate for rate in rates]),
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
