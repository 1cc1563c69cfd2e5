"""Principal components of MNIST from a few pixels of some images at a time (Le Lan et al. 2023).

The matrix is pixels x images, its states the 784 pixels and its tasks the 60,000 training images.
Danskin-LISSA with tabular features reads 5 N pixels of each of its images an update, EigenGame
reads mini-batches of whole images, and both are measured by the error that their components leave
of the test images, over that of exact principal components.

The paper's two test errors (Fig. 3) are compared where they were taken: its notebook averages 100
test images of each digit, 1,000 in all, on which even exact components leave an error that depends
on the draw. No setting is chosen by test errors.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import scipy.linalg
from jax import Array
from jax.tree_util import keystr
from matplotlib.figure import Figure

from rlreps import subspace
from rlreps.config import as_json
from rlreps.encoders import Tabular
from rlreps.errors import require, require_choice, require_interval, require_positive
from rlreps.experiments import harness
from rlreps.experiments.harness import DoubleArray, Experiment, Findings, Found, Rows, Run
from rlreps.losses import DanskinLissa
from rlreps.losses.base import Batch
from rlreps.numerics import matmul
from rlreps.plotting import Line, plot_curves, plot_reconstructions, plot_signed_images
from rlreps.report.page import Section
from rlreps.report.table import Table
from rlreps.runs.intervals import Interval, aggregate, mean_interval
from rlreps.sources.datasets import MNIST_CHECKSUM, FloatArray, Images, load_images
from rlreps.sources.matrix import draw_rows_and_tasks
from rlreps.streaming import Eigengame
from rlreps.subspace.centring import second_moments
from rlreps.subspace.svd import components_kept, fix_signs
from rlreps.training import Optimizer, train_population
from rlreps.training.optimizers import SCHEDULES, Schedule
from rlreps.training.streams import fit_stream
from rlreps.training.update import Learner

EIGENGAME = "eigengame"
"""Name of EigenGame's runs."""

PAPER_EXACT, PAPER_LEARNED = 21.46, 21.53
"""Test reconstruction errors that the paper states, of N = 64."""

PAPER_RATIO = Interval(PAPER_LEARNED / PAPER_EXACT, 21.525 / 21.465, 21.535 / 21.455)
"""Their ratio, with what rounding to two digits leaves open."""


_EVALUATIONS_A_CHECKPOINT = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class DanskinConfig:
    """Danskin-LISSA at several numbers of pixels an update.

    Attributes:
        runs: N, pixels whose features one update changes, and Adam's learning rate of each run; as
            many pixels again stand behind each of the four estimates (N + 2M + 2J with M = J = N).
        objective: Its options beside the roles.
        schedule: ``constant`` (the paper), or ``cosine`` or ``linear`` decay to zero over the run.
        steps: Updates of each run.
        images: t, images an update draws; the paper draws one.
    """

    runs: tuple[tuple[int, float], ...] = ((32, 0.01), (64, 0.005), (128, 0.005))
    objective: DanskinLissa = dataclasses.field(default=DanskinLissa(kappa0=1.9))
    schedule: Schedule = "constant"
    steps: int = 2_500_000
    images: int = 1

    def __post_init__(self) -> None:
        pixels = [each for each, _ in self.runs]
        once = len(set(pixels)) == len(pixels) >= 1
        require(once, "at least one number of pixels, each once", pixels)
        for each, rate in self.runs:
            require_positive("pixels", each)
            require_interval("learning_rate", rate, "(0, inf)")
        require_choice("schedule", self.schedule, get_args(Schedule))
        require_positive("steps", self.steps)
        require_positive("images", self.images)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EigenGameConfig:
    """EigenGame on whole images.

    Attributes:
        steps: Updates.
        images: Images in a mini-batch, all of their pixels.
        learning_rate: α, against the mini-batch's mean.
        schedule: ``constant``, or ``cosine`` or ``linear`` decay to zero over the run.
    """

    steps: int = 100_000
    images: int = 1024
    learning_rate: float = 0.1
    schedule: Schedule = "constant"

    def __post_init__(self) -> None:
        require_positive("steps", self.steps)
        require_positive("images", self.images)
        require_interval("learning_rate", self.learning_rate, "(0, inf)")
        require_choice("schedule", self.schedule, get_args(Schedule))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Danskin-LISSA on a few pixels at a time, EigenGame on whole images, and exact PCA.

    The defaults are the paper's protocol; EigenGame's settings are ours.

    Attributes:
        num_components: d.
        danskin: The runs of Danskin-LISSA.
        eigengame: The run of EigenGame.
        seed: Seed of the first run.
        num_seeds: Independent runs of each method, seeds ``seed`` … ``seed + num_seeds - 1``.
        headline_pixels: The N whose test error the paper states.
        subsets: Random subsets of the test images that errors are also taken on.
        subset_images: Images of each label in a subset.
        evaluations: Points of each learning curve after its start.
        shown_images: Test images in the figure of reconstructions, the first ones.
    """

    num_components: int = 16
    danskin: DanskinConfig = dataclasses.field(default_factory=DanskinConfig)
    eigengame: EigenGameConfig = dataclasses.field(default_factory=EigenGameConfig)
    seed: int = 0
    num_seeds: int = 3
    headline_pixels: int = 64
    subsets: int = 1000
    subset_images: int = 100
    evaluations: int = 100
    shown_images: int = 10

    def __post_init__(self) -> None:
        counts = ("subsets", "subset_images", "evaluations", "shown_images")
        for name in ("num_components", "num_seeds", *counts):
            require_positive(name, getattr(self, name))
        pixels = [each for each, _ in self.danskin.runs]
        expected = f"headline_pixels to be one of the runs' {pixels}"
        require(self.headline_pixels in pixels, expected, self.headline_pixels)
        require(0 <= self.seed < 2**31, "seed in [0, 2**31)", self.seed)
        for method, steps in (("danskin", self.danskin.steps), ("eigengame", self.eigengame.steps)):
            require(
                steps % self.evaluations == 0,
                f"{method}.steps to be a multiple of evaluations ({self.evaluations})",
                steps,
            )

    @property
    def seeds(self) -> range:
        """Return the seeds of every method's runs."""
        return range(self.seed, self.seed + self.num_seeds)


# Chosen by the error of training images over exact PCA's, of one seed after 60,000 updates of 32
# images with cosine decay. N = 64, whitened, running norm: 1.0087, 1.0084, 1.0084 and 1.0092 from
# rates of 0.03, 0.05, 0.1 and 0.2; from 0.05, with the batch's norm 1.0102, without whitening
# 1.0106 (from 0.02, 1.0135). N = 32: 1.0267, 1.0313 and 1.0235 from 0.03, 0.05 and 0.1. N = 128:
# 1.0091, 1.0086, 1.0051 and 1.0045 from 0.02, 0.03, 0.05 and 0.1.
_OURS = DanskinLissa(kappa0=1.9, feature_norm="running", whitening=True)
_DANSKIN = DanskinConfig(objective=_OURS, schedule="cosine", steps=300_000, images=32)
PRESETS: dict[str, Config] = {
    "smoke": Config(
        num_components=8,
        danskin=dataclasses.replace(_DANSKIN, runs=((4, 0.03), (8, 0.03)), steps=4000),
        eigengame=EigenGameConfig(steps=1000, images=64, learning_rate=0.2, schedule="cosine"),
        num_seeds=2,
        headline_pixels=8,
        subsets=50,
        subset_images=20,
        evaluations=10,
        shown_images=6,
    ),
    "laptop": Config(
        danskin=dataclasses.replace(_DANSKIN, runs=((32, 0.1), (64, 0.1), (128, 0.1))),
        eigengame=EigenGameConfig(steps=10_000, images=256, learning_rate=0.05, schedule="cosine"),
        evaluations=50,
    ),
    "paper": Config(),
}
"""Preset name → configuration."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ImageSource:
    """Entries of a pixels x images matrix that is held transposed, an image a row.

    ``sample`` draws what ``MatrixSource`` would of the same matrix. Its entries of one image lie
    within a few kilobytes of memory instead of one in each of the matrix's rows, which halves the
    time of a batch of MNIST from 32 images on.

    Attributes:
        images: The transposed matrix, [images, pixels].
    """

    images: Array

    @property
    def num_tasks(self) -> int:
        """Return the columns of the matrix: images."""
        return self.images.shape[0]

    def sample(self, key: Array, num_rows: int, num_tasks: int) -> Batch:
        """Draw pixels [num_rows] and their values in some images [num_rows, num_tasks].

        Both are drawn uniformly with replacement; inputs are the pixels' indices.
        """
        num_images, num_pixels = self.images.shape
        pixels, chosen = draw_rows_and_tasks(key, (num_pixels, num_images), num_rows, num_tasks)
        # Gathered in the order of the batch: XLA would otherwise transpose what it gathers.
        return Batch(pixels, self.images[chosen[None, :], pixels[:, None]], chosen)

    def whole_images(self, key: Array, count: int) -> Array:
        """Draw images [count, pixels] uniformly with replacement."""
        return self.images[jax.random.randint(key, (count,), 0, self.images.shape[0])]


class Problem(NamedTuple):
    """Images without their mean, and what is exact about them.

    Attributes:
        source: Training images less their mean.
        mean: Mean training image, [pixels].
        test: Test images less the *training* mean, [test images, pixels].
        shape: (height, width) of an image.
        basis: Exact leading principal components, [pixels, d].
        test_error: Mean of ‖x − Px‖² over test images under exact components.
        train_error: The same over training images.
        subsets: Indices of test images, as many of each label, [subsets, images]; None without
            labels. The first subset holds the first images of each label.
        is_mnist: Whether the images are MNIST's, image for image.
    """

    source: ImageSource
    mean: DoubleArray
    test: FloatArray
    shape: tuple[int, int]
    basis: DoubleArray
    test_error: float
    train_error: float
    subsets: npt.NDArray[np.int64] | None
    is_mnist: bool


def make_problem(config: Config, images: Images) -> Problem:
    """Remove the mean training image and find the exact components of what is left.

    They are the eigenvectors of the pixels' covariance, summed in float64.

    Raises:
        InputError: If d exceeds the number of pixels or the rank of the images, or a label has
            fewer test images than a subset takes.
    """
    d, pixels = config.num_components, images.num_pixels
    require(d <= pixels, f"num_components <= {pixels}, the pixels of an image", d)
    mean = images.train.mean(axis=0, dtype=np.float64)
    centred = images.train - mean.astype(np.float32)
    eigenvalues, vectors = scipy.linalg.eigh(second_moments(centred))
    energies = np.maximum(eigenvalues[::-1], 0.0)
    # With the tolerance of float32, which the images have.
    components_kept(np.sqrt(energies).astype(np.float32), centred.shape, d, at_most=False)
    basis = fix_signs(vectors[:, ::-1][:, :d])
    test = images.test - mean.astype(np.float32)
    return Problem(
        ImageSource(jnp.asarray(centred)),
        mean,
        test,
        images.shape,
        basis,
        float(reconstruction_errors(test, basis).mean()),
        float(energies[d:].sum()),
        label_subsets(config, images.test_labels),
        images.fingerprint()["checksum"] == MNIST_CHECKSUM,
    )


def label_subsets(
    config: Config, labels: npt.NDArray[np.uint8] | None
) -> npt.NDArray[np.int64] | None:
    """Draw subsets with equally many images of each label, without replacement within a subset.

    Returns:
        Indices [subsets, images], the first images of each label before the random subsets; None
        without labels.

    Raises:
        InputError: If a label has fewer images than a subset takes.
    """
    if labels is None:
        return None
    count, generator = config.subset_images, np.random.default_rng(config.seed)
    of_label = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    fewest = min(map(len, of_label))
    require(count <= fewest, f"subset_images <= {fewest}, the fewest of a label", count)
    draws = [
        [generator.choice(each, count, replace=False) for each in of_label]
        for _ in range(config.subsets)
    ]
    first = [each[:count] for each in of_label]
    return np.asarray([np.concatenate(each) for each in (first, *draws)])


def reconstruction_errors(images: FloatArray, basis: npt.NDArray[Any]) -> DoubleArray:
    """Compute ‖x − Px‖² of centred images [images, pixels] for orthonormal columns [pixels, d]."""
    double = basis.astype(np.float64)
    residuals = images - (images @ double) @ double.T
    errors: DoubleArray = np.einsum("ij,ij->i", residuals, residuals)
    return errors


def orthonormal(features: Array) -> DoubleArray:
    """Compute an orthonormal basis [pixels, d] of the features' span in float64; zero for zero.

    Float32 columns are orthonormal to about 1e-6, which an error in float64 would show.
    """
    basis, _ = subspace.orthonormal_basis(features)
    q, r = np.linalg.qr(np.asarray(basis, np.float64))
    # Columns beyond the rank are zero in the basis, and arbitrary in Q.
    spanned: DoubleArray = q * (np.abs(np.diagonal(r)) > 0.5)[None, :]
    return spanned


def evaluation(problem: Problem) -> Callable[[Array], dict[str, Array]]:
    """Return what is measured during a run, a function for ``jit``.

    Returns:
        Features [pixels, d] → ``subspace_distance`` to the exact components, and the mean errors
        of training and test images over the exact components' own, ``train_error_ratio`` and
        ``test_error_ratio``.
    """
    # Second moments hold all that the mean error needs; 10,000 images would be a large constant.
    sets = {
        "train": (second_moments(np.asarray(problem.source.images)), problem.train_error),
        "test": (second_moments(problem.test), problem.test_error),
    }
    basis = jnp.asarray(problem.basis, jnp.float32)

    def evaluate(features: Array) -> dict[str, Array]:
        span, _ = subspace.orthonormal_basis(features)
        found = {"subspace_distance": subspace.subspace_distance(features, basis)}
        for name, (moments, exact) in sets.items():
            weighted = matmul(jnp.asarray(moments, span.dtype), span)
            left = float(np.trace(moments)) - jnp.sum(span * weighted)
            found[f"{name}_error_ratio"] = left / exact
        return found

    return evaluate


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Method:
    """A method's finished runs.

    Attributes:
        label: Its name in figures.
        entries: Matrix entries that one update of a run reads.
        history: Records of its runs, with ``step`` and lists over seeds.
        bases: An orthonormal basis [pixels, d] of each seed's features.
        summary: Its final figures, per seed and over seeds.
    """

    label: str
    entries: int
    history: list[dict[str, Any]]
    bases: list[DoubleArray]
    summary: dict[str, Any]


def cells(run: Run[Config]) -> dict[str, dict[str, Any]]:
    """Return the options of every method by name: Danskin-LISSA's runs, then EigenGame."""
    return {
        **{
            f"danskin-lissa-{pixels}": {"pixels": pixels, "learning_rate": rate}
            for pixels, rate in run.config.danskin.runs
        },
        EIGENGAME: {},
    }


def measure(run: Run[Config], name: str, options: dict[str, Any]) -> Method:
    """Train a method with every seed; test errors are in float64 from the images themselves."""
    problem: Problem = run.data
    config, folder = run.config, run.training_folder(name, method=name, **options)
    steps = (config.danskin if options else config.eigengame).steps
    every = steps // config.evaluations
    common = {
        "steps": steps,
        "seeds": config.seeds,
        "evaluate_every": every,
        "folder": folder,
        "checkpoint_every": every * _EVALUATIONS_A_CHECKPOINT,
        "progress": run.progress,
    }
    features, history, seconds, entries = (
        _train_danskin(config, problem, common, **options)
        if options
        else _train_eigengame(config, problem, common)
    )
    target = jnp.asarray(problem.basis, features.dtype)
    bases = [orthonormal(each) for each in features]
    distances = jax.vmap(subspace.subspace_distance, in_axes=(0, None))(features, target)
    of_images = np.stack([reconstruction_errors(problem.test, basis) for basis in bases])
    errors, last = of_images.mean(axis=1), history[-1]
    per_seed = {
        "subspace_distance": np.asarray(distances).tolist(),
        "train_error_ratio": last["train_error_ratio"],
        "test_error": errors.tolist(),
        "test_error_ratio": (errors / problem.test_error).tolist(),
    }
    summary = {
        "steps": last["step"],
        "seconds": round(seconds, 3),
        "entries_read": entries * last["step"],
        "runs": len(bases),
        "diverged": int(np.sum(last["diverged"])),
        "per_seed": per_seed,
        **{
            figure: aggregate(values, within=(0.0, 1.0) if figure == "subspace_distance" else None)
            for figure, values in per_seed.items()
        },
        **on_subsets(problem, of_images),
    }
    folder.write_summary(summary)
    label = f"Danskin-LISSA, N = {options['pixels']}" if options else "EigenGame, whole images"
    return Method(label=label, entries=entries, history=history, bases=bases, summary=summary)


def on_subsets(problem: Problem, of_images: DoubleArray) -> dict[str, Any]:
    """Describe errors [runs, test images] on subsets of the test images.

    Returns:
        ``subset_error``, the mean over runs and random subsets, ``subset_error_deviation``, its
        standard deviation over subsets, ``first_images_error`` on the first images of each label,
        ``subset_error_ratio``, each run's mean over subsets of the ratio to the exact components'
        error on the same images, [runs], and ``subset_ratio_deviation``, the standard deviation of
        that ratio over subsets. Nothing without labels.
    """
    if problem.subsets is None:
        return {}
    exact = reconstruction_errors(problem.test, problem.basis)[problem.subsets].mean(axis=1)
    errors = of_images[:, problem.subsets].mean(axis=2)
    ratios = (errors / exact)[:, 1:]
    return {
        "subset_error": float(errors[:, 1:].mean()),
        "subset_error_deviation": float(errors[:, 1:].std(axis=1, ddof=1).mean()),
        "first_images_error": float(errors[:, 0].mean()),
        "subset_error_ratio": ratios.mean(axis=1).tolist(),
        "subset_ratio_deviation": float(ratios.std(axis=1, ddof=1).mean()),
    }


Trained = tuple[Array, list[dict[str, Any]], float, int]
"""Features [seeds, pixels, d], records, seconds of training, and entries that one update read."""


def danskin_learner(config: Config, num_pixels: int, pixels: int, learning_rate: float) -> Learner:
    """Return what learns by Danskin-LISSA with N = M = J = ``pixels`` of images' ``num_pixels``."""
    options = config.danskin
    return Learner(
        encoder=Tabular(config.num_components, num_states=num_pixels),
        objective=dataclasses.replace(
            options.objective,
            num_features=config.num_components,
            gradient_rows=pixels,
            weight_rows=pixels,
            covariance_rows=pixels,
        ),
        optimizer=Optimizer(
            name="adam",
            learning_rate=learning_rate,
            schedule=options.schedule,
            steps=options.steps,
        ),
        rows=5 * pixels,
        tasks=options.images,
        resets_diverged=True,
    )


def _train_danskin(
    config: Config, problem: Problem, common: Any, pixels: int, learning_rate: float
) -> Trained:
    """Train Danskin-LISSA with every seed."""
    num_pixels = problem.source.images.shape[1]
    learner = danskin_learner(config, num_pixels, pixels, learning_rate)
    encoder = learner.encoder
    evaluate, all_pixels = evaluation(problem), jnp.arange(num_pixels)
    result = train_population(
        learner,
        problem.source,
        own_numbers=False,
        evaluate=lambda params, _: evaluate(encoder.apply(params, all_pixels)),
        description=f"Danskin-LISSA, {pixels} pixels",
        **common,
    )
    features = jax.vmap(encoder.apply, in_axes=(0, None))(result.state.params, all_pixels)
    return features, result.history, result.seconds, learner.rows * learner.tasks


def _train_eigengame(config: Config, problem: Problem, common: Any) -> Trained:
    """Train EigenGame on mini-batches of whole images."""
    options, num_pixels = config.eigengame, problem.source.images.shape[1]
    schedule = SCHEDULES[options.schedule](options.learning_rate, options.steps)

    def learning_rate(step: Array) -> Array:
        # Optax mixes integer counts with floats, which strict promotion would refuse.
        with jax.numpy_dtype_promotion("standard"):
            return jnp.asarray(schedule(step))

    result = fit_stream(
        Eigengame(num_pixels, config.num_components, learning_rate=learning_rate),
        problem.source,
        lambda source, key: source.whole_images(key, options.images),
        evaluate=evaluation(problem),
        description="EigenGame",
        **common,
    )
    return result.components, result.history, result.seconds, options.images * num_pixels


def compare_with_paper(
    config: Config, problem: Problem, methods: Mapping[str, Method], exact: Mapping[str, Any]
) -> list[Found]:
    """Decide what Sec. 5.2 and Fig. 3 state, each by intervals that cover for the runs there are.

    Errors of exact components can be told wherever they are the paper's number of components of
    MNIST itself on subsets of its size, what was learned only where the settings are its, too.
    """
    paper = PRESETS["paper"]

    def shares(*names: str) -> bool:
        return all(getattr(config, name) == getattr(paper, name) for name in names)

    same = problem.is_mnist and shares("num_components", "subset_images")
    alike = same and shares("danskin", "headline_pixels")
    headline = methods[f"danskin-lissa-{config.headline_pixels}"]
    on_all = mean_interval(headline.summary["per_seed"]["test_error_ratio"])
    claims = []
    if problem.subsets is not None:
        mean, spread = exact["subset_error"], exact["subset_error_deviation"]
        off = (PAPER_EXACT - mean) / spread
        claims.append(
            Found(
                statement="Test error of exact components (Fig. 3)",
                stated=f"{PAPER_EXACT:.2f} (holds within two standard deviations)",
                found=f"{mean:.2f} ± {spread:.2f} (standard deviation) on random subsets of "
                f"{problem.subsets.shape[1]:,} images with each digit alike: the paper's is "
                f"{abs(off):.1f} deviations {'above' if off > 0 else 'below'}; "
                f"{exact['first_images_error']:.2f} on the first of each digit, "
                f"{exact['test_error']:.2f} on all test images",
                holds=bool(abs(off) <= 2.0) if same else None,
            )
        )
        own = mean_interval(headline.summary["subset_error_ratio"])
        # The paper's is of one subset, ours the mean over many.
        margin = 2.0 * headline.summary["subset_ratio_deviation"]
        found = f"{headline.summary['subset_error']:.2f} on the subsets"
        claims.append(_ratio_claim(config, "on such subsets", own, margin, found, alike))
    found = f"{headline.summary['test_error']['mean']:.2f}"
    claims.append(_ratio_claim(config, "on all test images", on_all, 0.0, found, alike))
    curves = {
        pixels: np.transpose(
            [record["subspace_distance"] for record in methods[f"danskin-lissa-{pixels}"].history]
        )
        for pixels, _ in sorted(config.danskin.runs)
    }
    fewest, (first, *_) = min(curves), curves.values()
    start, end = mean_interval(first[:, 0]), mean_interval(first[:, -1])
    courses = [mean_interval(curve.mean(axis=1)) for curve in curves.values()]
    return [
        *claims,
        Found(
            statement=f"Learning from {fewest} pixels an update (Sec. 5.2)",
            stated=f"it is possible to learn effectively with as few as 32 ({harness.LEARNED})",
            found=f"subspace distance {start.value:.3f} at the start, {end.value:.3f} at the end",
            holds=harness.learned(start, end) if alike else None,
        ),
        Found(
            statement="More pixels an update (Sec. 5.2)",
            stated="learn faster",
            found="mean distance over the course of training "
            + ", ".join(
                f"{course.value:.3f} (N = {pixels})"
                for pixels, course in zip(curves, courses, strict=True)
            ),
            holds=harness.all_hold(more.below(fewer) for fewer, more in itertools.pairwise(courses))
            if alike
            else None,
        ),
    ]


def _ratio_claim(
    config: Config, where: str, own: Interval, margin: float, found: str, alike: bool
) -> Found:
    """Set the ratio of the learned to the exact error beside the paper's, which it may undercut."""
    allowed = PAPER_RATIO.high + margin
    verdict = True if own.high <= allowed else False if own.low > allowed else None
    ends = "" if math.isnan(own.low) else f" [{own.low:.4f}, {own.high:.4f}]"
    return Found(
        statement=f"Learned over exact test error {where}, N = {config.headline_pixels}",
        stated=f"{PAPER_RATIO.value:.4f} ({PAPER_LEARNED:.2f} to {PAPER_EXACT:.2f})",
        found=f"{own.value:.4f}{ends} ({found}); at most {allowed:.4f} agrees",
        holds=verdict if alike else None,
    )


def report(run: Run[Config], methods: Mapping[str, Method]) -> Findings:
    """Tabulate test errors, draw reconstructions, components and curves, and judge the claims."""
    config, problem = run.config, run.data
    summaries = {name: method.summary for name, method in methods.items()}
    headline = f"danskin-lissa-{config.headline_pixels}"
    end, ratio = (summaries[headline][name]["mean"] for name in ("test_error", "test_error_ratio"))
    images = reconstruction_errors(problem.test, problem.basis)
    exact = {
        "test_error": problem.test_error,
        "train_error": problem.train_error,
        **on_subsets(problem, images[None]),
    }
    summary = {
        "data": run.folder.config["data"],
        "d": config.num_components,
        "exact": exact,
        "methods": summaries,
        "headline": {"method": headline, "test_error": end, "test_error_ratio": ratio},
        "seconds": round(sum(found["seconds"] for found in summaries.values()), 3),
    }
    rows, table = _errors(problem, methods)
    run.write_rows("test_errors", rows)
    shown = {name: methods[name] for name in (headline, EIGENGAME)}
    return Findings(
        abstract=f"Danskin-LISSA on N = {config.headline_pixels} pixels reconstructs test images "
        f"with {ratio:.4f} times the error of the exact {config.num_components} components "
        f"({end:.3f} against {problem.test_error:.3f}).",
        claims=compare_with_paper(config, problem, methods, exact),
        sections=[
            Section(
                title="Against the paper",
                text="Errors are means of ||x - Px||² over test images: x is a test image divided "
                "by 255 less the mean training image, and P projects onto components of the "
                "training images. The ratio of two errors on the same images measures what was "
                "learned, and N = 64 is the paper's. Its errors are means over 1,000 test images, "
                "100 of each digit; which ones moves the error of exact components too. What was "
                "learned is judged only where the settings are the paper's; those of the other "
                "presets were chosen by training images. Intervals of claims are Student's over "
                "runs.",
            ),
            Section(
                title="Reconstruction of test images",
                tables=[table],
                figures=[
                    run.show(
                        "reconstructions",
                        f"The first {config.shown_images} test images and their projections on "
                        f"{config.num_components} components (learned ones: first run). Below each "
                        "name, its mean error over all test images.",
                        *_draw_reconstructions(config, problem, methods),
                    ),
                    run.show(
                        "components",
                        f"Exact components, and those of Danskin-LISSA at N = "
                        f"{config.headline_pixels} and of EigenGame, rotated within their span "
                        "onto the exact ones (orthogonal Procrustes; first run). Below each image, "
                        "its |cosine| with the exact component.",
                        *_draw_components(problem, shown),
                    ),
                ],
            ),
            Section(
                title="Learning curves",
                text="An update of Danskin-LISSA reads 5 N pixels of each of its images and "
                "changes the features of N; an update of EigenGame reads all pixels of its images.",
                figures=_curves(run, methods),
            ),
            _settings(config),
        ],
        summary=summary,
    )


def _errors(problem: Problem, methods: Mapping[str, Method]) -> tuple[Rows, Table]:
    """Tabulate test errors, for the result files and for the report."""
    ends = {"": "mean", "_low": "mean_low", "_high": "mean_high"}
    rows: list[Mapping[str, object]] = [
        {
            "method": "exact",
            "test_error": problem.test_error,
            "test_error_ratio": 1.0,
            "train_error_ratio": 1.0,
        }
    ]
    for name, method in methods.items():
        found = method.summary
        error, ratio = found["test_error"], found["test_error_ratio"]
        rows.append(
            {
                "method": name,
                **{f"test_error{end}": error[part] for end, part in ends.items()},
                "test_error_interquartile_mean": error["interquartile_mean"],
                **{f"test_error_ratio{end}": ratio[part] for end, part in ends.items()},
                "train_error_ratio": found["train_error_ratio"]["mean"],
                "subspace_distance": found["subspace_distance"]["mean"],
                **{of: found[of] for of in ("steps", "entries_read", "seconds")},
                **{of: found[of] for of in ("runs", "diverged")},
            }
        )

    def over_the_exact(row: Mapping[str, Any]) -> str:
        text, low = f"{row['test_error_ratio']:.4f}", row.get("test_error_ratio_low", math.nan)
        return (
            f"{text} [{low:.4f}, {row['test_error_ratio_high']:.4f}]"
            if not math.isnan(low)
            else text
        )

    labels = {"exact": "exact PCA", **{name: method.label for name, method in methods.items()}}
    table = harness.table_of(
        rows,
        {
            "components": lambda row: labels[row["method"]],
            "updates": "steps",
            "entries read a run": "entries_read",
            "training s": "seconds",
            "subspace distance": lambda row: row.get("subspace_distance", 0.0),
            "test error": lambda row: f"{row['test_error']:.3f}",
            "over the exact": over_the_exact,
            "of training images": lambda row: f"{row['train_error_ratio']:.4f}",
            "runs": "runs",
            "diverged": "diverged",
        },
        "Mean squared error of test images under each method's components, means over runs with a "
        "95 % interval; beside it the ratio of training images. Training time is of all "
        "runs of a method together, without compilation and evaluation. A run that diverged counts "
        "with the error of no components.",
    )
    return rows, table


_FOLLOWED = ("subspace_distance", "train_error_ratio", "test_error_ratio")
"""Measurements during training."""


def _curves(run: Run[Config], methods: Mapping[str, Method]) -> list[tuple[Any, str]]:
    """Draw the distance of every method, against updates and against entries read."""
    d = run.config.num_components
    rows = [
        {
            "method": name,
            "run": seed,
            "step": record["step"],
            "entries_read": record["step"] * method.entries,
            "seconds": record["seconds"],
            **dict(zip(_FOLLOWED, figures, strict=True)),
        }
        for name, method in methods.items()
        for record in method.history
        for seed, figures in enumerate(zip(*(record[name] for name in _FOLLOWED), strict=True))
    ]

    def draw(x_label: str, unit: Callable[[Method], float]) -> Figure:
        lines = [
            Line.of_runs(
                method.label,
                np.asarray([record["step"] for record in method.history]) * unit(method),
                np.transpose([record["subspace_distance"] for record in method.history]),
                counted=True,
            )
            for method in methods.values()
        ]
        y_label = f"subspace distance to the exact {d} components"
        return plot_curves(lines, x_label=x_label, y_label=y_label)

    return [
        run.show(
            "curves",
            f"Subspace distance to the exact {d} components against updates: 0 is the exact "
            "subspace, 1 is orthogonal to it.",
            rows,
            draw("update", lambda method: 1),
        ),
        run.show(
            "curves_by_entries",
            "The same against the entries of the matrix that a run has read, repeated ones counted "
            "again.",
            rows,
            draw("matrix entries read (millions)", lambda method: method.entries / 1e6),
        ),
    ]


def _draw_reconstructions(
    config: Config, problem: Problem, methods: Mapping[str, Method]
) -> tuple[Rows, Figure]:
    """Draw the first test images under exact and learned components (of the first seed)."""
    centred = problem.test[: config.shown_images]
    bases = {"exact PCA": problem.basis}
    bases |= {method.label: method.bases[0] for method in methods.values()}
    pictures = {"test image": centred.astype(np.float64)}
    pictures |= {label: (centred @ basis) @ basis.T for label, basis in bases.items()}
    rows = [
        {"image": index, "components": label, "squared_error": float(error)}
        for label in bases
        for index, error in enumerate(np.sum(np.square(centred - pictures[label]), axis=1))
    ]
    figure = plot_reconstructions(
        {
            label: (images + problem.mean).reshape(-1, *problem.shape)
            for label, images in pictures.items()
        },
        notes={
            label: f"error {reconstruction_errors(problem.test, basis).mean():.2f}"
            for label, basis in bases.items()
        },
    )
    return rows, figure


def _draw_components(problem: Problem, methods: Mapping[str, Method]) -> tuple[Rows, Figure]:
    """Draw exact components above those of some methods, rotated onto them (first seed)."""
    bases = {method.label: method.bases[0] for method in methods.values()}
    maps, cosines = harness.aligned(problem.basis, bases)
    rows = [
        {"method": name, "component": component, "cosine": cosine}
        for name, method in methods.items()
        for component, cosine in enumerate(cosines[method.label].tolist(), start=1)
    ]
    figure = plot_signed_images(
        {
            label: basis.T.reshape(-1, *problem.shape)
            for label, basis in {"exact PCA": problem.basis, **maps}.items()
        },
        titles=[str(number + 1) for number in range(problem.basis.shape[1])],
        cosines=cosines,
    )
    return rows, figure


def _settings(config: Config) -> Section:
    """Tabulate this run's settings beside the paper's, where they differ."""

    def flat(config: Config) -> dict[str, Any]:
        leaves, _ = jax.tree_util.tree_flatten_with_path(
            as_json(config), is_leaf=lambda value: isinstance(value, list)
        )
        return {keystr(path, simple=True, separator="."): value for path, value in leaves}

    here, paper = flat(config), flat(PRESETS["paper"])
    rows = [(name, str(paper[name]), str(here[name])) for name in here if here[name] != paper[name]]
    if not rows:
        return Section(title="Settings", text="This run has the settings of the paper's preset.")
    return Section(
        title="Settings",
        text="Several images an update and a learning rate that decays to zero lower the noise of "
        "the weight estimates. Whitening brings the truncated series nearer to the inverse that it "
        "stands for. A running norm keeps its step from jumping with the largest row of a batch.",
        tables=[Table(("setting", "paper preset", "this run"), rows, "What this run changes.")],
    )


EXPERIMENT = Experiment(
    name="mnist",
    title="MNIST: principal components from a few pixels at a time",
    paper="Le Lan et al. 2023, Section 5.2, Figure 3 and Appendix C.2",
    presets=PRESETS,
    load=load_images,
    check=make_problem,
    cells=cells,
    measure=measure,
    report=report,
    # Each method resumes from its checkpoints, and figures need its components.
    keeps_parts=False,
)
