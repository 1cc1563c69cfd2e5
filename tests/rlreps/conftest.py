"""Fixtures shared by the tests of training, runs and the command line."""

import contextvars
import dataclasses
import os
import subprocess
import sys
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.app.generation import generate
from rlreps.app.main import main
from rlreps.config import configurable, leaf
from rlreps.operators import Operator
from rlreps.runs.folder import RunFolder
from rlreps.runs.progress import hidden
from rlreps.successor.fitting.transitions import as_transitions
from rlreps.successor.measure.methods import MonteCarlo
from rlreps.successor.truth.store.estimates import open_estimates


@pytest.fixture(scope="session", autouse=True)
def _without_progress_bars():
    with hidden():
        yield


@pytest.fixture
def progress_bars(monkeypatch):
    """Shows the progress bars of one test."""
    shown = contextvars.ContextVar("hidden", default=False)
    monkeypatch.setattr("rlreps.runs.progress._HIDDEN", shown)


@pytest.fixture(scope="session")
def toy_store(tmp_path_factory):
    """A small ground truth, 8 x 8 cells of the sutton arena; tests that change it copy it first."""
    path = tmp_path_factory.mktemp("stores") / "sutton"
    config = MonteCarlo(bins=8, rollouts=40, horizon=60, discount=0.9, block_rows=16)
    generate(config, path)
    return path


@pytest.fixture
def rlreps(capsys):
    """Runs a command that has to succeed and returns what it printed."""

    def run(*arguments):
        main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert captured.err == ""
        return captured.out

    return run


@pytest.fixture
def refused(capsys, tmp_path, files_below):
    """Runs a command that has to fail in one line and leave every file as it was."""

    def run(*arguments):
        before = files_below(tmp_path)
        with pytest.raises(SystemExit) as ending:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert (ending.value.code, captured.out) == (2, "")
        assert captured.err.startswith("rlreps: error: ")
        assert captured.err.count("\n") == 1
        assert captured.err.endswith("\n")
        assert files_below(tmp_path) == before
        return captured.err.removeprefix("rlreps: error: ").strip()

    return run


@pytest.fixture
def run_folder(tmp_path):
    """Opens the folder of a run, by default the test's own."""

    def open_folder(path=tmp_path):
        return RunFolder.create_or_resume(path, kind="test", config={}, provenance={})

    return open_folder


class Killed(BaseException):
    """Stands for whatever ends a process."""


@pytest.fixture
def killed_when_logging(monkeypatch):
    """Starts a run in this process that ends as if killed when it is about to log a step."""

    def start(step, function, *arguments, **options):
        append = RunFolder.append_metrics

        def die(self, record):
            if record["step"] == step:
                raise Killed
            append(self, record)

        with monkeypatch.context() as patch:
            patch.setattr(RunFolder, "append_metrics", die)
            with pytest.raises(Killed):
                function(*arguments, **options)

    return start


@pytest.fixture(scope="session")
def assert_same_metrics():
    """Asserts that two runs logged the same but for the time."""

    def compare(one, other):
        records = (RunFolder(path).read_metrics() for path in (one, other))
        for first, second in zip(*records, strict=True):
            assert {**first, "seconds": 0} == {**second, "seconds": 0}

    return compare


@pytest.fixture(scope="session")
def files_below():
    """Folder → content of every file below it, by relative name."""

    def read(folder):
        return {
            str(file.relative_to(folder)): file.read_bytes() if file.is_file() else None
            for file in sorted(folder.rglob("*"))
        }

    return read


@pytest.fixture(scope="session")
def block_bytes():
    """Folder of a store → content of every block of both arrays that is there, by relative name."""

    def read(folder):
        return {
            str(file.relative_to(folder)): file.read_bytes()
            for part in open_estimates(folder).stores()
            for file in map(part.block_file, range(part.num_blocks))
            if file.exists()
        }

    return read


@pytest.fixture(scope="session")
def start_rlreps():
    """Starts the command in a process of its own, with compiled programs kept.

    ``first`` is Python that the process runs before the command; ``variables`` join its
    environment.
    """
    started = []
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }

    def start(*arguments, first="pass", **variables):
        command = f"{first}\nfrom rlreps.app.main import main; main()"
        process = subprocess.Popen(
            [sys.executable, "-c", command, *map(str, arguments)],
            env=environment | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@dataclasses.dataclass(frozen=True)
class Chain:
    """States x actions; the data have every transition as often as their policy makes it likely.

    Attributes:
        counts: Number of transitions (s, a, s'), [n, A, n]. The data leave out terminal states.
        terminal: Whether a state is terminal, [n].
        discount: γ.
    """

    counts: np.ndarray
    terminal: np.ndarray
    discount: float = 0.8

    @property
    def size(self):
        return len(self.counts)

    @property
    def probabilities(self):
        return self.counts / np.maximum(self.counts.sum(axis=2, keepdims=True), 1)

    @property
    def behaviour(self):
        """Share of each action in the data of a state, [n, A]."""
        taken = self.counts.sum(axis=2) + (self.counts.sum(axis=(1, 2)) == 0)[:, None]
        return taken / taken.sum(axis=1, keepdims=True)

    def policy_matrix(self, policy=None):
        """P_π [n, n]; terminal states lead nowhere."""
        weights = self.behaviour if policy is None else np.eye(self.counts.shape[1])[policy]
        return np.einsum("sa,sap->sp", weights, self.probabilities) * ~self.terminal[:, None]

    def measure(self, policy=None):
        """M [n, A, n] = Σ_t γᵗ P(S_{t+1} = s' | s, a)."""
        following = np.eye(self.size) - self.discount * self.policy_matrix(policy)
        return self.probabilities @ np.linalg.inv(following)

    def optimal_policy(self, rewards):
        """The best action of every state for rewards on arrival, by value iteration."""
        values = np.zeros(self.size)
        for _ in range(500):
            later = rewards + self.discount * np.where(self.terminal, 0.0, values)
            actions = self.probabilities @ later
            values = actions.max(axis=1)
        return actions.argmax(axis=1)

    def transitions(self):
        """Return every transition from a state that is not terminal, as its own episode."""
        starts, actions, ends = [], [], []
        for (state, action, end), count in np.ndenumerate(self.counts):
            if not self.terminal[state]:
                starts += [state] * count
                actions += [action] * count
                ends += [end] * count
        return as_transitions([starts, actions, ends, self.terminal[ends], [True] * len(ends)])

    def reached(self):
        """Distribution of the states reached, [n]."""
        data = self.transitions()
        return np.bincount(data.next_observation, minlength=self.size) / len(data)


def ring(terminal):
    """Four states; action 0 goes on with chance 3/4, action 1 back with 1/2; else they stay."""
    quarters = np.zeros((4, 2, 4), int)
    for state in range(4):
        quarters[state, 0, (state + 1) % 4] += 3
        quarters[state, 0, state] += 1
        quarters[state, 1, (state - 1) % 4] += 2
        quarters[state, 1, state] += 2
    # Less symmetry: singular values differ.
    quarters[1, 1] = [1, 0, 3, 0]
    ends = np.zeros(4, bool)
    ends[3] = terminal
    return Chain(quarters, ends)


@pytest.fixture(scope="session")
def make_chain():
    """Makes a chain of counts and terminal states of one's own."""
    return Chain


@pytest.fixture(scope="session", params=[False, True], ids=["endless", "terminal"])
def chain(request):
    return ring(request.param)


@pytest.fixture(scope="session")
def corridor():
    """Five states in a line, moves left and right, which slip with chance 1/4."""
    quarters = np.zeros((5, 2, 5), int)
    for state in range(5):
        for action, step in enumerate((-1, 1)):
            quarters[state, action, np.clip(state + step, 0, 4)] += 3
            quarters[state, action, state] += 1
    return Chain(quarters, np.zeros(5, bool))


def _is_number(text):
    """Tell whether a tick's label is a number, and no name that says what it is itself."""
    text = text.replace("\N{MINUS SIGN}", "-").replace(",", "").strip(" %")
    try:
        return bool(text) and float(text) is not None
    except ValueError:
        return "mathdefault" in text


def unlabelled(figure):
    """List the axes of a drawn figure that have numbers and no label of their own or in common."""
    found = []
    for number, axes in enumerate(figure.axes):
        if not (axes.axison and axes.get_visible()):
            continue
        for name, common in (("x", figure.get_supxlabel()), ("y", figure.get_supylabel())):
            axis = getattr(axes, f"{name}axis")
            together = getattr(axes, f"get_shared_{name}_axes")().get_siblings(axes)
            # Short names stand between the ends of a map's axes, as ticks.
            shown = [tick.get_text() for tick in axis.get_ticklabels() if tick.get_visible()]
            labels = [getattr(each, f"get_{name}label")() for each in together]
            named = any(labels) or common or any(text and not _is_number(text) for text in shown)
            if axis.get_visible() and any(map(_is_number, shown)) and not named:
                found.append(f"{name} of axes {number} ({axes.get_title()!r}): {shown}")
    return found


@pytest.fixture(scope="session", autouse=True)
def _every_axis_is_labelled():
    """Look at every figure that any test draws into a file or a page."""
    from rlreps import plotting
    from rlreps.plotting import style

    draw = style.figure_bytes

    def checked(figure, **options):
        drawn = draw(figure, **options)
        assert unlabelled(figure) == []
        return drawn

    with pytest.MonkeyPatch.context() as patch:
        for module in (plotting, style):
            patch.setattr(module, "figure_bytes", checked)
        yield


@configurable
@dataclasses.dataclass(frozen=True, eq=False)
class Matrix(Operator):
    """(Ku)(s) = Σ_s' K[s, s'] u(s') at indices of states."""

    values: Any = leaf()

    def apply(self, sample):
        every = sample.function(jnp.arange(len(self.values)))
        return (jnp.asarray(self.values) @ every)[sample.inputs]


@pytest.fixture(scope="session")
def matrix_operator():
    """Returns the class of operators that are matrices."""
    return Matrix
