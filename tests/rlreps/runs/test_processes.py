"""Several processes that run one command: real ones over the loopback interface, and deaths."""

import json
import os
import re
import shutil
import signal
import socket
import time

import numpy as np
import pytest

from rlreps.app.main import main
from rlreps.errors import InputError
from rlreps.runs.checkpoints import Checkpoints
from rlreps.runs.processes import (
    ProcessesConfig,
    first_does,
    process_count,
    process_index,
    require_same,
    together,
)

QUICK = ["successor", "generate", "--quiet", "--bins", "9", "--block-rows", "5"]
QUICK += ["--rollouts", "20", "--horizon", "50"]
TRAIN = ["--quiet", "--num-features", 3, "--rows", 42, "--tasks", 20, "--hidden", 16]
SHORT = [*TRAIN, "--steps", 30, "--evaluate-every", 10, "--checkpoint-every", 10]
ROUNDING = 1e-5
"""Of figures in float32 after 30 updates, by whatever devices and processes; measured: 3e-7."""
TWO_DEVICES = {"XLA_FLAGS": f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=2"}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture
def start_together(start_rlreps):
    """Starts a command as two processes of one run; further arguments may differ."""

    def start(arguments, *, own=((), ()), **options):
        address = f"127.0.0.1:{free_port()}"
        where = ["--coordinator", address, "--num-processes", 2, "--timeout", 60, "--process-id"]
        return [
            start_rlreps(*arguments, *own[index], *where, index, **options) for index in range(2)
        ]

    return start


GLOO = re.compile(
    r"(\[Gloo\]|Rank|is connected to|peer ranks|Expected number of connected|is|\d+|[.:\s])+"
)
"""What JAX's collectives say first; threads of two devices mix the words of their lines."""


def finish(process, timeout=300):
    """Exit code, standard output after the words of JAX's collectives, standard error."""
    out, err = process.communicate(timeout=timeout)
    gloo = GLOO.match(out)
    return process.returncode, out[gloo.end() if gloo else 0 :].rstrip(), err.splitlines()


def alone(*arguments):
    main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """A store by one process."""
    path = tmp_path_factory.mktemp("alone") / "quick"
    alone(*QUICK, "--out", path)
    return path


@pytest.mark.integration
@pytest.mark.parametrize(
    ("damaged", "own", "refused"),
    [
        (True, ((), ()), r"^rlreps: error: .*c/2/0"),
        (False, (["--seed", 0], ["--seed", 1]), "the same run in all processes, got .True, False."),
    ],
    ids=["what process 0 refuses", "other options"],
)
def test_what_is_refused_ends_all_processes_with_one_line(
    start_together, quick, tmp_path, files_below, damaged, own, refused
):
    path = shutil.copytree(quick, tmp_path / "psi")
    if damaged:
        (path / "c" / "2" / "0").write_bytes(b"")
    before = files_below(tmp_path)
    command = ["train", path, *SHORT, "--out", tmp_path / "run"]
    ends = [finish(process) for process in start_together(command, own=own)]
    assert [(code, out, len(said)) for code, out, said in ends] == [(2, "", 1)] * 2
    assert all(re.search(refused, said[0]) for _, _, said in ends)
    assert files_below(tmp_path) == before


PLACE = {"coordinator": "a:1", "num_processes": 2, "process_id": 0}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_processes": 0}, "expected num_processes >= 1, got 0"),
        ({**PLACE, "process_id": -1}, "expected process_id >= 0, got -1"),
        ({**PLACE, "coordinator": "a:65536"}, "port in .1, 65535., got"),
        ({**PLACE, "coordinator": ":80"}, "port in .1, 65535., got"),
    ],
)
def test_a_place_that_cannot_be_is_refused(given, message):
    with pytest.raises(InputError, match=message):
        ProcessesConfig(**given)


def test_a_part_of_a_place_is_refused_where_no_cluster_manager_knows_the_rest():
    with pytest.raises(InputError, match="expected processes that JAX can connect, got "):
        together(ProcessesConfig(process_id=0)).__enter__()


@pytest.mark.integration
def test_a_request_to_end_reaches_a_process_that_waits_for_others(start_rlreps, quick, tmp_path):
    place = ("127.0.0.1", free_port())
    where = ["--coordinator", "{}:{}".format(*place), "--num-processes", 2, "--process-id", 0]
    waiting = start_rlreps("train", quick, *SHORT, "--out", tmp_path / "run", *where)
    with socket.socket() as other:
        while other.connect_ex(place):
            assert waiting.poll() is None
            time.sleep(0.1)
    waiting.terminate()
    assert finish(waiting, timeout=20)[0] == -signal.SIGTERM


def test_without_a_place_a_process_is_alone_and_first():
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with together(ProcessesConfig()):
        assert (process_index(), process_count()) == (0, 1)
        anything = object()
        assert first_does(lambda: anything) is anything
        require_same("thing", anything)
        assert handlers == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]


def figures_of(run):
    """Every figure that a run logged: [records, seeds] by name, the first record without losses."""
    first, *records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    assert [record["step"] for record in (first, *records)] == [0, 10, 20, 30]
    return {
        name: np.asarray([record[name] for record in records])
        for name in ("loss", "subspace_distance", "feature_rank")
    }


@pytest.mark.integration
@pytest.mark.parametrize(
    ("seeds", "where"), [(4, "memory"), (3, "disk")], ids=["seeds", "rows from disk"]
)
def test_processes_train_what_one_does(start_together, quick, tmp_path, seeds, where):
    """Seeds that share out evenly over two devices a process have their own; else rows do."""
    arguments = ["train", quick, *SHORT, "--num-seeds", seeds]
    alone(*arguments, "--out", tmp_path / "one")
    code = "import rlreps.successor.truth.stored_subspace as g; g.IN_MEMORY_BYTES = "
    options = {"first": code + ("0" if where == "disk" else "2**30"), **TWO_DEVICES}
    # A store of their own: what one process kept beside its store is not read.
    arguments[1] = shutil.copytree(
        quick, tmp_path / "psi", ignore=shutil.ignore_patterns("subspace")
    )
    arguments += ["--devices", 2, "--out", tmp_path / "all"]
    ends = [finish(process) for process in start_together(arguments, **options)]
    assert [(code, said) for code, _, said in ends] == [(0, [])] * 2
    assert [out == "" for _, out, _ in ends] == [False, True]
    found, expected = figures_of(tmp_path / "all"), figures_of(tmp_path / "one")
    for name, values in expected.items():
        assert found[name].shape == (3, seeds)
        np.testing.assert_allclose(found[name], values, rtol=0, atol=ROUNDING, err_msg=name)
    if where == "memory":  # Finished: every process sees that it is, and trains no more.
        again = [finish(process) for process in start_together(arguments, **options)]
        assert [(code, out) for code, out, _ in again] == [(0, ends[0][1]), (0, "")]


def newest(run):
    """The last step whose checkpoint is whole."""
    return Checkpoints(run / "checkpoints").latest_step() or 0


@pytest.mark.integration
def test_training_whose_processes_die_goes_on_to_the_same_bits(start_together, quick, tmp_path):
    arguments = ["train", quick, *TRAIN, "--steps", 400, "--num-seeds", 2]
    arguments += ["--evaluate-every", 10, "--checkpoint-every", 50, "--out"]
    out, deadline = tmp_path / "run", time.monotonic() + 300
    running = start_together([*arguments, out])
    while newest(out) == 0:
        assert time.monotonic() < deadline
        assert all(process.poll() is None for process in running)
        time.sleep(0.01)
    # Process 0 writes the checkpoints.
    running[0].send_signal(signal.SIGKILL)
    assert finish(running[0])[0] == -signal.SIGKILL
    assert finish(running[1], timeout=150)[0] != 0
    assert not (out / "summary.json").exists()
    for path in (out, tmp_path / "whole"):
        ends = [finish(process) for process in start_together([*arguments, path])]
        assert [(code, said) for code, _, said in ends] == [(0, [])] * 2
    summaries = [
        json.loads((tmp_path / name / "summary.json").read_text()) for name in ("run", "whole")
    ]
    assert summaries[0]["per_seed"] == summaries[1]["per_seed"]
