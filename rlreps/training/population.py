"""Train several runs, a population, in one compiled program.

Members differ in their seeds and, optionally, in the numbers of their learner and in the source
that they learn from. Members share everything that decides the shapes of arrays.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from rlreps.config import checked, with_sizes
from rlreps.encoders import Encoder, Params
from rlreps.errors import InputError, TrainingDivergedError, require, require_positive
from rlreps.losses import Explicit
from rlreps.losses.base import Objective
from rlreps.numerics import compile_once, require_seeds
from rlreps.runs.folder import RunFolder
from rlreps.runs.metrics_log import Logger
from rlreps.sources.matrix import Source
from rlreps.sources.store import raise_read_failure
from rlreps.training.devices import Placement, make_placement
from rlreps.training.loop import Finished, Numbers, Program, run
from rlreps.training.optimizers import Optimizer
from rlreps.training.update import ChunkReport, Learner, TrainState, Updates, all_zero, zero_unless

Evaluate: TypeAlias = Callable[[Params], Mapping[str, Array]]
"""One seed's parameters → named scalars; jitted and mapped over seeds by ``train``."""

EvaluateMember: TypeAlias = Callable[[Params, Any], Mapping[str, Array]]
"""One member's parameters and ``measured`` → named scalars; mapped by ``train_population``."""

Observer: TypeAlias = Callable[[int, Callable[[], Params]], None]
"""Called at every evaluation with the step and a function that returns the first member's
parameters; must change nothing. All processes must call the function, or none."""

Member = TypeVar("Member")

_CHECKPOINT_EVERY = 500
_EVALUATED_TOGETHER = 16
"""Members that an accelerator evaluates at a time."""


def stack(members: Sequence[Member]) -> Member:
    """Make a population of learners, or environments, that differ only in numbers [members]."""
    stacked: Member = jax.tree.map(
        lambda *numbers: jnp.stack([jnp.asarray(number) for number in numbers]), *members
    )
    return stacked


def _params_of(params: Params, index: int) -> Params:
    """Return the parameters of one run, by position, as NumPy's: JAX compiles every slice."""
    return jax.tree.map(lambda leaf: jax.device_get(leaf)[index], params)


@checked
@dataclasses.dataclass(frozen=True)
class TrainingResult(Finished[TrainState]):
    """A finished training; every leaf of its state has a leading seed axis.

    Its records hold ``loss`` and the objective's metrics (means since the last record) and every
    evaluated measure, as lists over seeds.

    Attributes:
        seeds: The seeds, in the order of the seed axis.
    """

    seeds: tuple[int, ...]

    def params(self, index: int = 0) -> Params:
        """Return the encoder parameters of one seed, by position."""
        return jax.tree.map(jnp.asarray, _params_of(self.state.params, index))


class Members(Program[TrainState]):
    """The training of all members, as the host loop runs it.

    Attributes:
        compiled: Number of updates → the compiled chunk of this many updates.
    """

    def __init__(
        self,
        learner: Updates,
        source: Any,
        seeds: Sequence[int],
        placement: Placement,
        *,
        own_numbers: bool = False,
        own_sources: bool = False,
        evaluate: EvaluateMember | None = None,
        measured: Any = (),
        observe: Observer | None = None,
    ) -> None:
        """Place everything on the devices; arguments as for ``train_population``."""
        self._placement, self._own_sources = placement, own_sources
        self._source = (placement.put_seeds if own_sources else placement.put)(source)
        self._all_seeds = jnp.asarray(seeds, jnp.uint32)
        spread = placement.spread_rows(learner) if isinstance(learner, Learner) else learner
        # Numbers that all members share stay constants of the program.
        self._shared = None if own_numbers else spread
        self._all_numbers: Any = spread if own_numbers else ()
        self._seeds, self._numbers = placement.put_seeds((self._all_seeds, self._all_numbers))
        self._evaluate = evaluate
        self._figures_of: Callable[[Params, Any], Mapping[str, Array]] | None = None
        self._measured, self._observe = jax.device_put(measured), observe
        self._resets = learner.resets_diverged
        self.compiled: dict[int, Any] = {}

    def init(self) -> TrainState:
        def start(seeds: Array, numbers: Any) -> TrainState:
            states: TrainState = jax.vmap(lambda seed, own: self._learner(own).init(seed))(
                seeds, numbers
            )
            return states

        # Each device makes its own states: the states of all seeds may not fit on one device.
        spread = self._placement.spread_seeds(start, (True, True))
        arguments = (self._seeds, self._numbers)
        started: TrainState = compile_once(spread, *arguments, brief=True)(*arguments)
        return self.put(started)

    def chunk(
        self, count: int, states: TrainState, source: Any, seeds: Array, numbers: Any
    ) -> tuple[TrainState, ChunkReport]:
        """Make ``count`` updates of every member; states and reports have a member axis."""

        def one(
            state: TrainState, source: Any, seed: Array, numbers: Any
        ) -> tuple[TrainState, ChunkReport]:
            return self._learner(numbers).chunk(count, state, source, seed)

        if len(seeds) > 1:
            axes = (0, 0 if self._own_sources else None, 0, 0)
            return jax.vmap(one, in_axes=axes)(states, source, seeds, numbers)
        # No vmap for one member: on a CPU, XLA's batched products cost a quarter more.
        state, seed, number = jax.tree.map(lambda leaf: leaf[0], (states, seeds, numbers))
        own = jax.tree.map(lambda leaf: leaf[0], source) if self._own_sources else source
        alone: tuple[TrainState, ChunkReport] = jax.tree.map(
            lambda leaf: leaf[None], one(state, own, seed, number)
        )
        return alone

    def _learner(self, numbers: Any) -> Updates:
        """Return a member's learner."""
        learner: Updates = numbers if self._shared is None else self._shared
        return learner

    def prepare(self, state: TrainState, count: int) -> None:
        chunk = functools.partial(self.chunk, count)
        spread = self._placement.spread_seeds(chunk, (True, self._own_sources, True, True))
        arguments = (state, self._source, self._seeds, self._numbers)
        self.compiled[count] = compile_once(spread, *arguments, donate_argnums=0)

    def advance(self, state: TrainState, step: int, count: int) -> tuple[TrainState, Numbers]:
        state, report = self.compiled[count](state, self._source, self._seeds, self._numbers)
        report = jax.device_get(self._placement.collect(report))  # Waits for the whole chunk.
        bad_steps = report.bad_step
        if np.any(bad_steps >= 0):
            # Entries that could not be read are NaN too, but are not the training's fault.
            raise_read_failure(self._source)
            if not self._resets:
                index = int(np.argmax(bad_steps >= 0))
                raise TrainingDivergedError(
                    f"expected finite losses and parameters, got NaN or infinity at step "
                    f"{int(bad_steps[index])} of seed {int(self._all_seeds[index])}; try a smaller "
                    "learning rate or kappa0"
                )
        return state, report.metrics

    def evaluate(self, state: TrainState, step: int) -> tuple[TrainState, Numbers]:
        if self._observe is not None:

            def first() -> Params:
                return _params_of(self._placement.collect(state.params), 0)

            self._observe(step, first)
        figures = self._figures(state)
        if not self._resets:
            return state, figures
        finite = np.asarray([np.isfinite(value) for value in figures.values()])
        if not finite.all():
            # Finite parameters can give features too large for floats.
            kept = self._placement.put_seeds(jnp.asarray(finite.all(axis=0)))
            state = jax.jit(jax.vmap(zero_unless))(kept, state)._replace(step=state.step)
            figures = self._figures(state)
        return state, {**figures, "diverged": self._placement.collect(all_zero(state.params))}

    def note(self, record: Mapping[str, Any]) -> str:
        if "subspace_distance" in record:
            return f"distance {np.mean(record['subspace_distance']):.3g}"
        return f"loss {np.mean(record['loss']):.3g}" if "loss" in record else ""

    def collect(self, state: TrainState) -> TrainState:
        return self._placement.collect(state)

    def put(self, kept: TrainState) -> TrainState:
        return self._placement.put_seeds(kept)

    def _figures(self, state: TrainState) -> dict[str, np.ndarray]:
        """Measure every member, [members] per measure."""
        evaluate = self._evaluate
        if evaluate is None:
            return {}
        params = self._placement.collect(state.params)

        # On a CPU one member at a time. Two batched decompositions at once can wait for each other
        # forever: jaxlib's LAPACK calls block the threads of the pool on which they wait for their
        # own parts (jaxlib 0.10, CPUs with few cores).
        def mapped(together: int | None) -> Callable[[Params, Any], Any]:
            return lambda *members: jax.lax.map(
                lambda member: evaluate(*member), members, batch_size=together
            )

        def over_members(params: Params, measured: Any) -> Any:
            return jax.lax.platform_dependent(
                params, measured, cpu=mapped(None), default=mapped(_EVALUATED_TOGETHER)
            )

        try:
            if self._figures_of is None:
                self._figures_of = compile_once(over_members, params, self._measured)
            figures = self._figures_of(params, self._measured)
        except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
            raise InputError(
                "expected an evaluate that JAX can trace, as it is jitted and mapped over seeds: "
                "jax.numpy, no NumPy, float() or print of values, got "
                f"{type(error).__name__} within it"
            ) from error
        require(
            isinstance(figures, Mapping),
            "an evaluate that returns a dictionary of scalars by name",
            type(figures).__name__,
        )
        return {**jax.device_get(figures)}


def train(
    encoder: Encoder,
    objective: Objective,
    source: Source,
    *,
    optimizer: Optimizer | optax.GradientTransformation,
    steps: int,
    rows: int = 250,
    tasks: int = 1,
    seeds: Sequence[int] = (0,),
    evaluate: Evaluate | None = None,
    evaluate_every: int = 100,
    folder: RunFolder | None = None,
    loggers: Sequence[Logger] = (),
    checkpoint_every: int | None = None,
    devices: Sequence[jax.Device] | None = None,
    resets_diverged: bool = False,
    description: str = "training",
) -> TrainingResult:
    """Train an encoder for several seeds at once.

    Args:
        encoder: The encoder.
        objective: The objective.
        source: Draws the batches.
        optimizer: The encoder's optimizer; an ``Optimizer`` is scheduled over the run's steps. An
            optax transformation that takes further arguments receives the loss as ``value``.
        steps: Number of updates.
        rows: b, states drawn per update.
        tasks: t, columns drawn per update.
        seeds: One seed per run, in [0, 2³²); the runs are vmapped.
        evaluate: One seed's parameters → named scalars, called every ``evaluate_every`` updates,
            before the first and after the last; for example ``GroundTruth.evaluation(encoder)``.
            It is traced by ``jax.jit``: write it in ``jax.numpy``.
        evaluate_every: Updates between evaluations, and in one chunk on the device.
        folder: Where to log metrics and keep checkpoints; an interrupted run resumes from it.
        loggers: Receive the figures of every evaluation, as means over seeds: objects with
            ``log(figures, step=...)`` and ``finish()``, such as what ``wandb.init`` returns.
        checkpoint_every: Updates between checkpoints, a multiple of ``evaluate_every``; None is the
            least multiple from 500 on. After one, those due within a second, or within 19 times as
            long as it took to write, are left out.
        devices: Where to train (see ``devices``); None is JAX's default device. Devices change
            results by rounding at most, and an interrupted run may resume on others.
        resets_diverged: Whether a seed that diverges is set to zero, and marked ``diverged`` in
            every later record, instead of stopping the run.
        description: Title of the progress bar.

    Returns:
        The final state, on the first of the devices, and the history.

    Raises:
        InputError: If counts are below 1, devices are not this process's, the folder's checkpoint
            or metrics cannot be read or belong to a longer run, or a streamed source could not
            read entries.
        TrainingDivergedError: When a loss or any number of the state becomes NaN or infinite.
    """
    require_positive("steps", steps)
    tree = not jax.tree_util.all_leaves([source])
    require(tree, "a source that is a pytree (jax.tree_util.register_dataclass)", source)
    if isinstance(objective, Explicit) and objective.num_tasks is None:
        objective = with_sizes(objective, num_tasks=getattr(source, "num_tasks", None))
    if isinstance(optimizer, Optimizer):
        optimizer = with_sizes(optimizer, steps=steps)
        if isinstance(objective, Explicit) and objective.encoder_learning_rate is None:
            objective = with_sizes(objective, encoder_learning_rate=optimizer.learning_rate)
    learner = Learner(
        encoder=encoder,
        objective=objective,
        optimizer=optimizer,
        rows=rows,
        tasks=tasks,
        resets_diverged=resets_diverged,
    )
    return train_population(
        learner,
        source,
        steps=steps,
        seeds=seeds,
        own_numbers=False,
        evaluate=None if evaluate is None else lambda params, _: evaluate(params),
        evaluate_every=evaluate_every,
        folder=folder,
        loggers=loggers,
        checkpoint_every=checkpoint_every,
        devices=devices,
        description=description,
    )


def train_population(
    learner: Updates,
    source: Any,
    *,
    steps: int,
    seeds: Sequence[int],
    own_numbers: bool = True,
    own_sources: bool = False,
    evaluate: EvaluateMember | None = None,
    measured: Any = (),
    observe: Observer | None = None,
    evaluate_every: int = 100,
    folder: RunFolder | None = None,
    loggers: Sequence[Logger] = (),
    checkpoint_every: int | None = None,
    devices: Sequence[jax.Device] | None = None,
    description: str = "training",
) -> TrainingResult:
    """Train the members of one compiled program, which may differ in more than their seeds.

    Args:
        learner: Makes the updates (see ``stack``), such as a ``Learner``.
        source: A ``Source``, or another object that the updates draw from.
        steps: Number of updates.
        seeds: One for each member, in [0, 2³²); members with equal seeds draw equal numbers.
        own_numbers: Whether the learner's numbers have a leading member axis.
        own_sources: Whether every leaf of the source has a leading member axis.
        evaluate: One member's parameters and ``measured`` → named scalars.
        measured: The second argument of ``evaluate``, with leaves [members, ...].
        observe: Called before each evaluation with the step and a function that returns the first
            member's parameters.
        evaluate_every: As for ``train``.
        folder: The run's folder.
        loggers: As for ``train``.
        checkpoint_every: As for ``train``.
        devices: Where to train; members are distributed like seeds.
        description: Title of the progress bar.

    Returns:
        The final state, whose leaves have a leading member axis, and the history.

    Raises:
        InputError: As ``train``.
        TrainingDivergedError: When a member's numbers become NaN or infinite and stay so, unless
            the learner resets diverged members.
    """
    require_positive("steps", steps)
    require_positive("evaluate_every", evaluate_every)
    if checkpoint_every is None:
        checkpoint_every = -(-_CHECKPOINT_EVERY // evaluate_every) * evaluate_every
    require_positive("checkpoint_every", checkpoint_every)
    require_seeds(seeds)
    program = Members(
        learner,
        source,
        seeds,
        make_placement(devices, len(seeds)),
        own_numbers=own_numbers,
        own_sources=own_sources,
        evaluate=evaluate,
        measured=measured,
        observe=observe,
    )
    finished = run(
        program,
        steps=steps,
        evaluate_every=evaluate_every,
        checkpoint_every=checkpoint_every,
        folder=folder,
        loggers=loggers,
        description=description,
    )
    return TrainingResult(
        program.collect(finished.state),
        finished.history,
        finished.seconds,
        finished.compile_seconds,
        tuple(map(int, seeds)),
    )
