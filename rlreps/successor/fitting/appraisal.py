"""Values of a policy on the nearest rows, and which of two policies they prefer."""

import math
from typing import NamedTuple

import numpy as np
import scipy  # ``scipy.stats`` loads on first use: it takes a second.

_BETTER = 0.05
"""Share of its gain over the data by which one improvement has to be better to replace another."""
_LEVEL = 0.05
"""Level of the one-sided test that one improvement is better."""
_FREE = 2.0
"""Multiple of a limited policy's gain over the data that a policy of all actions has to gain."""
_MOST_MISSED = 0.4
"""Share of the promised gain that a policy may miss on the nearest rows; good ones miss 0.2."""


class Appraisal(NamedTuple):
    """The values of a policy where walks along the nearest rows start.

    Attributes:
        returns: Discounted rewards of each of the policy's walks, [m].
        promised: Mean of the values by which the policy chooses.
        data: Mean value of the data's policy.
        constant: Left out of all of these, since it would round differences away.
    """

    returns: np.ndarray
    promised: float
    data: float
    constant: float

    @property
    def value(self) -> float:
        """Mean value of the policy on the nearest rows."""
        return float(self.returns.mean())

    @property
    def gain(self) -> float:
        """What the policy gains over the data's."""
        return self.value - self.data

    @property
    def overpromises(self) -> bool:
        """Whether the policy misses much of the gain that it promises."""
        return self.promised - self.value > _MOST_MISSED * (self.promised - self.data)

    def replaces_fitted(self, fitted: "Appraisal") -> bool:
        """Tell whether one improvement, appraised here, replaces fitted Q iteration."""
        better = self.value - fitted.value > _BETTER * abs(self.gain)
        return better and self._surely_exceeds(fitted)

    def replaces_constrained(self, constrained: "Appraisal", one_step: "Appraisal") -> bool:
        """Tell whether a policy of all actions replaces one of likely actions.

        Args:
            constrained: The policy of likely actions.
            one_step: One improvement, of likely actions.
        """
        better = self.value > one_step.value and self.gain > _FREE * max(constrained.gain, 0.0)
        return better and not self.overpromises and self._surely_exceeds(constrained)

    def _surely_exceeds(self, other: "Appraisal") -> bool:
        """Tell whether the mean return exceeds another's by a one-sided t-test of paired walks.

        Equal positive differences do: ten walks or more have the same sign by chance in one case of
        1,024.
        """
        more = self.returns - other.returns
        error = float(more.std(ddof=1)) / math.sqrt(len(more))
        return float(more.mean()) > float(scipy.stats.t.ppf(1.0 - _LEVEL, len(more) - 1)) * error
