"""The training loop: scanned updates on the device, a host loop around them.

A ``Learner`` says how one update is made; ``train`` runs it for any number of seeds at once, with
evaluations, checkpoints and exact resumption. Every random draw is keyed by (seed, step), so a run
that was killed and resumed ends with the parameters of one that was not.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import optax
from jax import Array

from rlreps.encoders import Encoder
from rlreps.errors import require, require_positive
from rlreps.losses.base import Objective, Params
from rlreps.runs.folder import RunFolder
from rlreps.runs.progress import progress_bar
from rlreps.sources.matrix import Source
from rlreps.training.devices import make_placement
from rlreps.training.host_loop import EvaluateMember, Loop, Run
from rlreps.training.population import Members
from rlreps.training.update import Learner, TrainState

Evaluate = Callable[[Params], Mapping[str, Array]]
"""One seed's parameters → named scalars; jitted and mapped over seeds by ``train``."""


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
        """Encoder parameters of one seed, by position."""
        return jax.tree.map(lambda leaf: leaf[index], self.state.params)


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
    """Trains an encoder for several seeds at once.

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
        devices: Where to train (see ``placement``); None is JAX's default device. They change
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
    evaluate_member: EvaluateMember | None = None
    if evaluate is not None:
        evaluate_params = evaluate

        def evaluate_member(params: Params, _: Any) -> Mapping[str, Array]:
            return evaluate_params(params)

    return train_members(
        Members(lambda _: learner),
        source,
        (),
        steps=steps,
        seeds=seeds,
        evaluate=evaluate_member,
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
    """Trains members of one compiled program, which may differ in more than their seeds.

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
    require_positive("steps", steps)
    require_positive("evaluate_every", evaluate_every)
    require(
        checkpoint_every >= 1 and checkpoint_every % evaluate_every == 0,
        f"checkpoint_every to be a multiple of evaluate_every ({evaluate_every})",
        checkpoint_every,
    )
    require(
        len(seeds) >= 1 and all(0 <= seed < 2**32 for seed in seeds),
        "at least one seed, each in [0, 2**32)",
        tuple(seeds),
    )
    placement = make_placement(devices, len(seeds))
    run = Run(members, source, settings, tuple(seeds))
    with contextlib.ExitStack() as stack:
        loop = stack.enter_context(contextlib.closing(Loop(run, placement, evaluate, folder)))
        loop.start_or_resume(steps)
        bar = stack.enter_context(
            progress_bar(description, total=steps, done=loop.step, unit="steps", show=progress)
        )
        while loop.step < steps:
            count = min(evaluate_every - loop.step % evaluate_every, steps - loop.step)
            loop.advance(count)
            record = loop.log()
            if loop.step % checkpoint_every == 0 or loop.step == steps:
                loop.save()
            bar(count, _note(record))
    return TrainingResult(
        placement.collect(loop.state),
        tuple(seeds),
        loop.history,
        loop.seconds,
        loop.compile_seconds,
    )


def _note(record: Mapping[str, Any]) -> str:
    """What the progress bar says of a record: the distance, if there is one, or the loss."""
    names = {"distance": "subspace_distance", "loss": "loss"}
    label = "distance" if names["distance"] in record else "loss"
    return f"{label} {np.mean(record[names[label]]):.3g}"
