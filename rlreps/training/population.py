"""Training of several runs that one compiled program makes together: its members.

Members differ in their seeds and, if asked, in numbers that a learner is built from (``settings``)
and in the source that they learn from. Whatever decides a shape is common to them.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from rlreps.encoders import Encoder, Params
from rlreps.errors import TrainingDivergedError, require, require_positive
from rlreps.losses.base import Objective
from rlreps.runs.folder import RunFolder
from rlreps.sources.matrix import Source
from rlreps.sources.store import raise_read_failure
from rlreps.training.devices import Placement, make_placement
from rlreps.training.loop import Figures, Program, run
from rlreps.training.update import Build, ChunkReport, Learner, TrainState, zero_unless

Evaluate: TypeAlias = Callable[[Params], Mapping[str, Array]]
"""One seed's parameters → named scalars; jitted and mapped over seeds by ``train``."""

EvaluateMember: TypeAlias = Callable[[Params, Any], Mapping[str, Array]]
"""One member's parameters and settings → named scalars; mapped by ``train_members``."""

_EVALUATED_TOGETHER = 16


@dataclasses.dataclass(frozen=True)
class Members:
    """How all members' updates are made.

    Attributes:
        build: One member's settings → its learner.
        own_sources: Whether every leaf of the source has a leading member axis.
    """

    build: Build
    own_sources: bool = False

    def init(self, seeds: Array, settings: Any) -> TrainState:
        """Return states before the first update, for seeds [members], settings [members, ...]."""
        states: TrainState = jax.vmap(lambda seed, each: self.build(each).init(seed))(
            seeds, settings
        )
        return states

    def chunk(
        self, num_steps: int, states: TrainState, source: Source, seeds: Array, settings: Any
    ) -> tuple[TrainState, ChunkReport]:
        """Make ``Learner.chunk`` for every member; states and reports have a member axis."""

        def one(
            state: TrainState, source: Source, seed: Array, each: Any
        ) -> tuple[TrainState, ChunkReport]:
            return self.build(each).chunk(num_steps, state, source, seed)

        if len(seeds) > 1:
            axes = (0, 0 if self.own_sources else None, 0, 0)
            return jax.vmap(one, in_axes=axes)(states, source, seeds, settings)
        # A batch of one would cost a quarter more on a CPU, where XLA keeps its products batched.
        state, seed, each = jax.tree.map(lambda leaf: leaf[0], (states, seeds, settings))
        own = jax.tree.map(lambda leaf: leaf[0], source) if self.own_sources else source
        alone: tuple[TrainState, ChunkReport] = jax.tree.map(
            lambda leaf: leaf[None], one(state, own, seed, each)
        )
        return alone


@dataclasses.dataclass(frozen=True)
class TrainingResult:
    """A finished run.

    Attributes:
        state: Final state; every leaf has a leading seed axis.
        seeds: The seeds, in the order of that axis.
        history: One record per evaluation: ``step``, ``seconds``, ``loss`` and every evaluated
            figure, the last two as lists over seeds.
        seconds: Time spent in updates, without compilation and evaluation.
        compile_seconds: Time spent compiling, in this process.
    """

    state: TrainState
    seeds: tuple[int, ...]
    history: list[dict[str, Any]]
    seconds: float
    compile_seconds: float

    def params(self, index: int = 0) -> Params:
        """Return the encoder parameters of one seed, by position."""
        return jax.tree.map(lambda leaf: leaf[index], self.state.params)


class Population(Program[TrainState]):
    """The training of all members, as the host loop runs it.

    Attributes:
        compiled: Number of updates → the compiled chunk of so many.
    """

    def __init__(
        self,
        members: Members,
        source: Source,
        settings: Any,
        seeds: Sequence[int],
        placement: Placement,
        evaluate: EvaluateMember | None,
    ) -> None:
        """Place everything; see ``train_members`` for the arguments."""
        learner = members.build(jax.tree.map(lambda leaf: leaf[0], settings))
        self._resets, objective = learner.resets_diverged, learner.objective
        # States are collected only for objectives that have something to say about them.
        silent = type(objective).diagnose is Objective.diagnose
        self._diagnose = None if silent else objective.diagnose
        self._own, self._placement = members, placement
        self._members = dataclasses.replace(members, build=placement.spread_rows(members.build))
        put_source = placement.put_seeds if members.own_sources else placement.put
        self._source = put_source(source)
        self._keys = jnp.asarray(seeds, jnp.uint32)
        self._numbers = settings
        self._seeds, self._settings = placement.put_seeds((self._keys, settings))
        self._evaluate = None if evaluate is None else jax.jit(_over_members(evaluate))
        self.compiled: dict[int, Any] = {}
        self._findings: list[str | None] = [None] * len(seeds)

    def init(self) -> TrainState:
        return self.put(self._own.init(self._keys, self._numbers))

    def prepare(self, state: TrainState, count: int) -> None:
        chunk = functools.partial(self._members.chunk, count)
        spread = self._placement.spread_seeds(chunk, own_sources=self._members.own_sources)
        lowered = jax.jit(spread).lower(state, self._source, self._seeds, self._settings)
        self.compiled[count] = lowered.compile()

    def advance(self, state: TrainState, step: int, count: int) -> tuple[TrainState, Figures]:
        state, report = self.compiled[count](state, self._source, self._seeds, self._settings)
        bad_steps = np.asarray(report.bad_step)  # Waits for the whole chunk.
        if np.any(bad_steps >= 0):
            # Entries that could not be read are NaN too, and no fault of the training.
            raise_read_failure(self._source)
        if not self._resets:
            self._require_finite(bad_steps)
            self._require_health(state)
        return state, {"loss": report.loss}

    def evaluate(self, state: TrainState, step: int) -> tuple[TrainState, Figures]:
        figures = self._figures(state)
        measured = np.asarray([np.isfinite(value) for value in figures.values()])
        if not self._resets:
            return state, figures
        if not measured.all():
            # Finite parameters can give features too large for numbers.
            kept = self._placement.put_seeds(jnp.asarray(measured.all(axis=0)))
            state = jax.vmap(zero_unless)(kept, state)
            figures = self._figures(state)
        return state, {**figures, "diverged": _all_zero(state.params)}

    def note(self, record: Mapping[str, Any]) -> str:
        names = {"distance": "subspace_distance", "loss": "loss"}
        label = "distance" if names["distance"] in record else "loss"
        return f"{label} {np.mean(record[names[label]]):.3g}"

    def collect(self, state: TrainState) -> TrainState:
        return self._placement.collect(state)

    def put(self, kept: TrainState) -> TrainState:
        return self._placement.put_seeds(kept)

    def _figures(self, state: TrainState) -> dict[str, np.ndarray]:
        """Measure every member, [members] each."""
        if self._evaluate is None:
            return {}
        figures = self._evaluate(*self._placement.collect((state.params, self._settings)))
        return {name: np.asarray(value) for name, value in figures.items()}

    def _require_finite(self, bad_steps: np.ndarray) -> None:
        if np.any(bad_steps >= 0):
            index = int(np.argmax(bad_steps >= 0))
            raise TrainingDivergedError(
                f"expected finite losses and parameters, got NaN or infinity at step "
                f"{int(bad_steps[index])} of seed {int(self._keys[index])}; try a smaller learning "
                "rate or kappa0"
            )

    def _require_health(self, state: TrainState) -> None:
        """Raise what an objective says of a member's state after two chunks in a row, if anything.

        What one batch alone shows can pass: a young network's features often nearly depend.
        """
        if self._diagnose is None:
            return
        objective = self._placement.collect(state.objective)
        for index, seed in enumerate(self._keys):
            finding, before = self._diagnose(objective, index), self._findings[index]
            self._findings[index] = finding
            if finding is not None and finding == before:
                raise TrainingDivergedError(
                    f"{finding}, at step {int(state.step[index]) - 1} of seed {int(seed)}; try a "
                    "smaller learning rate, fewer features or a larger encoder"
                )


def train(
    encoder: Encoder,
    objective: Objective,
    source: Source,
    *,
    optimizer: optax.GradientTransformation,
    steps: int,
    rows: int = 250,
    tasks: int = 1,
    seeds: Sequence[int] = (0,),
    evaluate: Evaluate | None = None,
    evaluate_every: int = 100,
    folder: RunFolder | None = None,
    checkpoint_every: int = 500,
    devices: Sequence[jax.Device] | None = None,
    description: str = "training",
    progress: bool = True,
) -> TrainingResult:
    """Train an encoder for several seeds at once.

    Args:
        encoder: The encoder.
        objective: The objective.
        source: Where batches come from.
        optimizer: The encoder's optimizer.
        steps: Updates.
        rows: b, states drawn per update.
        tasks: t, columns drawn per update.
        seeds: One run each, vmapped; in [0, 2³²).
        evaluate: One seed's parameters → named scalars, called every ``evaluate_every`` updates,
            before the first and after the last.
        evaluate_every: Updates between evaluations, and in one chunk on the device.
        folder: Where to log metrics and keep checkpoints; an interrupted run resumes from it.
        checkpoint_every: Updates between checkpoints, a multiple of ``evaluate_every``.
        devices: Where to train (see ``devices``); None is JAX's default device. They change
            results by rounding at most, and an interrupted run may resume on others.
        description: Title of the progress bar.
        progress: Whether to show one.

    Returns:
        The final state, on the first of the devices, and the history.

    Raises:
        InputError: For counts below 1, devices that are not this process's, a folder whose
            checkpoint or metrics cannot be read or are of a longer run, or entries that a streamed
            source could not read.
        TrainingDivergedError: When a loss or any number of the state becomes NaN or infinite.
    """
    for name, value in (("rows", rows), ("tasks", tasks)):
        require_positive(name, value)
    learner = Learner(
        encoder=encoder, objective=objective, optimizer=optimizer, rows=rows, tasks=tasks
    )
    return train_members(
        Members(lambda _: learner),
        source,
        (),
        steps=steps,
        seeds=seeds,
        evaluate=None if evaluate is None else lambda params, _: evaluate(params),
        evaluate_every=evaluate_every,
        folder=folder,
        checkpoint_every=checkpoint_every,
        devices=devices,
        description=description,
        progress=progress,
    )


def train_members(
    members: Members,
    source: Source,
    settings: Any,
    *,
    steps: int,
    seeds: Sequence[int],
    evaluate: EvaluateMember | None = None,
    evaluate_every: int = 100,
    folder: RunFolder | None = None,
    checkpoint_every: int = 500,
    devices: Sequence[jax.Device] | None = None,
    description: str = "training",
    progress: bool = True,
) -> TrainingResult:
    """Train members of one compiled program, which may differ in more than their seeds.

    Where ``members`` builds learners with ``resets_diverged``, a member that diverges is set to
    zero and the others go on; every record then says under ``diverged`` which have.

    Args:
        members: How updates are made.
        source: Where batches come from; with ``members.own_sources``, leaves are [members, ...].
        settings: What learners are built from, a pytree of arrays [members, ...]; ``()`` is none.
        steps: Updates.
        seeds: One for each member, in [0, 2³²); members with equal seeds draw equal numbers.
        evaluate: One member's parameters and settings → named scalars.
        evaluate_every: As for ``train``, and so are the rest.
        folder: The run's folder.
        checkpoint_every: Updates between checkpoints.
        devices: Where to train; members are shared out as seeds are.
        description: Title of the progress bar.
        progress: Whether to show one.

    Returns:
        The final state, whose leaves have a leading member axis, and the history.

    Raises:
        InputError: As ``train``.
        TrainingDivergedError: When a member's numbers become NaN or infinite and stay so.
    """
    require(
        len(seeds) >= 1 and all(0 <= seed < 2**32 for seed in seeds),
        "at least one seed, each in [0, 2**32)",
        tuple(seeds),
    )
    placement = make_placement(devices, len(seeds))
    program = Population(members, source, settings, seeds, placement, evaluate)
    finished = run(
        program,
        steps=steps,
        evaluate_every=evaluate_every,
        checkpoint_every=checkpoint_every,
        folder=folder,
        description=description,
        progress=progress,
    )
    return TrainingResult(
        program.collect(finished.state),
        tuple(seeds),
        finished.history,
        finished.seconds,
        finished.compile_seconds,
    )


def _over_members(evaluate: EvaluateMember) -> EvaluateMember:
    """Map an evaluation over members, some at a time.

    Every member's activations at all states can be many times as large as its parameters.
    """

    def evaluate_all(params: Params, settings: Any) -> Mapping[str, Array]:
        count = len(jax.tree.leaves(params)[0])
        if count <= _EVALUATED_TOGETHER:
            return jax.vmap(evaluate)(params, settings)
        figures: Mapping[str, Array] = jax.lax.map(
            lambda member: evaluate(*member),
            (params, settings),
            batch_size=_EVALUATED_TOGETHER,
        )
        return figures

    return evaluate_all


@jax.jit
def _all_zero(params: Params) -> Array:
    """Say which members have no parameter but zeros: those that were reset, [members] (bool)."""
    leaves = [jnp.all(leaf.reshape(len(leaf), -1) == 0, axis=1) for leaf in jax.tree.leaves(params)]
    return jnp.all(jnp.stack(leaves), axis=0)
