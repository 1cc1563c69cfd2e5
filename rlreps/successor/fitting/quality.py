"""What held-out episodes say about a fit, and the warnings that follow.

``r_squared`` is the share of the variance of returns that a fit predicts. ``attainable`` is the
share that noise leaves to predict, and ``predictable`` what this share is at least. ``missed`` is
how much the errors surely exceed those of noise, of a constant or of another fit; ``worse``, those
of a constant alone. ``horizon_share`` tells how far these returns reach. The other measures do not
compare returns: ``overfit`` and ``row_sum_error`` compare equations, ``unvisited`` and
``effective_rows`` count rows.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from rlreps.config import checked

_MISSED = 0.25  # Share of the predictable variance; errors are then half the values' deviation.
_LEAST_PREDICTABLE = 0.2  # If the predictable share is smaller, _MISSED is relative to this share.
_OVERFIT = 0.3  # Random chains: 1 with two rows per state and action, 0.45 with six, 0.2 with ten.
# Policies of such fits to vectors are good: 0.5 with 10,000 rows of CartPole, 1.1 with 1,000.
_OVERFIT_DENSE = 1.0
_ROW_SUMS = 0.1  # A fit with enough rows and a small ridge deviates by a tenth of this.
_UNVISITED = 0.05  # Share of states with unknown values. Above 0: the last row may add a state.
FEWEST_EFFECTIVE_ROWS = 10.0  # A component with fewer effective rows is fitted to these rows alone.
_HOPELESS = -0.1  # Attainable R² is above it if all is noise.
_UNTOLD = -0.3  # Lower bound of R² for exact values on a single record.
_LOW = 0.35  # Share of ``attainable`` that good fits of 1,000 rows reach 14 times in 15.
_ENORMOUS = -1.0  # R² of a few enormous errors.
_LEAST_HORIZON = 0.05  # Sums over a smaller share of the fit's horizon say little of its values.
_ADVICE = (
    "try more features, another method, a smaller regularisation, transitions.numbered() if "
    "observations repeat or, for a network, more steps or a smaller learning rate"
)
_ADVICE_AGAINST_NOISE = "try more data, fewer features or a larger regularisation"
_ADVICE_OF_STATES = (
    "returns depend on more than the state and action: several policies made the data, or states "
    "lack something; fit each policy's episodes, or number states that tell more. If you set "
    "regularisation or trained a network, try a smaller one, or more steps"
)
_BEYOND_NOISE = (
    "and TD errors are larger than noise can be; try more data, or leave out numbers of the "
    "observations that do not matter"
)
_TOO_FEW = "of too few returns to tell; try more episodes, or a smaller discount"
_FEW_COMPONENTS = 0.25  # A smaller share of components with few rows does little harm.


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Quality:
    """Measures of a fit, as JSON values.

    Attributes:
        starts: Number of held-out rows from which sums are complete.
        r_squared: R² of the predicted sums of all cumulants together, 1 less their squared error
            over that of a constant: the mean sum of the rows of the fit. None without starts, or if
            the sums hardly vary.
        attainable: Estimated R² that noise allows. It is the R² of a reference fit if this is
            greater: a small one for features of networks, and counts for vectors that repeat.
            None if ``r_squared`` is, and 0 if it is negative by chance.
        discount: γ of these sums: the fit's γ, or a smaller γ if records are too short.
        horizon_share: 1 / (1 − γ) of these sums as a share of the fit's 1 / (1 − γ); 0 without
            starts.
        missed: Excess of the mean squared error over a bound, as a share of the variance, or of
            the mean square of sums that hardly vary. The three bounds are the noise, the error of a
            constant (if sums vary) and the error of the reference fit. Each excess is the lower end
            of its 95 % interval, and ``missed`` is the largest. None without starts.
        worse: The excess over the error of a constant alone, less 0.02; 0 if it is smaller.
        overfit: Mean squared TD error on held-out rows minus that on fitted rows, times the mean
            of Σ_j γ²ʲ over the terms of the sums, relative to the variance of the sums.
        row_sum_error: Mean relative deviation of the row sums from 1 / (1 − γ); None if data
            terminate.
        unvisited: Share of the states reached in which no row starts and no episode ended; None for
            observations that are not indices.
        effective_rows: (Σ u²)² / Σ u⁴ over the rows of every left singular function, [d]; 0 beyond
            the rank.
        predicted: Some predicted sums, in standard deviations from the constant.
        realised: The realised sums, in the same units.
        predictable: Lower end of the 95 % interval of ``attainable``; at least 0.
    """

    starts: int
    r_squared: float | None
    attainable: float | None
    discount: float
    horizon_share: float
    missed: float | None
    worse: float | None
    overfit: float
    row_sum_error: float | None
    unvisited: float | None
    effective_rows: tuple[float, ...]
    predicted: tuple[float, ...]
    realised: tuple[float, ...]
    predictable: float

    def lines(self) -> list[str]:
        """Describe the measures, one per line."""
        why = "sums hardly vary" if self.starts else "records are cut before sums are complete"
        found = [f"R² on held-out episodes: unknown, {why}"]
        if self.r_squared is not None and self.attainable is not None:
            allowed = f"{max(self.attainable, self.r_squared, 0.0):.3f}"
            found = [
                f"R² of sums of random cumulants on held-out episodes: {self.r_squared:.3f}; noise "
                f"allows {'an unknown part' if self.unknown else allowed} "
                f"(discount {self.discount:.3g}, {self.starts:,} starts)"
            ]
        found.append(f"excess of squared TD errors on held-out rows: {self.overfit:.3f}")
        if self.row_sum_error is not None:
            found.append(f"row sums: {self.row_sum_error:.1%} from 1 / (1 - discount) in the mean")
        if self.unvisited is not None:
            found.append(f"states reached in which no row starts: {self.unvisited:.1%}")
        known = self._within_rank or [0.0]
        middle, least = float(np.median(known)), min(known)
        found.append(f"effective rows behind a component: median {middle:,.0f}, least {least:,.0f}")
        size = len(self.effective_rows)
        if len(known) < size:
            found.append(f"components beyond the rank of the fit, which are 0: {size - len(known)}")
        return found

    def warnings(self) -> list[str]:
        """Describe what is wrong and what to try, one problem per line; empty for a good fit."""
        return list(self._problems())

    def _problems(self) -> Iterator[str]:
        if self._overfits:
            yield (
                "too few rows for the states: TD errors are much larger on held-out rows; try more "
                + ("data" if self._counted else "data, fewer features or a larger regularisation")
            )
        if line := self._describe_errors():
            yield line
        if self.horizon_share < _LEAST_HORIZON:
            judged = f"its quality is measured with a discount of {self.discount:.2g}"
            if not self.starts:
                judged = "they are cut before returns are complete, or rows are not in order"
            yield (
                f"records are too short to judge the fit: {judged}; record longer episodes, or "
                "fit a smaller discount"
            )
        if self.row_sum_error is not None and self.row_sum_error > _ROW_SUMS:
            yield (
                f"row sums are {self.row_sum_error:.0%} from 1 / (1 - discount) in the mean; try a "
                "smaller regularisation, more data or, for a network, more steps"
            )
        if self.unvisited is not None and self.unvisited > _UNVISITED:
            yield (
                f"no row starts in {self.unvisited:.0%} of the states reached, whose values are "
                "unknown; try more data, or mark terminal states in terminated"
            )
        known = self._within_rank
        few = sum(rows < FEWEST_EFFECTIVE_ROWS for rows in known)
        if few > _FEW_COMPONENTS * len(known):
            yield (
                f"{few} of {len(known)} components rest on fewer than {FEWEST_EFFECTIVE_ROWS:.0f} "
                "effective rows; try more data or fewer features"
            )

    def _describe_errors(self) -> str:
        """Say that values are far off the returns, worse than a constant, or of unknown quality."""
        attainable, missed = max(self.attainable or 0.0, 0.0), self.missed or 0.0
        r_squared, worse = self.r_squared or 0.0, (self.worse or 0.0) > 0.0
        figure = f"R² on held-out episodes is {r_squared:.2f}"
        # A few enormous errors make the interval of ``missed`` too wide to be useful.
        if r_squared < _ENORMOUS or missed > _MISSED * max(attainable, _LEAST_PREDICTABLE):
            figure += f" where {attainable:.2f} is possible"
            if self.r_squared is None:
                figure = f"errors on held-out episodes are {missed:.0%} of the mean square"
            advice = _ADVICE_AGAINST_NOISE if worse else _ADVICE
            if self._counted:
                advice = "try more data" if self._overfits else _ADVICE_OF_STATES
            return f"values are far off the returns: {figure}; {advice}"
        if worse:
            return (
                "values are worse than their mean on held-out episodes: R² is "
                f"{r_squared:.2f}; {_ADVICE_AGAINST_NOISE}"
            )
        why = _BEYOND_NOISE if self._beyond_noise else _TOO_FEW
        return f"the quality of the fit is unknown: {figure}, {why}" if self.unknown else ""

    @property
    def unknown(self) -> bool:
        """Whether R² tells nothing of the fit: its errors pass for noise, or returns are too few.

        Returns are too few if R² is low, or far below what noise allows. Unless ``missed`` or
        ``worse`` show that the fit is bad, nothing is known of it then.
        """
        attainable, r_squared = self.attainable or 0.0, self.r_squared or 0.0
        surely = self.predictable > 0.0 and attainable > _LEAST_PREDICTABLE
        return self._beyond_noise or r_squared < (_LOW * attainable if surely else _UNTOLD)

    @property
    def _beyond_noise(self) -> bool:
        """Whether the fit predicts no sums, and its TD errors are larger than noise can be.

        The variance due to noise is at most that of the sums. If TD errors suggest clearly more,
        they contain errors of the fit, and nothing tells whether a better fit exists.
        """
        if self.r_squared is None or self.attainable is None:
            return False
        return self.r_squared <= 0.0 and self.attainable < _HOPELESS

    @property
    def _counted(self) -> bool:
        """Whether observations are indices of states, whose transitions are counted."""
        return self.unvisited is not None

    @property
    def _overfits(self) -> bool:
        return self.overfit > (_OVERFIT if self._counted else _OVERFIT_DENSE)

    @property
    def _within_rank(self) -> list[float]:
        """Effective rows of the components within the rank of the fit."""
        return [rows for rows in self.effective_rows if rows > 0.0]
