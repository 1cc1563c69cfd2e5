import csv
import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.encoders import FunctionEncoder
from rlreps.envs import BouncingBalls, BouncingBallsState
from rlreps.errors import InputError
from rlreps.experiments.pfau_2019 import bouncing_balls
from rlreps.experiments.pfau_2019.bouncing_balls import (
    PRESETS,
    Clips,
    Network,
    Spectra,
    explained,
    linear_slow_features,
    pixels,
    positions,
    velocities,
)
from rlreps.losses import Batch, Clip
from rlreps.training.population import Population

VIDEO = BouncingBalls(frame_size=16)
KEY = jax.random.key(3)
SMOKE = PRESETS["smoke"]
CORRELATIONS = np.asarray([0.98, 0.9, 0.7, 0.4, 0.0])
MIXING = np.random.default_rng(0).normal(size=(5, 5)).astype(np.float32)


def clips(frames=1, clip_frames=2, num_clips=None, as_positions=False):
    return Clips(VIDEO, frames, clip_frames, num_clips, jax.random.key(9), as_positions)


@pytest.fixture(scope="module")
def pairs():
    """Frames and the balls' centres of one key, by one program."""
    sources = clips(), clips(as_positions=True)
    draw = jax.jit(lambda key: [source.sample(key, 2000, 1) for source in sources])
    return draw(KEY)


def test_the_second_state_of_a_pair_is_the_first_one_frame_later(pairs):
    centres = np.concatenate(pairs[1].pair)
    moved = np.linalg.norm(centres[2000:] - centres[:2000], axis=2)
    # Where no ball touches a wall or another ball, the three move by the video's root mean square.
    inside = (centres > VIDEO.radius + 0.06) & (centres < 1.0 - VIDEO.radius - 0.06)
    gaps = np.linalg.norm(centres[:, :, None] - centres[:, None], axis=3) + 9.0 * np.eye(3)
    free = (inside.all(axis=(1, 2)) & (gaps.min(axis=(1, 2)) > 2.0 * VIDEO.radius + 0.11))[:2000]
    assert free.sum() > 20
    assert np.all(moved <= VIDEO.speed * 3**0.5 + 1e-6)
    assert np.all(moved.sum(axis=1) > 0.0)
    speeds = np.sqrt(np.mean(np.square(moved[free]), axis=1))
    np.testing.assert_allclose(speeds, VIDEO.speed, rtol=1e-4)
    # Pairs are unrelated: so are their centres of mass.
    means = centres[:2000].mean(axis=1)[:, 0]
    assert abs(np.corrcoef(means[:-1], means[1:])[0, 1]) < 0.1


def test_inputs_of_a_clip_are_consecutive_frames_each_a_frame_after_the_one_before():
    # Clips of five frames, two an input: inputs 01 12 23 34, once each.
    draw = jax.jit(lambda key: [clips(2, 5, 40, each).sample(key, 6, 1) for each in (False, True)])
    frames, centres = (np.asarray(batch.inputs.joined()) for batch in draw(KEY))
    assert (frames.shape, centres.shape) == ((24, 16, 16, 2), (24, 3, 2))
    inputs = frames.reshape(4, 6, 16, 16, 2)
    np.testing.assert_array_equal(inputs[:-1, ..., 1], inputs[1:, ..., 0])
    assert np.all(np.abs(inputs[..., 0] - inputs[..., 1]).max(axis=(2, 3)) > 0.01)
    assert len(np.unique(centres, axis=0)) == 24
    # Centres are the mean over both frames: that of the brightness of their mean.
    brightness, ticks = frames.mean(axis=-1), (np.arange(16) + 0.5) / 16
    across = (brightness.sum(axis=1) * ticks).sum(axis=1) / brightness.sum(axis=(1, 2))
    np.testing.assert_allclose(across, centres[..., 0].mean(axis=1), atol=0.01)


@pytest.mark.integration
def test_a_video_has_as_many_clips_as_it_says_and_fresh_ones_never_come_twice():
    def starts(num_clips):
        draw = jax.jit(lambda key: clips(1, 3, num_clips, True).sample(key, 100, 1).inputs)
        return np.concatenate([draw(jax.random.key(seed)).states[0] for seed in (0, 1)])

    # Two draws of a hundred from seven: all of them and nothing else.
    assert len(np.unique(starts(7), axis=0)) == 7
    assert len(np.unique(starts(None), axis=0)) == 200


def test_frames_and_positions_of_one_key_are_of_the_same_states(pairs):
    frames, centres = pairs[0], np.concatenate(pairs[1].pair)
    images = np.concatenate(frames.pair)
    assert (images.shape, frames.targets.shape) == ((4000, 16, 16, 1), (2000, 0))
    ticks, brightness = (np.arange(16) + 0.5) / 16, images[..., 0]
    total = brightness.sum(axis=(1, 2))
    across = (brightness.sum(axis=1) * ticks).sum(axis=1) / total
    along = (brightness.sum(axis=2) * ticks[::-1]).sum(axis=1) / total
    np.testing.assert_allclose(np.stack([across, along], 1), centres.mean(axis=1), atol=0.01)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class MixedSignals:
    """Pairs of mixed Gaussian signals, independent of each other and of known correlation."""

    as_positions = False
    num_tasks = None

    def sample(self, key, num_rows, num_tasks):
        before, noise = jax.random.normal(key, (2, num_rows, 5))
        keep = jnp.asarray(CORRELATIONS, jnp.float32)[None, :]
        after = keep * before + jnp.sqrt(1.0 - keep**2) * noise
        pair = Clip((before @ MIXING + 3.0, after @ MIXING + 3.0))
        return Batch(pair, jnp.zeros((num_rows, 0)))


def test_linear_analysis_finds_the_eigenvalues_of_signals_of_known_correlation():
    sizes = {"clips": 500, "frames": 1, "clip_frames": 2, "linear_batches": 40, "test_batches": 40}
    config, source = dataclasses.replace(SMOKE, num_features=3, **sizes), MixedSignals()
    linear = linear_slow_features(config, lambda inputs: inputs, source, 5)
    found = bouncing_balls.measure_spectra(config, *linear, source, "test")
    np.testing.assert_allclose(found.ordered, 2.0 * (1.0 - CORRELATIONS[:3]), rtol=0.03)
    np.testing.assert_allclose(found.ritz.sum(), found.ordered.sum(), rtol=1e-4)
    # Of unit variance and mean zero on other draws, to their error.
    np.testing.assert_allclose(np.abs(found.transform), np.eye(4)[:, 1:], atol=0.03)
    with pytest.raises(InputError, match="at least 3 components that vary, got 2"):
        linear_slow_features(config, lambda inputs: inputs, source, 2)


def test_pixels_are_means_over_squares():
    frames = np.random.default_rng(0).uniform(size=(2, 16, 16, 2)).astype(np.float32)
    found = pixels(VIDEO, 4)(frames)  # NumPy in, NumPy out: nothing is compiled.
    assert found.shape == (2, 32)
    np.testing.assert_allclose(found[1, 13], frames[1, 4:8, 8:12, 1].mean(), rtol=1e-5)
    with pytest.raises(InputError, match=r"pooling that divides a frame's side \(16\), got 3"):
        pixels(VIDEO, 3)


def test_functions_of_positions_do_not_tell_balls_apart_and_are_the_cosines_stated():
    function, bodies = positions(VIDEO, 2)
    # Degrees 1 and 2 of one ball, products of two waves of degree 1.
    np.testing.assert_array_equal(np.bincount(bodies), [0, 5, 3])
    centres = np.random.default_rng(0).uniform(0.12, 0.88, size=(4, 3, 2)).astype(np.float32)
    both = np.concatenate([centres, centres[:, [2, 0, 1]]])
    found, again = np.split(np.asarray(jax.jit(function)(both)), 2)
    np.testing.assert_allclose(again, found, rtol=1e-4, atol=1e-5)
    sums = np.cos(np.pi * (centres - 0.12) / 0.76).sum(axis=1)
    for expected in (sums[:, 0], sums[:, 1], sums[:, 0] * sums[:, 1], sums[:, 0] ** 2):
        assert np.abs(found - expected[:, None]).max(axis=0).min() < 1e-5


def test_functions_of_velocities_are_the_sums_over_balls_stated():
    rng = np.random.default_rng(0)
    centres = rng.uniform(0.12, 0.88, size=(4, 3, 2)).astype(np.float32)
    speeds = rng.normal(size=(4, 3, 2)).astype(np.float32)
    found = np.asarray(jax.jit(velocities(VIDEO))(centres, speeds))
    assert found.shape == (4, 30)
    (x, y), wave = np.moveaxis(speeds / VIDEO.speed, -1, 0), np.cos(np.pi * (centres - 0.12) / 0.76)
    for expected in (x, x * y, y**2 * wave[..., 0], x * wave[..., 0] * wave[..., 1]):
        gaps = np.abs(found - expected.sum(axis=1, keepdims=True)).max(axis=0)
        assert gaps.min() < 1e-3 * np.abs(expected).max()


def test_explained_shares_are_those_of_a_planted_model_and_chance_explains_nothing():
    draws = np.random.default_rng(0).normal(size=(9000, 4))
    target = draws[:, :1] * 3.0 + draws[:, 1:2] * 1.0 + 5.0
    both = np.column_stack([target, draws[:, 2]])
    np.testing.assert_allclose(explained(both, draws[:, :1]), [0.9, 0.0], atol=0.02)
    np.testing.assert_allclose(explained(both, draws[:, :3]), [1.0, 1.0], atol=1e-6)
    noise = np.random.default_rng(1).normal(size=(600, 200))
    assert explained(both[:600], noise).max() < 0.0


def test_a_map_is_the_mean_over_states_with_a_ball_in_the_cell():
    centres = np.asarray([[[0.1, 0.1], [0.9, 0.1]], [[0.1, 0.1], [0.1, 0.9]]])
    values = np.asarray([[1.0, 10.0], [3.0, 20.0]])
    # Cells (row, column) = (y, x): both states have a ball at the bottom left.
    expected = np.transpose([[2.0, 1.0, 3.0, np.nan], [15.0, 10.0, 20.0, np.nan]])
    np.testing.assert_array_equal(bouncing_balls.mean_responses(centres, values, 2), expected)


def test_responses_follow_the_balls_and_exciting_frames_are_those_of_extreme_values():
    config = dataclasses.replace(
        SMOKE, response_batches=40, map_bins=5, degree=4, frames=2, clips=32, clip_frames=3
    )

    def centre_of_brightness(frames):
        """Minus the balls' mean x, its squared distance from the middle, its change."""
        ticks = (jnp.arange(16, dtype=jnp.float32) + 0.5) / 16
        totals = frames.sum(axis=(1, 2))
        x = jnp.sum(frames.sum(axis=1) * ticks[None, :, None], axis=1) / totals
        middle = x.mean(axis=1)
        return jnp.stack([-2.0 * middle, (middle - 0.5) ** 2, x[:, 1] - x[:, 0]], axis=1)

    encoder = FunctionEncoder(lambda _: (), lambda _, frames: centre_of_brightness(frames))
    found = bouncing_balls.measure_responses(encoder, (), VIDEO, config)
    assert found.centres.shape == found.velocities.shape == (40 * 64, 3, 2)
    # Negative everywhere, so the sign is turned: the largest mean response is positive.
    mean_x = found.centres[:, :, 0].mean(axis=1)
    np.testing.assert_allclose(found.values[:, 0], 2.0 * mean_x, atol=0.02)
    assert np.all(np.nanmax(found.maps, axis=0) == np.nanmax(np.abs(found.maps), axis=0))
    shares = bouncing_balls.measure_shares(found, VIDEO, config)
    assert shares["mean_position"][0] > 0.99
    assert shares["mean_position"][1] < 0.1
    assert shares["one_ball"][1] < 0.8
    assert shares["all_balls"][1] > 0.95
    # Walls and collisions within the frame aside, the change is the mean velocity.
    assert shares["all_balls"][2] < 0.3
    assert shares["velocity"][2] > 0.5
    assert np.abs(shares["velocity"][:2]).max() < 0.05
    frames = bouncing_balls.extreme_frames(found, VIDEO, 2)
    assert frames.shape == (3, 4, 16, 16)
    chosen = np.argsort(found.values[:, 0])[[0, 1, -2, -1]]
    still = BouncingBallsState(found.centres[chosen], 0.0 * found.centres[chosen], np.zeros(4, int))
    np.testing.assert_allclose(frames[0], jax.jit(jax.vmap(VIDEO.render))(still), atol=1e-6)


LINEAR = np.asarray([0.02, 0.02, 0.04, 0.04])
BEST = LINEAR / 2.0


@pytest.mark.parametrize(
    ("change", "verdicts"),
    [
        ({}, [True] * 6),
        ({"mean_position": (0.95, 0.6, 0.0, 0.0)}, [False, *[True] * 5]),
        ({"one_ball": (0.95, 0.95, 0.1, 0.1)}, [True, False, *[True] * 4]),
        ({"all_balls": 0.7}, [True, True, False, *[True] * 3]),
        ({"velocity": (0.0, 0.0, 0.0, 0.2)}, [*[True] * 3, False, True, True]),
        ({"ritz": BEST * [0.9, 1.1, 1.0, 1.0]}, [*[True] * 5, False]),
        ({"learned": LINEAR * 1.1, "ritz": LINEAR * 1.1}, [*[True] * 4, False, True]),
        # What holds for one network and not for the other cannot be told.
        ({"other": {"mean_position": 0.5}}, [None, *[True] * 5]),
        ({"other": {"velocity": 0.5}}, [*[True] * 3, None, True, True]),
        # Two sums far apart have a wide Student interval, which a bootstrap would not.
        ({"other": {"learned": LINEAR * 0.9}}, [*[True] * 4, None, False]),
        # One network does not tell whether networks are slower.
        ({"networks": 1}, [*[True] * 4, None, True]),
        # Goals alone are judged of what is not the paper's protocol.
        ({"config": {"steps": 500_000}}, [*[None] * 4, True, True]),
        ({"config": {"clips": 48}}, [*[None] * 4, True, True]),
        ({"config": {"frames": 1}}, [*[None] * 4, True, True]),
        *(
            ({"config": {name: 5}}, [*[None] * 4, True, True])
            for name in ("degree", "response_batches", "test_batches")
        ),
        ({"config": {"num_seeds": 2, "map_bins": 9}}, [True] * 6),
    ],
)
def test_claims_are_judged_three_valued(change, verdicts):
    parts = {"learned": BEST, "ritz": BEST, "mean_position": (0.95, 0.9, 0.0, 0.0)}
    parts |= {"one_ball": (0.95, 0.95, 0.9, 0.3), "all_balls": 0.98, "velocity": 0.01, **change}
    config = dataclasses.replace(PRESETS["paper"], **parts.pop("config", {}))
    others, networks = parts.pop("other", {}), []
    for index in range(parts.pop("networks", 2)):
        own = parts | (others if index else {})
        scaled = {
            name: np.broadcast_to(value, 4) * (1.0 + 0.001 * index) for name, value in own.items()
        }
        spectra = Spectra(scaled.pop("learned"), scaled.pop("ritz"), None)
        networks.append(Network(index, None, spectra, None, scaled))
    exact = {
        name: Spectra(values, values, None)
        for name, values in ((bouncing_balls.PIXELS, LINEAR), (bouncing_balls.POSITIONS, BEST))
    }
    found = [claim.holds for claim in bouncing_balls.judge(config, networks, exact)]
    assert found == verdicts


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clip_frames": 2}, r"clip_frames > frames \(2\), got 2"),
        ({"num_frames": 3}, r"num_frames >= clip_frames \(4\), got 3"),
        ({"num_features": 0}, "num_features >= 1, got 0"),
        ({"evaluations": 7}, r"steps to be a multiple of evaluations \(7\)"),
        (
            {"clips": 1, "clip_frames": 3, "response_batches": 1},
            "shown <= 2, the frames to choose from, got 3",
        ),
        ({"seed": -1}, "seed in"),
    ],
)
def test_settings_without_meaning_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(SMOKE, **change)


def test_the_paper_preset_is_the_papers_protocol(check_protocol):
    check_protocol(
        "bouncing-balls",
        {
            "num_features": 12,
            "frames": 2,
            "encoder.name": "block_sparse",
            "encoder.encoder.name": "convolutional",
            "encoder.encoder.channels": [32, 32, 32],
            "encoder.encoder.kernel_size": 5,
            "encoder.encoder.hidden": 128,
            "objective.name": "spin",
            "objective.averaging_rate": 0.01,
            "objective.masked": True,
            "objective.shifted": False,
            "objective.starts_at_identity": True,
            "optimizer.name": "rmsprop",
            "optimizer.learning_rate": 1e-6,
            "optimizer.schedule": "constant",
            "optimizer.decay": 0.999,
            # TensorFlow's of the time.
            "optimizer.initial_scale": 1.0,
            "optimizer.epsilon": 1e-10,
            "clips": 24,
            "clip_frames": 10,
            "num_frames": 200_000,
            "steps": 1_000_000,
        },
        {
            # Of slowness the gradient is the same either way, on every batch.
            "objective.through_operator", "objective.jacobian_rows_at_once",
            "encoder.encoder.unpadded", "evaluations", "evaluation_batches", "seed", "num_seeds",
            "pooling", "components", "degree", "linear_batches", "test_batches", "map_bins",
            "response_batches", "shown",
        },
    )  # fmt: skip
    # Three balls, 64 x 64 pixels.
    video = bouncing_balls.VIDEO
    assert (video.num_balls, video.frame_size) == (3, 64)
    assert PRESETS["paper"].is_published
    # Free fields need not fit the others of another preset.
    assert not any(PRESETS[name].is_published for name in ("laptop", "smoke"))
    # 20,000 clips, of ten frames and nine inputs.
    source = PRESETS["paper"].source(fresh=False)
    assert (source.num_clips, source.clip_frames) == (20_000, 10)
    assert (PRESETS["paper"].clip_inputs, PRESETS["paper"].rows) == (9, 24 * 9)
    assert {"video", "inputs of a clip", "initial weights"} <= set(
        bouncing_balls.EXPERIMENT.deviations
    )


@pytest.mark.experiments
def test_the_smoke_preset_makes_features_slower_and_is_not_run_twice(tmp_path, monkeypatch):
    summary = bouncing_balls.EXPERIMENT.run(SMOKE, tmp_path, progress=False)
    for name in ("eigenvalues", "exciting_frames", "maps", "training"):
        assert (tmp_path / "figures" / f"{name}.png").stat().st_size > 1000
        assert json.loads((tmp_path / "results" / f"{name}.json").read_text())
    curves = json.loads((tmp_path / "results" / "training.json").read_text())
    for seed in (0, 1):
        own = [row for row in curves if row["seed"] == seed]
        sums = [sum(row[f"feature_{k}"] for k in (1, 2, 3, 4)) for row in own]
        assert len(sums) == 6
        assert sums[-1] < 0.5 * sums[0]
    learned = np.asarray(summary["eigenvalues"]["deep"])
    assert learned.shape == (2, 4)
    # Functions that see the positions do best.
    assert np.all(learned.sum(axis=1) > np.sum(summary["eigenvalues"]["functions of positions"]))
    eigenvalues = (tmp_path / "results" / "eigenvalues.csv").read_text()
    rows = list(csv.DictReader(eigenvalues.splitlines()))
    assert len(rows) == (2 + 2) * 4
    for row in rows:
        correlation = 1.0 - float(row["eigenvalue"]) / 2.0
        assert float(row["correlation_at_lag_1"]) == pytest.approx(correlation)
    page = (tmp_path / "report.html").read_text()
    assert all(claim["found"] in page for claim in summary["claims"])
    # Without its summary the run goes on from its checkpoints and trains nothing.
    (tmp_path / "summary.json").unlink()
    monkeypatch.setattr(Population, "advance", None)
    bouncing_balls.EXPERIMENT.run(SMOKE, tmp_path, progress=False)
    assert (tmp_path / "results" / "eigenvalues.csv").read_text() == eigenvalues
    other = dataclasses.replace(SMOKE, clips=8)
    with pytest.raises(InputError, match="clips"):
        bouncing_balls.EXPERIMENT.run(other, tmp_path, progress=False)
