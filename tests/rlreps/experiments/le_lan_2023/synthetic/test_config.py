"""The settings of the synthetic experiment's panels."""

import dataclasses
import itertools

import pytest

from rlreps.errors import InputError
from rlreps.experiments.le_lan_2023.synthetic.config import (
    PRESETS,
    ROLES,
    Setting,
    SyntheticConfig,
)
from rlreps.experiments.le_lan_2023.synthetic.run import _groups

EVERY_PRESET = pytest.mark.parametrize("config", PRESETS.values(), ids=PRESETS)


def leaves(panel):
    if isinstance(panel, Setting):
        return [panel]
    return [setting for part in panel.values() for setting in leaves(part)]


def panels(config, spectrum):
    return [
        config.panel_dimensions(spectrum),
        config.panel_rows(spectrum),
        config.panel_methods(spectrum),
        config.panel_kappa(spectrum),
    ]


@EVERY_PRESET
def test_every_setting_of_any_panel_is_there_once(config):
    settings = config.settings()
    shown = {
        setting
        for spectrum in config.spectra
        for panel in panels(config, spectrum)
        for setting in leaves(panel)
    }
    assert len(settings) == len(set(settings))
    assert set(settings) == shown


@EVERY_PRESET
def test_every_shape_is_one_program_with_all_of_its_settings(config):
    groups = _groups(config.settings())
    shapes = [{(each.method, each.num_features, each.rows) for each in group} for group in groups]
    assert all(len(shape) == 1 for shape in shapes)
    assert len(set.union(*shapes)) == len(groups)
    assert sorted(itertools.chain(*groups)) == sorted(config.settings())
    # Both spectra and every κ0 of a shape share its program.
    assert len(groups) < len(config.settings()) / 1.9


@EVERY_PRESET
def test_methods_are_compared_at_equal_rows_that_divide_into_their_roles(config):
    for spectrum in config.spectra:
        methods = config.panel_methods(spectrum)
        assert list(methods) == ["danskin_lissa", "danskin_empirical", "naive", "oracle"]
        for method, by_total in methods.items():
            assert tuple(by_total) == config.totals
            for total, setting in by_total.items():
                assert setting.method == method
                assert ROLES[method] * setting.rows == total
    assert (ROLES["danskin_lissa"], ROLES["danskin_empirical"], ROLES["naive"]) == (5, 5, 3)


def test_the_paper_preset_is_the_published_protocol():
    paper = PRESETS["paper"]
    assert (paper.num_states, paper.step_size, paper.kappa0) == (50, 0.001, 1.9)
    assert (paper.steps, paper.num_seeds) == (1_000_000, 30)
    assert paper.spectra == ("linear", "exponential")
    assert {1, 5, 10, 25} <= set(paper.dimensions)
    assert max(paper.dimensions) > 25
    assert (paper.dimension, paper.rows) == (10, 5)
    assert 1 in paper.rows_by_total
    assert min(paper.kappa_values) < 2.0 < max(paper.kappa_values)


def test_presets_differ_in_numbers_and_not_in_what_is_computed():
    for config in PRESETS.values():
        assert config.spectra == PRESETS["paper"].spectra
        for spectrum in config.spectra:
            methods = {setting.method for setting in leaves(config.panel_methods(spectrum))}
            assert methods == set(ROLES)
            kappas = {setting.kappa0 for setting in leaves(config.panel_kappa(spectrum))}
            assert min(kappas) < 2.0 < max(kappas)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"spectra": ("cubic",)}, "spectra"),
        ({"num_states": 0}, "num_states >= 1, got 0"),
        ({"rows": 0}, "rows >= 1, got 0"),
        ({"steps": 0}, "steps >= 1, got 0"),
        ({"num_seeds": 0}, "num_seeds >= 1, got 0"),
        ({"evaluate_every": 0}, "evaluate_every >= 1, got 0"),
        ({"checkpoint_every": 150}, r"multiple of evaluate_every \(100\), got 150"),
        ({"dimension": 50}, r"d in \[1, 49\], got 50"),
        ({"dimensions": (0, 1)}, r"d in \[1, 49\], got 0"),
        ({"kappa_dimensions": (10, 60)}, r"d in \[1, 49\], got 60"),
        ({"totals": (15, 20)}, "multiples of 15, got 20"),
        ({"totals": (0,)}, "multiples of 15, got 0"),
        ({"rows_by_total": (0, 5)}, r"rows_by_total of at least 1, got \(0, 5\)"),
        ({"kappa0": 0.0}, "a finite kappa0 > 0, got 0.0"),
        ({"kappa_values": (-1.0, 3.0)}, "a finite kappa0 > 0, got -1.0"),
        ({"kappa_values": (1.9, float("inf"))}, "a finite kappa0 > 0, got inf"),
        ({"kappa_values": (0.5, 1.9)}, "kappa_values on both sides of 2"),
        ({"kappa_values": (2.0, 3.0)}, "kappa_values on both sides of 2"),
        ({"step_size": 0.0}, "a finite step_size > 0, got 0.0"),
        ({"step_size": float("nan")}, "a finite step_size > 0, got nan"),
        ({"spectra": ()}, "at least one of spectra"),
        ({"dimensions": ()}, r"increasing dimensions, at least one, got \(\)"),
        ({"totals": (30, 15)}, r"increasing totals, at least one, got \(30, 15\)"),
        ({"rows_by_total": (5, 5)}, "increasing rows_by_total, at least one"),
    ],
)
def test_numbers_that_make_no_experiment_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(PRESETS["smoke"], **changes)


def test_a_configuration_cannot_be_changed_or_given_by_position():
    with pytest.raises(dataclasses.FrozenInstanceError):
        PRESETS["smoke"].steps = 1
    with pytest.raises(TypeError):
        SyntheticConfig(50)
