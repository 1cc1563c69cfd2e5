"""What figures share: colours, files, settings that are left alone."""

import itertools
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from PIL import Image

from rlreps import plotting
from rlreps.envs.arenas import load_arena
from rlreps.errors import InputError
from rlreps.plotting.style import series_style


def lab_from_srgb(colours: np.ndarray) -> np.ndarray:
    """CIELAB (D65) of sRGB colours [m, 3], the forward formulas of CIE 15 and IEC 61966-2-1."""
    linear = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array(
        [
            [0.4124564, 0.3575761, 0.1804375],
            [0.2126729, 0.7151522, 0.0721750],
            [0.0193339, 0.1191920, 0.9503041],
        ]
    )
    ratios = linear @ to_xyz.T / np.array([0.95047, 1.0, 1.08883])
    levels = np.where(ratios > (6 / 29) ** 3, np.cbrt(ratios), ratios * (29 / 6) ** 2 / 3 + 4 / 29)
    x, y, z = levels.T
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=1)


class TestColours:
    def test_equal_steps_of_the_signed_map_are_equal_colour_differences(self):
        colours = plotting.signed_colormap()(np.arange(257))[:, :3]
        steps = np.linalg.norm(np.diff(lab_from_srgb(colours), axis=0), axis=1)
        assert steps.max() / steps.min() < 1.05

    def test_lightness_of_the_signed_map_is_mirrored_and_rises_towards_zero(self):
        lightness = lab_from_srgb(plotting.signed_colormap()(np.arange(257))[:, :3])[:, 0]
        np.testing.assert_allclose(lightness, lightness[::-1], atol=0.1)
        assert (np.diff(lightness[:129]) > 0).all()
        assert lightness[128] - lightness[0] > 60

    def test_neighbouring_series_differ_in_colour_marker_and_dash_and_none_repeat(self):
        looks = [series_style(index) for index in range(280)]
        assert len({tuple(map(str, look.values())) for look in looks}) == 280
        for one, other in itertools.pairwise(looks):
            assert all(one[key] != other[key] for key in ("color", "marker", "linestyle"))


class TestFiles:
    @pytest.fixture
    def figure(self):
        return plotting.plot_spectrum([2.0, 1.0], 6.0)

    def test_a_png_has_200_dots_per_inch(self, figure, tmp_path):
        path = plotting.save_figure(figure, tmp_path / "new folder" / "spectrum.png")
        with Image.open(path) as image:
            assert image.format == "PNG"
            np.testing.assert_allclose(image.info["dpi"], 200, rtol=1e-3)
            np.testing.assert_allclose(image.size, figure.get_size_inches() * 200, atol=1)

    @pytest.mark.parametrize(
        ("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".PDF", b"%PDF")]
    )
    def test_the_suffix_chooses_the_format_and_the_same_arrays_give_the_same_bytes(
        self, tmp_path, suffix, start
    ):
        first, second = (
            plotting.save_figure(
                plotting.plot_spectrum([2.0, 1.0], 6.0), tmp_path / f"{number}{suffix}"
            ).read_bytes()
            for number in range(2)
        )
        assert first == second
        assert first.startswith(start)


@pytest.mark.parametrize("axis", ["x", "y"])
def test_an_axis_without_a_label_is_found_whatever_test_draws_it(tmp_path, axis):
    lines = [plotting.Line(label="a", x=[1, 2], mean=[3, 4])]
    labels = {"x_label": "update", "y_label": "loss", f"{axis}_label": ""}
    figure = plotting.plot_panels([plotting.Panel(title="", lines=lines)], **labels)
    with pytest.raises(AssertionError, match=f"{axis} of axes 0"):
        plotting.save_figure(figure, tmp_path / "bare.png")


def test_figures_leave_the_settings_of_matplotlib_as_they_were(tmp_path):
    before = dict(matplotlib.rcParams)
    figure = plotting.plot_environment(load_arena("sutton"))
    plotting.save_figure(figure, tmp_path / "arena.svg")
    with pytest.raises(InputError):
        plotting.plot_components({}, bins=2)
    assert dict(matplotlib.rcParams) == before


def test_the_package_loads_without_matplotlib_and_figures_without_pyplot():
    script = (
        "import sys, rlreps\n"
        "assert 'matplotlib' not in sys.modules\n"
        "rlreps.plotting.plot_spectrum([1.0], 1.0)\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


@pytest.mark.parametrize(("suffix", "name"), [("png", r"$\frac$"), ("svg", "$a$")])
def test_names_with_dollars_are_drawn_as_they_are(suffix, name):
    lines = [plotting.Line(label=name, x=[1, 2], mean=[3, 40])]
    labels = {"x_label": name, "y_label": name, "note": name, "x_ticks": {1: name, 2: "b"}}
    figures = [
        plotting.plot_panels([plotting.Panel(title=name, lines=lines)], **labels),
        plotting.plot_components({name: np.ones((4, 1))}, bins=2, labels=[name]),
        plotting.plot_reconstructions({name: np.ones((1, 2, 2))}, notes={name: name}),
        plotting.plot_improvements({name: (0.5, 0.4, 0.6)}, baseline=name),
    ]
    for figure in figures:
        drawn = plotting.figure_bytes(figure, image_format=suffix)
        assert suffix != "svg" or f">{name}<".encode() in drawn
