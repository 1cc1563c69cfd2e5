"""Which pictures a ground truth has."""

import json
import re

import numpy as np
import pytest

from rlreps import plotting
from rlreps.app.generation import generate
from rlreps.app.plots import _telling_places, draw_components, plot_learned_components
from rlreps.errors import InputError
from rlreps.explore.build import explore
from rlreps.successor import BoxGrid, MonteCarlo, load, save_matrix
from rlreps.successor.measure.rows import RowEstimates


def sampled(path, observations, seed=0):
    """Return a truth whose first components depend on the second and the fourth number alone."""
    generator = np.random.default_rng(seed)
    _, *inner = observations.T
    first, second = inner[0], inner[2]
    columns = [np.sin(2.0 * first + phase) * np.cos(2.0 * second) for phase in (0.0, 1.0, 2.0)]
    rows = np.stack(columns, axis=1) @ generator.normal(size=(3, 12))
    half = 1e-3 * generator.normal(size=rows.shape)
    estimates = RowEstimates(rows.astype(np.float32), half.astype(np.float32))
    save_matrix(path, estimates, observations=observations)
    return load(path)


def test_states_without_places_lie_over_the_two_numbers_that_explain_their_components(tmp_path):
    generator = np.random.default_rng(0)
    observations = generator.uniform(-1.0, 1.0, (400, 5)).astype(np.float32)
    truth = sampled(tmp_path, observations)
    figure = plot_learned_components(truth, {}, 2)
    texts = [figure.get_supxlabel(), figure.get_supylabel()]
    assert texts == ["number 2 of the observation", "number 4 of the observation"]
    shown = np.asarray(figure.axes[0].images[0].get_array())
    assert shown.shape == (10, 10)
    # The mean over a cell of the component, by NumPy's own histogram.
    ends = observations[:, [3, 1]]
    edges = []
    for values in ends.astype(np.float64).T:
        # A cell holds the same whole number of the smallest gaps between values.
        gap = np.diff(np.unique(values)).min()
        gap = np.ptp(values) / np.rint(np.ptp(values) / gap)
        width = gap * np.ceil((1 + np.rint(np.ptp(values) / gap)) / 10)
        edges.append(values.min() - gap / 2 + width * np.arange(11))
    component = np.asarray(truth.principal.basis)[:, 0]
    sums, *_ = np.histogram2d(*ends.T, bins=edges, weights=component)
    counts, *_ = np.histogram2d(*ends.T, bins=edges)
    np.testing.assert_allclose(shown[counts > 0], sums[counts > 0] / counts[counts > 0], atol=1e-6)


@pytest.mark.parametrize("numbers", [1, 31])
def test_states_are_drawn_in_their_order_where_no_two_numbers_place_them(tmp_path, numbers):
    if numbers == 1:
        observations = np.eye(30, 5, dtype=np.float32)
        observations[:, 1] = np.arange(30)
    else:
        observations = np.random.default_rng(0).normal(size=(30, numbers)).astype(np.float32)
    figure = plot_learned_components(sampled(tmp_path, observations), {}, 2)
    assert figure.get_supxlabel() == "state"


def test_numbers_of_few_values_are_not_passed_over_for_finer_ones():
    generator = np.random.default_rng(0)
    chosen = 0
    for _ in range(8):
        coarse = generator.integers(3, size=(400, 2))
        noise = generator.normal(size=(400, 3))
        component = coarse[:, 0] * coarse[:, 1] + 1.5 * generator.normal(size=400)
        component -= component.mean()
        observations = np.column_stack([noise, coarse]).astype(np.float32)
        columns = (component / np.linalg.norm(component))[:, None]
        grid, _ = _telling_places(observations, columns)
        chosen += grid.names == ("number 4 of the observation", "number 5 of the observation")
    assert chosen >= 7


@pytest.mark.integration
def test_runs_on_another_matrix_are_named_so(rlreps, toy_store, tmp_path, monkeypatch):
    drawn = list[str]()
    save = plotting.save_figure

    def read(figure, out):
        drawn.extend(axes.get_ylabel().replace("\n", " ") for axes in figure.axes)
        return save(figure, out)

    monkeypatch.setattr(plotting, "save_figure", read)
    for encoder in ("mlp", "tabular"):
        options = f"--encoder {encoder} --num-features 3 --steps 2 --rows 8 --evaluate-every 2"
        rlreps("train", toy_store, "--out", tmp_path / encoder, *options.split(), "--quiet")
    other = tmp_path / "other"
    generate(MonteCarlo(bins=8, rollouts=20, horizon=20, discount=0.9, seed=1), other)
    figure, page, runs = tmp_path / "maps.png", tmp_path / "page.html", [tmp_path / "mlp"]
    for store, label in ((toy_store, "mlp"), (other, "mlp (trained on another matrix)")):
        draw_components(store, figure, tuple(runs), d=2)
        explore([store, *runs], page, components=2)
        found = re.search(r'id="described">(.*?)</script>', page.read_text("utf-8"), re.S)
        assert [run["label"] for run in json.loads(found[1])["runs"]] == [label]
        assert [name for name in drawn if "mlp" in name] == [label]
        drawn.clear()
    draw_components(other, figure, (tmp_path / "tabular",), d=2)
    save_matrix(tmp_path / "states", np.eye(64, dtype=np.float32), BoxGrid.unit_square(8))
    with pytest.raises(InputError, match=r"the states on which .*tabular.* was trained"):
        draw_components(tmp_path / "states", figure, (tmp_path / "tabular",), d=2)
