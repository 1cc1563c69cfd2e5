"""Maps of what an agent has learned: orientation, colours, arrows, components."""

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.patches import PathPatch
from matplotlib.quiver import Quiver

from rlreps.envs import PuddleWorld, load_arena
from rlreps.errors import InputError
from rlreps.plotting.policies import ACTIONS, plot_policy_and_value, plot_torso_components
from rlreps.plotting.style import MISSING


def colour_at(figure, axes, x, y):
    """The colour [3] of the rendered figure at the point (x, y) of `axes`."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())
    column, up = axes.transData.transform((x, y))
    return pixels[pixels.shape[0] - 1 - int(up), int(column), :3] / 255


def texts(figure):
    found = figure.findobj(lambda artist: hasattr(artist, "get_text"))
    return [artist.get_text() for artist in found]


BINS = 4
CENTRES = (np.arange(BINS) + 0.5) / BINS
Y, X = (part.ravel() for part in np.meshgrid(CENTRES, CENTRES, indexing="ij"))


def quarters():
    """Q [BINS², 4]: each quarter of the square prefers one action; and the preferred ones [n]."""
    preferred = np.select([(X < 0.5) & (Y < 0.5), X < 0.5, Y < 0.5], [0, 1, 3], default=2)
    values = np.full((BINS**2, 4), -50.0)
    values[np.arange(BINS**2), preferred] = 10.0 * X + Y
    return values, preferred


class TestPolicyAndValue:
    def test_the_first_map_shows_the_largest_value_of_each_cell_in_its_place(self):
        values, _ = quarters()
        figure = plot_policy_and_value(PuddleWorld(), values)
        (image,) = figure.axes[0].images
        shown = np.asarray(image.get_array())
        for row, y in enumerate(CENTRES):
            for column, x in enumerate(CENTRES):
                assert shown[row, column] == pytest.approx(10 * x + y)
                expected = image.cmap(image.norm(10 * x + y))[:3]
                # Off the cell's middle, where no line is drawn.
                found = colour_at(figure, figure.axes[0], x + 0.05, y + 0.05)
                np.testing.assert_allclose(found, expected, atol=0.02)
        assert image.cmap.name == "viridis"
        assert "discounted return" in texts(figure)

    def test_every_cell_has_the_colour_that_the_legend_gives_its_action(self):
        values, preferred = quarters()
        figure = plot_policy_and_value(PuddleWorld(), values)
        legend = figure.legends[0]
        names = [text.get_text() for text in legend.get_texts()]
        assert names == list(ACTIONS) == ["up", "right", "down", "left"]
        colours = [patch.get_facecolor()[:3] for patch in legend.get_patches()]
        assert len({tuple(colour) for colour in colours}) == 4
        for cell, action in enumerate(preferred):
            found = colour_at(figure, figure.axes[1], X[cell] + 0.1, Y[cell] + 0.1)
            np.testing.assert_allclose(found, colours[action], atol=0.01)

    def test_arrows_point_where_the_environment_moves(self):
        values, preferred = quarters()
        figure = plot_policy_and_value(PuddleWorld(), values)
        (arrows,) = [part for part in figure.axes[1].collections if isinstance(part, Quiver)]
        environment = PuddleWorld(noise=0.0)
        for (x, y), u, v in zip(arrows.get_offsets(), arrows.U, arrows.V, strict=True):
            cell = int(y * BINS) * BINS + int(x * BINS)
            start = np.array([x, y], np.float32)
            end = environment.move(start, preferred[cell], np.zeros(2, np.float32))
            np.testing.assert_allclose([u, v], np.asarray(end - start) / 0.05, atol=1e-5)
        assert len(arrows.U) == BINS**2

    @pytest.mark.parametrize("bins", [13, 14, 50])
    def test_there_are_no_more_arrows_than_can_be_read_and_all_lie_inside(self, bins):
        figure = plot_policy_and_value(PuddleWorld(), np.zeros((bins**2, 4)))
        (arrows,) = [part for part in figure.axes[1].collections if isinstance(part, Quiver)]
        assert 36 <= len(arrows.U) <= 169
        assert np.all((arrows.get_offsets() > 0.02) & (arrows.get_offsets() < 0.98))

    def test_cells_without_values_are_grey_and_without_an_arrow(self):
        values, _ = quarters()
        values[0, 1] = np.nan
        figure = plot_policy_and_value(PuddleWorld(), values)
        for axes in figure.axes[:2]:
            found = colour_at(figure, axes, 0.125, 0.125)
            np.testing.assert_allclose(found, to_rgb(MISSING), atol=0.01)
        (arrows,) = [part for part in figure.axes[1].collections if isinstance(part, Quiver)]
        assert len(arrows.U) == BINS**2 - 1

    def test_puddles_are_outlined_on_both_maps_and_a_goal_is_named_where_there_is_one(self):
        values, _ = quarters()
        for environment, goals in (
            (load_arena("sutton"), 0),
            (load_arena("sutton").with_task(), 1),
        ):
            figure = plot_policy_and_value(environment, values)
            for axes in figure.axes[:2]:
                assert len([part for part in axes.patches if isinstance(part, PathPatch)]) == 2
                assert len(axes.lines) == goals
            assert ("goal, x + y ≥ 1.9" in texts(figure)) == bool(goals)

    @pytest.mark.parametrize("shape", [(16,), (15, 4), (16, 3), (0, 4)])
    def test_other_shapes_are_refused(self, shape):
        with pytest.raises(InputError, match=r"expected .*, got"):
            plot_policy_and_value(PuddleWorld(), np.zeros(shape))


class TestTorsoComponents:
    def test_learned_components_take_the_sign_of_the_true_ones_and_their_limits(self):
        generator = np.random.default_rng(0)
        truth = np.linalg.qr(generator.standard_normal((16, 4)))[0]
        learned = np.stack([-3.0 * truth[:, 0], truth[:, 1] + truth[:, 2]], axis=1)
        figure = plot_torso_components(load_arena("sutton"), learned, truth)
        maps = [axes for axes in figure.axes if axes.images]
        assert len(maps) == 4
        shown = [np.asarray(axes.images[0].get_array()).ravel() for axes in maps]
        np.testing.assert_allclose(shown[0], truth[:, 0])
        np.testing.assert_allclose(shown[2], truth[:, 0], atol=1e-12)
        np.testing.assert_allclose(shown[3], (truth[:, 1] + truth[:, 2]) / np.sqrt(2))
        for above, below in ((0, 2), (1, 3)):
            limits = [maps[index].images[0].get_clim() for index in (above, below)]
            assert limits[0] == limits[1]
        written = texts(figure)
        assert "|cos| 1.000" in written
        assert "|cos| 0.707" in written

    @pytest.mark.parametrize(
        ("learned", "truth"),
        [((16, 3), (16, 2)), ((9, 2), (16, 2)), ((15, 2), (15, 2)), ((16,), (16, 1))],
    )
    def test_shapes_that_do_not_fit_are_refused(self, learned, truth):
        with pytest.raises(InputError, match=r"expected .*, got"):
            plot_torso_components(PuddleWorld(), np.ones(learned), np.ones(truth))
