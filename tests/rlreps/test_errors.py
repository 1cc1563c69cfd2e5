"""Tests of what errors and warnings say."""

import warnings

import pytest

from rlreps.errors import recorded_warnings, warn_user


def test_recorded_warnings_keeps_those_of_fits_and_gives_the_others():
    def fit():
        with recorded_warnings() as said:
            warn_user("few rows")
            warnings.warn("overflow", RuntimeWarning, stacklevel=1)
            warn_user("few rows")
        return said

    with pytest.warns(RuntimeWarning, match="^overflow$"):
        said = fit()
    assert said == ["few rows", "few rows"]
