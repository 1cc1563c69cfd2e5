"""Comparison of paper presets with the papers' protocols, field by field."""

import pytest

from rlreps.config import as_json
from rlreps.experiments import EXPERIMENTS
from rlreps.experiments.harness import Frame, Results, Run


def flat(value, prefix=""):
    """Return dotted path → value for every leaf; lists are leaves unless they hold mappings."""
    if isinstance(value, list) and any(isinstance(each, dict) for each in value):
        value = {str(index): each for index, each in enumerate(value)}
    if not isinstance(value, dict):
        return {prefix: value}
    return {
        path: leaf
        for name, each in value.items()
        for path, leaf in flat(each, f"{prefix}.{name}" if prefix else name).items()
    }


@pytest.fixture
def check_protocol():
    """Compare an experiment's paper preset with a protocol.

    Every field is either the paper's (with its value) or one that the paper is silent on. Those
    that differ from the paper are its deviations, no more and no less.
    """

    def check(name, paper, silent):
        experiment = EXPERIMENTS[name].load()
        found = flat(as_json(experiment.presets["paper"]))
        assert set(found) == set(paper) | set(silent)
        assert not set(paper) & set(silent)
        differing = {path for path, value in paper.items() if found[path] != value}
        assert differing == set(experiment.deviations) & set(found)
        assert all(len(reason) > 20 for reason in experiment.deviations.values())

    return check


@pytest.fixture
def results_of():
    """Make results of an experiment of rows that no run measured."""

    def made(experiment, config, rows):
        frame = rows if isinstance(rows, Frame) else Frame.of(rows)
        how = experiment.value, experiment.unit, experiment.fewest
        return Results(Run(config, None), {}, {"": frame}, *how)

    return made


@pytest.fixture
def judge(results_of):
    """Judge the claims of an experiment by rows that no run measured."""
    return lambda experiment, *given: experiment.judged(results_of(experiment, *given))
