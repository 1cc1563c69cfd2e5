import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.runs.folder import RunFolder
from rlreps.streaming import Eigengame
from rlreps.training.streams import fit_stream

DATA = jnp.asarray(np.random.default_rng(0).normal(size=(50, 6)) * [4, 3, 2, 1, 1, 1], jnp.float32)
RULE = Eigengame(6, 2, learning_rate=0.02)


def draw(data, key):
    return data[jax.random.randint(key, (10,), 0, len(data))]


def evaluate(components):
    return {"first": components[0, 0]}


def fit(folder=None, *, rule=RULE, steps=60, **options):
    options = {"seeds": (0, 5), "evaluate_every": 20, "checkpoint_every": 20, **options}
    return fit_stream(
        rule, DATA, draw, steps=steps, evaluate=evaluate, folder=folder, progress=False, **options
    )


def open_folder(path):
    return RunFolder.create_or_resume(path, kind="test", config={}, provenance={})


def test_history_and_metrics_follow_every_seed_from_the_start(tmp_path):
    folder = open_folder(tmp_path / "run")
    result = fit(folder)
    assert [record["step"] for record in result.history] == [0, 20, 40, 60]
    assert folder.read_metrics() == result.history
    assert result.components.shape == (2, 6, 2)
    for record in result.history:
        assert record["diverged"] == [False, False]
    assert result.history[-1]["first"] == result.components[:, 0, 0].tolist()
    assert not np.allclose(result.components[0], result.components[1])


def test_a_seed_gives_the_same_components_alone_and_in_chunks_of_any_length():
    together = fit().components
    alone = fit(seeds=(5,), evaluate_every=12, checkpoint_every=12).components
    np.testing.assert_allclose(alone[0], together[1], atol=1e-6)


class Killed(BaseException):
    pass


def test_a_run_killed_between_checkpoints_ends_bit_for_bit_as_one_that_was_not(
    tmp_path, monkeypatch
):
    whole = fit(open_folder(tmp_path / "whole"), checkpoint_every=40, steps=80)
    folder = open_folder(tmp_path / "killed")
    append = RunFolder.append_metrics

    def die(self, record):
        append(self, record)
        if record["step"] == 60:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "append_metrics", die)
        with pytest.raises(Killed):
            fit(folder, checkpoint_every=40, steps=80)
    resumed = fit(open_folder(tmp_path / "killed"), checkpoint_every=40, steps=80)
    np.testing.assert_array_equal(resumed.components, whole.components)
    assert [record["step"] for record in resumed.history] == [0, 20, 40, 60, 80]
    for mine, other in zip(resumed.history, whole.history, strict=True):
        assert mine["first"] == other["first"]
    assert fit(folder, checkpoint_every=40, steps=80).history == resumed.history


def test_a_seed_that_diverges_is_counted_and_the_others_go_on():
    class Grows:
        def init(self, key):
            return jnp.full((6, 2), jax.random.uniform(key, (), minval=-1.0))

        def update(self, state, batch):
            # Positive numbers overflow within a few updates, negative ones stay.
            return jnp.where(state > 0.0, state * 1e20, state)

        def components(self, state):
            return state

    result = fit(rule=Grows(), seeds=range(6))
    started = np.asarray(result.history[0]["first"])
    assert 0 < np.sum(started > 0.0) < 6
    assert not any(result.history[0]["diverged"])
    assert result.history[-1]["diverged"] == (started > 0.0).tolist()
    ended = np.where(started > 0.0, 0.0, started)
    np.testing.assert_array_equal(result.components[:, 0, 0], ended.astype(np.float32))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"evaluate_every": 0}, "evaluate_every >= 1, got 0"),
        ({"checkpoint_every": 30}, r"checkpoint_every to be a multiple of .*\(20\), got 30"),
    ],
)
def test_counts_that_do_not_divide_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        fit(**options)
