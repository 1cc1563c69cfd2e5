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


class TestColours:
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


def test_figures_leave_the_settings_of_matplotlib_as_they_were(tmp_path):
    before = dict(matplotlib.rcParams)
    figure = plotting.plot_environment(load_arena("sutton"))
    plotting.save_figure(figure, tmp_path / "arena.svg")
    with pytest.raises(InputError):
        plotting.plot_components({}, bins=2)
    assert dict(matplotlib.rcParams) == before


@pytest.mark.integration
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
    ]
    for figure in figures:
        drawn = plotting.figure_bytes(figure, image_format=suffix)
        assert suffix != "svg" or f">{name}<".encode() in drawn
