"""Maps: what is drawn where, in which colour, between which limits."""

import functools
import re

import jax
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.quiver import Quiver
from matplotlib.transforms import Affine2D

from rlreps.envs import PuddleWorld, load_arena
from rlreps.envs.geometry import Capsule, ConvexPolygon, Disc
from rlreps.errors import InputError
from rlreps.plotting import (
    plot_components,
    plot_coverage,
    plot_environment,
    plot_extremes,
    plot_policy_and_value,
    plot_slices,
    signed_colormap,
)
from rlreps.plotting.images import as_frames
from rlreps.plotting.puddle_world import ACTIONS, outline
from rlreps.plotting.style import MISSING, OKABE_ITO
from rlreps.successor.measure.grids import BoxGrid

HALF = 1.5 / 255  # Colours are stored as whole numbers of 255ths.
SUTTON = load_arena("sutton")


@functools.lru_cache(maxsize=4)
def rendered(figure: Figure) -> np.ndarray:
    """The figure's pixels [height, width, 4]; every figure is drawn once."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


def colour_at(figure: Figure, axes: Axes, x: float, y: float) -> np.ndarray:
    """The colour [3] of the rendered figure at the point (x, y) of `axes`."""
    pixels = rendered(figure)
    column, up = axes.transData.transform((x, y))
    return pixels[pixels.shape[0] - 1 - int(up), int(column), :3] / 255


def texts(figure: Figure) -> str:
    """All that is written in the figure."""
    found = figure.findobj(lambda artist: hasattr(artist, "get_text"))
    return "\n".join(artist.get_text() for artist in found)


def maps_of(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes if axes.images]


class TestComponents:
    def test_values_have_their_colours_in_their_cells_and_missing_ones_are_grey(self):
        values = np.array([-3.0, 0.0, 1.5, np.nan, 2.0, -1.0, 3.0, 0.5, -2.0])
        figure = plot_components({"truth": np.stack([values, np.zeros(9)], axis=1)}, bins=3)
        first, second = maps_of(figure)
        assert first.images[0].get_clim() == (-3.0, 3.0)
        for cell, value in enumerate(values):
            row, column = divmod(cell, 3)
            x, y = (column + 0.5) / 3, (row + 0.5) / 3
            wanted = signed_colormap()((value + 3.0) / 6.0)[:3]
            wanted = to_rgb(MISSING) if np.isnan(value) else wanted
            assert np.allclose(colour_at(figure, first, x, y), wanted, atol=HALF)
            # A component of zeros is drawn at the centre of the map.
            centre = signed_colormap()(0.5)[:3]
            assert np.allclose(colour_at(figure, second, x, y), centre, atol=HALF)

    def test_sets_share_symmetric_limits_and_names_titles_and_cosines_are_written(self):
        truth, learned = np.random.default_rng(0).normal(size=(2, 9, 3))
        learned[:, 1] *= 7
        figure = plot_components(
            {"ground truth": truth, "large batch": learned},
            bins=3,
            environment=SUTTON,
            cosines={"large batch": np.array([-0.9876, 0.5, 0.1])},
        )
        limits = np.array([axes.images[0].get_clim() for axes in maps_of(figure)]).reshape(2, 3, 2)
        largest = np.maximum(np.abs(truth).max(axis=0), np.abs(learned).max(axis=0))
        for row in limits:
            np.testing.assert_allclose(row, np.stack([-largest, largest], axis=1))
        puddles = [len(axes.patches) for axes in maps_of(figure)]
        assert puddles == [len(SUTTON.puddles)] * 6
        assert "|cos| 0.988" in texts(figure)

    def test_any_box_grid_has_its_extent_names_and_cells(self):
        grid = BoxGrid((-1.2, -0.07), (0.6, 0.07), (4, 3), ("position (m)", "velocity (m/step)"))
        values = np.arange(11.0)[:, None] * np.ones(8) - 5.0
        figure = plot_components({"ground truth": values}, grid=grid, cells=np.arange(1, 12))
        first = maps_of(figure)[0]
        shown = np.asarray(first.images[0].get_array().filled(np.nan))
        np.testing.assert_array_equal(shown.ravel(), [np.nan, *values[:, 0]])
        assert first.images[0].get_extent() == [-1.2, 0.6, -0.07, 0.07]
        for text in ("position (m)", "velocity (m/step)", "\u22121.2", "0.07"):
            assert text in texts(figure)

    def test_a_grid_of_one_axis_is_drawn_as_lines_and_of_three_as_means(self):
        line = plot_components({"a": np.eye(5)[:, :2]}, grid=BoxGrid((0,), (9,), (5,), ("depth",)))
        drawn = line.axes[0].lines[0].get_xydata()
        np.testing.assert_allclose(drawn, np.stack([[0.9, 2.7, 4.5, 6.3, 8.1], np.eye(5)[0]], 1))
        values = np.random.default_rng(0).normal(size=(2 * 3 * 4, 1))
        cube = plot_components({"a": values}, grid=BoxGrid((0,) * 3, (1,) * 3, (2, 3, 4)))
        shown = np.asarray(maps_of(cube)[0].images[0].get_array())
        np.testing.assert_allclose(shown, values.reshape(4, 3, 2).mean(axis=0))

    def test_coordinates_put_states_in_cells_that_show_means(self):
        coordinates = np.array([[0.0, 5.0], [1.0, 5.0], [3.0, 7.0], [3.0, 7.0], [2.0, 5.0]])
        figure = plot_components({"a": np.arange(5.0)[:, None]}, coordinates=coordinates)
        (image,) = maps_of(figure)[0].images
        wanted = [[0.0, 1.0, 4.0, np.nan], [np.nan] * 3 + [2.5]]
        np.testing.assert_array_equal(image.get_array().filled(np.nan), wanted)
        assert image.get_extent() == [-0.5, 3.5, 4.0, 8.0]
        with pytest.raises(InputError, match="bins, grid or coordinates"):
            plot_components({"a": np.zeros((5, 1))}, coordinates=coordinates, bins=2)


def test_coverage_counts_points_and_leaves_empty_cells_grey():
    points = np.repeat([[0.0, 1.0], [2.0, 1.0], [4.0, 3.0]], [1, 10, 100], axis=0)
    figure = plot_coverage(points, names=("x", "speed"))
    axes, _ = figure.axes
    visits = axes.images[0].get_array().filled(0)
    np.testing.assert_array_equal(visits, [[1, 10, 0], [0, 0, 100]])
    assert np.allclose(colour_at(figure, axes, 4.0, 1.0), to_rgb(MISSING), atol=HALF)
    assert {"x", "speed"} <= {*texts(figure).splitlines()}
    with pytest.raises(InputError, match=r"points \[n\] or \[n, 2\], got \(4, 3\)"):
        plot_coverage(np.zeros((4, 3)))


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.float32])
def test_coverage_of_whole_numbers_has_a_bar_on_each(kind):
    states = np.repeat([3, 6, 13], [1, 2, 4]).astype(kind)
    bars = plot_coverage(states).axes[0].patches
    assert [(bar.get_x() + bar.get_width() / 2, bar.get_height()) for bar in bars] == [
        (state, np.count_nonzero(states == state)) for state in range(3, 14)
    ]
    plane = np.column_stack([states, 10 * states])
    visits = plot_coverage(plane).axes[0].images[0].get_array().filled(0)
    assert visits.shape == (11, 11)
    np.testing.assert_array_equal(np.diagonal(visits), [bar.get_height() for bar in bars])


def test_bars_of_many_indices_hold_as_many_of_them():
    assert [bar.get_width() for bar in plot_coverage(np.array([0, 2, 4])).axes[0].patches] == [
        1
    ] * 5
    states = 3_000_000 + np.array([0, 79, 79, 129, 524, 800])
    bars = plot_coverage(states).axes[0].patches
    assert len(bars) == 267
    for bar in bars:
        inside = (bar.get_x() < states) & (states < bar.get_x() + bar.get_width())
        assert (bar.get_width(), bar.get_height()) == (3, np.count_nonzero(inside))
    assert sum(bar.get_height() for bar in bars) == len(states)


class TestEnvironment:
    def test_the_shade_is_that_of_the_product_of_multipliers(self):
        figure = plot_environment(SUTTON)
        axes, bar = figure.axes
        for place, product in ((0.1, 0.1), 1.0), ((0.43, 0.43), 0.5), ((0.43, 0.73), 0.25):
            shade = product * np.ones(3) + (1 - product) * np.array(to_rgb(OKABE_ITO[0]))
            assert np.allclose(colour_at(figure, axes, *place), shade, atol=2 * HALF)
            above = colour_at(figure, bar, 0.5, min(product, 0.99))
            assert np.allclose(above, shade, atol=3 * HALF)

    @pytest.mark.parametrize(
        "shape",
        [
            Capsule((0.2, 0.7), (0.6, 0.35), 0.15),
            Disc((0.4, 0.6), 0.3),
            ConvexPolygon(((0.1, 0.2), (0.8, 0.3), (0.7, 0.9), (0.3, 0.7))),
        ],
    )
    def test_outlines_enclose_the_points_at_positive_depth(self, shape):
        points = np.random.default_rng(1).uniform(size=(400, 2)).astype(np.float32)
        depth = np.asarray(jax.jit(jax.vmap(shape.depth))(points))
        # Matplotlib flattens curves to within a fraction of a pixel: make the square 10^4 pixels.
        scale = Affine2D().scale(1e4)
        inside = outline(shape).transformed(scale).contains_points(scale.transform(points))
        np.testing.assert_array_equal(inside, depth > 0)
        assert inside.any()
        assert not inside.all()


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
    def test_each_cell_has_its_largest_value_the_colour_of_its_action_and_an_arrow(self):
        values, preferred = quarters()
        values[0, 1] = np.nan
        figure = plot_policy_and_value(PuddleWorld(), values)
        (image,) = figure.axes[0].images
        legend = figure.legends[0]
        assert [text.get_text() for text in legend.get_texts()] == list(ACTIONS)
        colours = [patch.get_facecolor()[:3] for patch in legend.get_patches()]
        for cell, action in enumerate(preferred):
            best = 10 * X[cell] + Y[cell]
            wanted = image.cmap(image.norm(best))[:3], colours[action]
            if cell == 0:  # A cell without values is grey on both maps.
                wanted = to_rgb(MISSING), to_rgb(MISSING)
            for axes, colour in zip(figure.axes, wanted, strict=False):
                # Off the cell's middle, where no line is drawn.
                found = colour_at(figure, axes, X[cell] + 0.1, Y[cell] + 0.1)
                np.testing.assert_allclose(found, colour, atol=0.01)
        # Arrows point where the environment moves, and there is none without values.
        (arrows,) = [part for part in figure.axes[1].collections if isinstance(part, Quiver)]
        assert len(arrows.U) == BINS**2 - 1
        start = np.asarray(arrows.get_offsets(), np.float32)
        cells = (start[:, 1] * BINS).astype(int) * BINS + (start[:, 0] * BINS).astype(int)
        move = jax.jit(jax.vmap(PuddleWorld(noise=0.0).move))
        end = move(start, preferred[cells], np.zeros_like(start))
        moved = np.stack([arrows.U, arrows.V], axis=1)
        np.testing.assert_allclose(moved, np.asarray(end - start) / 0.05, atol=1e-5)


def test_cells_inside_walls_are_grey_and_the_others_have_their_states_values():
    # The walls of two_room hold four of the five cells of the middle column.
    world, inside = load_arena("two_room"), [2, 7, 17, 22]
    truth = np.linalg.qr(np.random.default_rng(0).standard_normal((21, 3)))[0]
    figure = plot_components({"truth": truth}, bins=5, environment=world)
    for column, axes in enumerate(maps_of(figure)[:3]):
        shown = np.ma.masked_invalid(axes.images[0].get_array()).ravel()
        np.testing.assert_array_equal(np.flatnonzero(np.ma.getmaskarray(shown)), inside)
        np.testing.assert_allclose(shown.compressed(), truth[:, column], atol=1e-12)
        assert np.allclose(colour_at(figure, axes, 0.5, 0.9), to_rgb(MISSING), atol=HALF)
    with pytest.raises(InputError, match=r"'truth' to be \[25, k\].*got \(21, 3\)"):
        plot_components({"truth": truth}, bins=5, environment=SUTTON)


def test_slices_are_maps_over_a_place_for_each_value_of_the_other_coordinates():
    grid = BoxGrid((-0.5,) * 3, (2.5, 1.5, 1.5), (3, 2, 2), ("x", "y", "door"))
    cells = np.array([0, 1, 1, 6, 8, 8])
    values = np.arange(6.0)[:, None] + 1.0
    figure = plot_slices({"truth": values}, grid=grid, cells=cells, values={"door": ["", "open"]})
    closed, opened = (axes.images[0].get_array() for axes in figure.axes[:2])
    # States 1 and 2 share a place; the others of the six are not reached.
    np.testing.assert_array_equal(np.ma.filled(closed, 0.0), [[1.0, 2.5, 0.0], [0.0] * 3])
    np.testing.assert_array_equal(np.ma.filled(opened, 0.0), [[4.0, 0.0, 5.5], [0.0] * 3])
    assert [axes.get_ylabel() for axes in figure.axes[:2]] == ["", "open"]
    means = "cells show means over their states, and ± the largest mean"
    assert figure.get_suptitle() == means
    one = plot_slices({"truth": values}, grid=grid, cells=cells, most=1)
    assert len(maps_of(one)) == 1
    assert one.get_suptitle() == f"1 of 2 slices, 3 of 6 states; {means}"
    alone = plot_slices({"truth": values[[0, 1, 3, 4]]}, grid=grid, cells=cells[[0, 1, 3, 4]])
    assert alone.get_suptitle() == ""
    # Cosines stand below the first slice of their set, also if its name begins another's.
    sets = {"run-1": values, "run": values, "truth": values}
    matched = plot_slices(sets, grid=grid, cells=cells, cosines={"run-1": [0.25], "run": [0.75]})
    assert re.findall(r"\|cos\| ([\d.]+)", texts(matched)) == ["0.250", "0.750"]
    # The ends of a lattice may be rounded.
    near = BoxGrid((-2e-9, 0.0), (1.0, 1.0), (2, 1))
    assert "e\N{MINUS SIGN}" not in texts(plot_components({"truth": values[:2]}, grid=near))
    with pytest.raises(InputError, match="a grid of three coordinates or more"):
        plot_slices({"truth": values}, grid=BoxGrid((0,), (6,), (6,)), cells=np.arange(6))
    with pytest.raises(InputError, match=r"'truth' \[6, k\], got \(5, 1\)"):
        plot_slices({"truth": values[:5]}, grid=grid, cells=cells)


def test_the_frames_at_both_ends_of_each_component_are_drawn():
    frames = np.arange(6, dtype=np.uint8)[:, None, None, None] * np.ones((1, 2, 3, 1), np.uint8)
    components = np.array([[3.0, 0.0], [1, 1], [2, 5], [0, 4], [9, 3], [5, 2]])
    figure = plot_extremes(components, frames, each=2)
    # The top row of pixels is at the top.
    assert {axes.images[0].origin for axes in figure.axes} == {"upper"}
    shown = [int(axes.images[0].get_array()[0, 0]) for axes in figure.axes]
    assert shown == [3, 1, 5, 4, 0, 1, 3, 2]
    with pytest.raises(InputError, match=r"frames .n, height, width, 1 or 3., uint8"):
        plot_extremes(components, frames[..., 0])
    with pytest.raises(InputError, match="expected at least two frames, got 1"):
        plot_extremes(components[:1], frames[:1])


def test_what_an_encoder_sees_becomes_frames():
    pictures = np.arange(2 * 5 * 6 * 3, dtype=np.uint8).reshape(2, 5, 6, 3)
    np.testing.assert_array_equal(as_frames(pictures), pictures)
    np.testing.assert_array_equal(as_frames(pictures.transpose(0, 3, 1, 2)), pictures)
    # Codes and floats are stretched; channels may be missing.
    grey = as_frames(np.array([[[-1.0, 0.0], [1.0, 3.0]]], np.float32))
    np.testing.assert_array_equal(grey[0, :, :, 0], [[0, 64], [128, 255]])
    # Objects in a channel each: the last one present has its colour, and nothing is black.
    objects = np.zeros((1, 2, 2, 4), np.float32)
    objects[0, 0, 0, [0, 1]] = objects[0, 1, 1, 1] = 1.0
    shown = as_frames(objects)[0]
    assert [bool(shown[at].any()) for at in ((0, 0), (0, 1))] == [True, False]
    np.testing.assert_array_equal(shown[0, 0], shown[1, 1])
    np.testing.assert_array_equal(as_frames(objects[..., :3])[0], shown)  # Not red and green.
    # Of other channels, such as successive frames, the last one.
    stack = np.arange(2 * 5 * 6 * 4, dtype=np.uint8).reshape(2, 5, 6, 4)
    np.testing.assert_array_equal(as_frames(stack), stack[..., 3:])
    assert as_frames(np.ones((3, 7), np.float32)) is None
