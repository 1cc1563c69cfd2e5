import dataclasses
import json
import re

import numpy as np
import pytest

from rlreps.agents import AgentConfig
from rlreps.errors import InputError
from rlreps.experiments.ours.agent_arms import ArmRuns
from rlreps.experiments.ours.agent_control import run as run_module
from rlreps.experiments.ours.agent_control.config import PRESETS, AgentControlConfig, Bar
from rlreps.experiments.ours.agent_control.report import bar_claims
from rlreps.experiments.ours.agent_control.run import run_agent_control
from rlreps.runs.folder import RunFolder

SMOKE = PRESETS["smoke"]
(CARTPOLE,) = SMOKE.environments
SHORT = dataclasses.replace(CARTPOLE.base, steps=480)
TWO = AgentControlConfig(
    environments=(
        dataclasses.replace(CARTPOLE, base=SHORT),
        dataclasses.replace(
            CARTPOLE,
            base=dataclasses.replace(SHORT, environment="MountainCar-v0"),
            threshold=-110.0,
        ),
    )
)
FIGURES = [
    "dormant_share",
    "effective_rank",
    "improvement",
    "probe_error",
    "returns_CartPole-v1",
    "returns_MountainCar-v0",
]


@pytest.fixture(scope="module")
def finished(compilation_cache, tmp_path_factory):
    out = tmp_path_factory.mktemp("agent_control") / "run"
    return out, run_agent_control(TWO, out, progress=False)


def test_the_summary_tells_every_environment_and_arm(finished):
    out, summary = finished
    assert json.loads((out / "summary.json").read_text(), parse_constant=pytest.fail) == summary
    names = [each["environment"] for each in summary["comparisons"]]
    assert names == ["CartPole-v1", "MountainCar-v0"]
    for comparison in summary["comparisons"]:
        assert [arm["arm"] for arm in comparison["arms"]] == ["no auxiliary task", "large batch"]
        for arm in comparison["arms"]:
            home = out / "runs" / comparison["environment"] / arm["arm"].replace(" ", "-")
            records = RunFolder(home).read_metrics()
            assert [record["step"] for record in records] == [0, 240, 480]
            assert arm["final_returns"] == records[-1]["returns"]
    assert list(summary["overall"]) == ["large batch"]
    assert [claim["holds"] for claim in summary["claims"]] == [None, None]


def test_there_is_a_figure_of_returns_for_each_environment_with_its_numbers(finished):
    out, _ = finished
    assert sorted(file.stem for file in (out / "figures").iterdir()) == FIGURES
    for name in FIGURES:
        assert json.loads((out / "results" / f"{name}.json").read_text())
    rows = json.loads((out / "results" / "improvement.json").read_text())
    assert [row["arm"] for row in rows] == [
        "large batch, CartPole-v1",
        "large batch, MountainCar-v0",
        "large batch, all environments",
    ]
    assert rows[2]["value"] == pytest.approx((rows[0]["value"] + rows[1]["value"]) / 2)


def test_the_report_needs_nothing_but_itself(finished):
    out, _ = finished
    page = (out / "report.html").read_text(encoding="utf-8")
    assert len(re.findall(r'src="data:image/png;base64,', page)) == len(FIGURES)
    assert not re.search(r'(href|src)="(https?:|//|\./|/)', page)


def test_a_finished_run_does_nothing_when_it_is_started_again(finished, monkeypatch, files_below):
    out, summary = finished
    before = files_below(out)
    for name in ("run_arms", "describe", "write_control_report"):
        monkeypatch.setattr(run_module, name, None)
    assert run_agent_control(TWO, out, progress=False) == summary
    assert files_below(out) == before


def test_another_configuration_is_refused_in_the_same_folder(finished, files_below):
    out, _ = finished
    before = files_below(out)
    with pytest.raises(InputError, match=r"holds another run: expected bar\.share=0\.9, got 0\.5"):
        run_agent_control(dataclasses.replace(TWO, bar=Bar(share=0.5)), out, progress=False)
    assert files_below(out) == before


def test_an_environment_that_cannot_be_made_is_refused_before_the_first_is_learned(tmp_path):
    unknown = dataclasses.replace(
        CARTPOLE, base=dataclasses.replace(SHORT, environment="NoSuchThing-v0")
    )
    config = AgentControlConfig(environments=(*TWO.environments, unknown))
    with pytest.raises(InputError, match="NoSuchThing"):
        run_agent_control(config, tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def plain(last, *, best=500.0, seeds=10, steps=100_000):
    """Agents that once were good and of which this many are still in the end."""
    returns = np.full((seeds, 5), best)
    returns[last:, -1] = 100.0
    return ArmRuns(
        label="none",
        config=AgentConfig(),
        folder=None,
        steps=np.linspace(0.0, steps, 5),
        returns=returns,
        measures={},
        seconds=1.0,
    )


@pytest.mark.parametrize(
    ("runs", "reached", "stayed"),
    [
        (plain(10), True, True),
        (plain(9), True, True),
        (plain(8), True, False),
        (plain(8, best=300.0), False, False),
        (plain(9, seeds=9), None, None),
        (plain(10, steps=50_000), True, None),
        (plain(10, steps=50_000, best=300.0), None, None),
        # Within 100,000 of 200,000 steps all were good.
        (plain(0, steps=200_000), True, True),
    ],
)
def test_agents_are_judged_by_whether_they_reach_the_bar_and_whether_they_stay(
    runs, reached, stayed
):
    claims = bar_claims(Bar(), runs)
    assert [claim.holds for claim in claims] == [reached, stayed]
    count = len(runs.returns)
    assert all(f" of {count}" in claim.found for claim in claims)


@pytest.mark.parametrize(
    ("environments", "message"),
    [
        ((), "at least one environment"),
        ((CARTPOLE, CARTPOLE), "different environments"),
        (TWO.environments[1:], "CartPole-v1, of the sanity bar"),
    ],
)
def test_what_makes_no_sense_is_refused(environments, message):
    with pytest.raises(InputError, match=message):
        AgentControlConfig(environments=environments)
