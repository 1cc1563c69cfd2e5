import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.errors import InputError
from rlreps.experiments.amid_warmuth_2020 import pca_tuning
from rlreps.experiments.amid_warmuth_2020.pca_config import RepeatedPcaConfig
from rlreps.experiments.amid_warmuth_2020.pca_problem import make_pca_problem
from rlreps.experiments.amid_warmuth_2020.pca_tuning import (
    RatesDivergedError,
    choose_rate,
    decaying_rule,
    rate_to_run,
    tune_learning_rate,
)
from rlreps.sources.datasets import Observations

pytestmark = pytest.mark.usefixtures("compilation_cache")

FEATURES = 10


@pytest.fixture(scope="module")
def problem():
    generator = np.random.default_rng(0)
    deviations = np.sqrt([8.0, 5.0, 3.0] + [0.3] * (FEATURES - 3))
    rotation, _ = np.linalg.qr(generator.normal(size=(FEATURES, FEATURES)))
    rows = (generator.normal(size=(1000, FEATURES)) * deviations @ rotation.T).astype(np.float32)
    return make_pca_problem(Observations("planted", rows, None), 3)


def known_best(problem, best):
    """A rule of components that are the worse, the further the learning rate is from the best."""
    exact = jnp.asarray(problem.basis[:, :3], jnp.float32)
    others = jnp.asarray(problem.basis[:, 3:6], jnp.float32)

    class KnownBest:
        num_inputs, num_components = FEATURES, 3

        def __init__(self, rate):
            self.rate = rate

        def init(self, key):
            return jnp.zeros((), jnp.int32)

        def update(self, step, batch):
            return step + 1

        update_each = update

        def components(self, step):
            turn = jnp.abs(jnp.log(self.rate / best)) / 10.0
            found = jnp.cos(turn) * exact + jnp.sin(turn) * others
            return jnp.where((self.rate < 1e6) & (step > 0), found, jnp.nan)

    return KnownBest


@pytest.mark.parametrize("best", [0.1, 1.0, 100.0])
def test_the_rate_of_least_loss_is_chosen(problem, best):
    rates = (0.1, 1.0, 10.0, 100.0)
    found = tune_learning_rate(known_best(problem, best), problem, rates, seed=0)
    assert found.best == best
    assert found.learning_rates == rates
    assert np.argmin(found.losses) == rates.index(best)


def test_a_rate_that_diverges_is_kept_in_the_list_and_not_chosen(problem):
    found = tune_learning_rate(known_best(problem, 1e7), problem, (1.0, 1e5, 1e7), seed=0)
    assert np.isnan(found.losses).tolist() == [False, False, True]
    assert found.best == 1e5


def test_losses_are_those_on_the_part_after_one_pass_over_it(problem, monkeypatch):
    streamed = []

    def record(*arguments, **options):
        streamed.append((arguments, options))
        return real(*arguments, **options)

    real = pca_tuning.run_passes
    monkeypatch.setattr(pca_tuning, "run_passes", record)
    found = tune_learning_rate(
        known_best(problem, 1.0), problem, (1.0, 1.0), seed=3, fraction=0.25, rows_per_update=50
    )
    ((_, part, runs), options) = streamed[0]
    assert part.shape == (250, FEATURES)
    assert len({row.tobytes() for row in part}) == 250
    assert {row.tobytes() for row in part} <= {row.tobytes() for row in problem.rows}
    assert options["rows_per_update"] == 50
    assert list(runs.seeds) == [3, 3]
    span = problem.basis[:, :3]
    residuals = part - part @ span @ span.T
    np.testing.assert_allclose(found.losses, np.mean(np.sum(residuals**2, axis=1)), rtol=1e-4)


def test_a_seed_chooses_the_part(problem):
    def losses(seed):
        return tune_learning_rate(known_best(problem, 1.0), problem, (1.0,), seed=seed).losses

    assert losses(0) == losses(0)
    assert losses(0) != losses(1)


def test_oja_is_given_a_rate_between_one_too_small_and_one_too_large(problem):
    build = decaying_rule("oja", FEATURES, 3, 0.9)
    found = tune_learning_rate(build, problem, (1e-6, 1.0, 1e6), seed=0)
    assert found.best == 1.0


def test_it_is_an_error_if_every_rate_diverges(problem):
    with pytest.raises(
        RatesDivergedError, match=r"\[1000000\.0, 10000000\.0\] not to diverge on planted"
    ):
        tune_learning_rate(known_best(problem, 1.0), problem, (1e6, 1e7), seed=0)


@pytest.mark.parametrize(
    ("rates", "options", "message"),
    [
        ((), {}, "at least one learning rate"),
        ((1.0,), {"fraction": 0.0}, r"fraction in \(0, 1\]"),
        ((1.0,), {"fraction": 1.5}, r"fraction in \(0, 1\]"),
        (
            (1.0,),
            {"rows_per_update": 101},
            r"a whole update of 101, got 0\.1",
        ),
        (
            (1.0,),
            {"fraction": 1e-4},
            r"fraction of the 1000 rows with a whole update of 1, got 0\.0001",
        ),
    ],
)
def test_what_cannot_be_tried_is_refused(problem, rates, options, message):
    with pytest.raises(InputError, match=message) as raised:
        tune_learning_rate(known_best(problem, 1.0), problem, rates, seed=0, **options)
    assert not isinstance(raised.value, RatesDivergedError)


def test_a_rule_without_a_learning_rate_is_not_tuned(problem):
    build = decaying_rule("incremental_pca", FEATURES, 3, 0.9)
    tuned = choose_rate(RepeatedPcaConfig(), "incremental_pca", build, problem, ())
    assert tuned == {"learning_rate": None, "tuning_losses": []}
    assert rate_to_run(tuned) > 0.0
    build = decaying_rule("oja", FEATURES, 3, 0.9)
    tuned = choose_rate(RepeatedPcaConfig(), "oja", build, problem, (1e-6, 1.0))
    assert tuned["learning_rate"] == rate_to_run(tuned) == 1.0
    assert len(tuned["tuning_losses"]) == 2
