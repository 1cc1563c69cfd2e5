"""What figures share: colours, files, settings that are left alone."""

import itertools

import numpy as np
import pytest

from rlreps import plotting
from rlreps.plotting.style import series_style


def test_neighbouring_series_differ_in_colour_marker_and_dash_and_none_repeat():
    looks = [series_style(index) for index in range(280)]
    assert len({tuple(map(str, look.values())) for look in looks}) == 280
    for one, other in itertools.pairwise(looks):
        assert all(one[key] != other[key] for key in ("color", "marker", "linestyle"))


@pytest.mark.parametrize(
    ("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".PDF", b"%PDF")]
)
def test_the_suffix_chooses_the_format_and_the_same_arrays_give_the_same_bytes(
    tmp_path, suffix, start
):
    first, second = (
        plotting.save_figure(
            plotting.plot_spectrum([2.0, 1.0], 6.0), tmp_path / "new" / f"{number}{suffix}"
        ).read_bytes()
        for number in range(2)
    )
    assert first == second
    assert first.startswith(start)


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
