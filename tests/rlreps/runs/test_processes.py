"""Several processes that run one command: real ones over the loopback interface, and deaths."""

import json
import os
import re
import shutil
import signal
import socket
import threading
import time

import jax.numpy as jnp
import numpy as np
import pytest

from rlreps.cli import main
from rlreps.errors import InputError
from rlreps.experiments import EXPERIMENTS, harness
from rlreps.runs import processes
from rlreps.runs.processes import (
    ProcessesConfig,
    first_does,
    process_count,
    process_index,
    together,
    wait_for_all,
)
from rlreps.subspace import RandomizedSVD, subspace_distance
from rlreps.successor.ground_truth import principal_subspace
from rlreps.successor.store import open_store
from rlreps.successor.store.estimates import open_estimates

ARENA = ["successor", "generate", "--quiet", "--bins", "9", "--block-rows", "5"]
QUICK = [*ARENA, "--rollouts", "20", "--horizon", "50"]
NUM_BLOCKS = 17  # 81 rows in blocks of 5
# A few dozen start cells are simulated at a time. Here each of two processes that have one core
# does so six times, a good part of a second each: there is a middle to stop it in.
LONG = ["successor", "generate", "--quiet", "--bins", "20", "--block-rows", "20"]
LONG += ["--rollouts", "60", "--horizon", "1000"]
LONG_NUM_BLOCKS = 20
HEARTBEAT = 10
TRAIN = ["--quiet", "--num-features", 3, "--rows", 42, "--tasks", 20, "--hidden", 16]
SHORT = [*TRAIN, "--steps", 30, "--evaluate-every", 10, "--checkpoint-every", 10]
ROUNDING = 1e-5
"""Of figures in float32 after 30 updates, by whatever devices and processes; measured: 3e-7."""
TWO_DEVICES = {"XLA_FLAGS": f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=2"}
ONE_CORE = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def finish(process, timeout=100):
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out, err.splitlines()


@pytest.fixture
def start_together(start_rlreps):
    """Starts a command as several processes of one run."""

    def start(arguments, out, count=2, **options):
        place = ["--coordinator", f"127.0.0.1:{free_port()}", "--num-processes", count]
        place += ["--timeout", 60, "--heartbeat", HEARTBEAT, "--process-id"]
        where = [] if out is None else ["--out", out]
        return [
            start_rlreps(*arguments, *where, *place, index, **options) for index in range(count)
        ]

    return start


def alone(arguments, out):
    main([*arguments, "--out", str(out)])
    return out


@pytest.fixture(scope="module")
def quick(block_bytes, tmp_path_factory):
    """A store by one process."""
    path = alone(QUICK, tmp_path_factory.mktemp("alone") / "quick")
    assert len(block_bytes(path)) == 2 * NUM_BLOCKS
    return path


@pytest.fixture(scope="module")
def long_content(block_bytes, tmp_path_factory):
    """What the long command writes."""
    content = block_bytes(alone(LONG, tmp_path_factory.mktemp("alone") / "long"))
    assert len(content) == 2 * LONG_NUM_BLOCKS
    return content


def require_named(victim, code, out, said):
    """What another process ends with when the victim has died."""
    assert (code, out) == (1, ""), said
    if victim == 0:  # JAX has its say before.
        assert re.search("^rlreps: error: process 0, or the way to it, is gone; the same", said[-1])
    else:
        (line,) = said
        assert re.search(
            rf"^rlreps: error: expected 2 processes, got no sign of life for {HEARTBEAT} seconds "
            rf"from process {victim}; the same command, started everywhere, goes on from what was "
            "saved$",
            line,
        )


def blocks_of(path, index, count):
    """Indices of the blocks that one of several processes has written."""
    written = [int(file.parent.name) for file in path.glob("c/*/0")]
    return [block for block in written if block % count == index]


def wait_for_a_block(path, running, index=0):
    """Until one of the processes has written a block, while all of them work."""
    deadline = time.monotonic() + 100
    while not blocks_of(path, index, len(running)):
        assert all(process.poll() is None for process in running), [
            process.communicate() for process in running
        ]
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.integration
def test_no_thread_outlives_its_run(start_together, tmp_path):
    """One that returns from JAX while Python shuts down would abort the process."""
    told = "print(*(each.name for each in threading.enumerate() if each.daemon), file=sys.stderr)"
    first = f"import atexit, sys, threading; atexit.register(lambda: {told})"
    ends = [finish(process) for process in start_together(QUICK, tmp_path / "psi", first=first)]
    assert [(code, said) for code, _, said in ends] == [(0, [""])] * 2


@pytest.mark.integration
def test_two_processes_write_the_bytes_of_one_and_share_the_work(
    start_together, block_bytes, quick, tmp_path
):
    ends = [finish(process) for process in start_together(QUICK, tmp_path / "psi")]
    assert [(code, said) for code, _, said in ends] == [(0, []), (0, [])]
    assert json.loads(ends[0][1])["computed_rows"] == 81
    assert ends[1][1] == ""  # Process 0 speaks for all.
    assert block_bytes(tmp_path / "psi") == block_bytes(quick)
    assert not [file for file in (tmp_path / "psi").iterdir() if "lock" in file.name]


@pytest.mark.integration
def test_two_processes_fill_the_gaps_that_one_left(start_together, block_bytes, quick, tmp_path):
    path = shutil.copytree(quick, tmp_path / "psi")
    store = open_estimates(path)
    for index in (0, 3, 16):
        store.remove_block(index)
    ends = [finish(process) for process in start_together(QUICK, path)]
    assert [code for code, _, _ in ends] == [0, 0]
    assert block_bytes(path) == block_bytes(quick)


@pytest.mark.integration
@pytest.mark.parametrize("what", ["settings", "damage", "other files"])
def test_a_store_that_is_refused_ends_both_with_one_line(
    start_together, quick, tmp_path, files_below, what
):
    path, arguments = tmp_path / "psi", QUICK
    if what == "other files":
        path.mkdir()
        (path / "thesis.tex").write_text("precious")
        message = r"expected a new or empty folder .*thesis\.tex"
    else:
        shutil.copytree(quick, path)
        if what == "settings":
            arguments, message = [*QUICK, "--seed", "1"], "expected seed=0 as stored, got seed=1"
        else:
            (path / "c" / "2" / "0").write_bytes(b"")
            message = r"expected sound blocks to resume from, got block 2 \("
    before = files_below(path)
    (first, _, said), (second, _, other_said) = map(finish, start_together(arguments, path))
    assert (first, second) == (2, 2)
    assert len(said) == len(other_said) == 1
    assert re.search(f"^rlreps: error: .*{message}", said[0])
    assert re.search(f"^rlreps: error: process 0 failed: .*{message}", other_said[0])
    assert files_below(path) == before


@pytest.mark.integration
@pytest.mark.parametrize("victim", [0, 1])
def test_the_death_of_a_process_stops_the_other_and_the_run_goes_on_when_started_again(
    start_together, freeze, block_bytes, long_content, tmp_path, victim
):
    path = tmp_path / "psi"
    running = start_together(LONG, path, first=ONE_CORE)
    wait_for_a_block(path, running, victim)
    freeze(*running)
    assert len(blocks_of(path, victim, 2)) < LONG_NUM_BLOCKS // 2
    running[victim].send_signal(signal.SIGKILL)
    assert finish(running[victim])[0] == -signal.SIGKILL
    running[1 - victim].send_signal(signal.SIGCONT)
    require_named(victim, *finish(running[1 - victim], timeout=6 * HEARTBEAT))
    before = block_bytes(path)
    assert 2 <= len(before) < 2 * LONG_NUM_BLOCKS
    assert all(not report.damaged_blocks for report in open_estimates(path).verify(None))
    assert all(long_content[name] == data for name, data in before.items())
    ends = [finish(process) for process in start_together(LONG, path)]
    assert [(code, said) for code, _, said in ends] == [(0, []), (0, [])]
    assert block_bytes(path) == long_content
    assert not [file for file in path.iterdir() if "lock" in file.name]


@pytest.mark.integration
def test_a_second_run_on_a_store_in_use_is_refused_and_the_first_goes_on(
    start_together, start_rlreps, freeze, block_bytes, long_content, tmp_path
):
    path = tmp_path / "psi"
    first = start_rlreps(*LONG, "--out", path, first=ONE_CORE)
    wait_for_a_block(path, [first])
    freeze(first)
    before = block_bytes(path)
    assert len(before) < 2 * LONG_NUM_BLOCKS
    intruders = [start_rlreps(*LONG, "--out", path), *start_together(LONG, path)]
    ends = [finish(process) for process in intruders]
    assert [code for code, _, _ in ends] == [2, 2, 2]
    in_use = rf"expected .*psi to be free, got it in use by process {first.pid} on "
    for _, out, said in ends:
        assert (out, len(said)) == ("", 1)
        assert re.search(in_use, said[0])
    assert "process 0 failed: " in ends[2][2][0]
    assert block_bytes(path) == before
    first.send_signal(signal.SIGCONT)
    assert finish(first)[0] == 0
    assert block_bytes(path) == long_content


@pytest.mark.integration
@pytest.mark.parametrize("index", [0, 1])
def test_others_that_never_come_are_an_error_after_the_timeout(start_rlreps, tmp_path, index):
    place = ["--coordinator", f"127.0.0.1:{free_port()}", "--num-processes", 2, "--timeout", 3]
    process = start_rlreps(*QUICK, "--out", tmp_path / "psi", *place, "--process-id", index)
    code, out, said = finish(process)  # JAX's own timeout would be longer than this waits.
    assert (code, out) == (2, ""), said
    # What follows in process 0 are the farewells of JAX's service.
    assert len(said) == 1 or index == 0
    assert re.search(
        r"^rlreps: error: expected 2 processes to meet at 127\.0\.0\.1:\d+, got", said[0]
    )
    assert not (tmp_path / "psi").exists()


@pytest.mark.integration
def test_the_death_of_the_first_while_others_wait_for_a_third_is_noticed(start_rlreps, tmp_path):
    place = ["--coordinator", f"127.0.0.1:{free_port()}", "--num-processes", 3]
    place += ["--timeout", 90, "--heartbeat", HEARTBEAT, "--process-id"]
    running = [start_rlreps(*QUICK, "--out", tmp_path / "psi", *place, index) for index in range(2)]
    time.sleep(8)  # Both have started, and wait.
    assert [process.poll() for process in running] == [None, None]
    began = time.monotonic()
    running[0].send_signal(signal.SIGKILL)
    code, out, said = finish(running[1])
    assert time.monotonic() - began < 4 * HEARTBEAT
    assert (code, out) == (2, ""), said
    assert re.search("expected 3 processes to meet at .*, got", said[-1])
    assert not (tmp_path / "psi").exists()


@pytest.mark.integration
@pytest.mark.parametrize("asked", [0, 1])
def test_all_end_when_one_is_asked_to_end_and_go_on_when_started_again(
    start_together, block_bytes, long_content, tmp_path, asked
):
    path = tmp_path / "psi"
    running = start_together(LONG, path, first=ONE_CORE)
    wait_for_a_block(path, running)
    began = time.monotonic()
    running[asked].send_signal(signal.SIGTERM)
    ends = [finish(process) for process in running]
    assert time.monotonic() - began < 2 * HEARTBEAT
    assert [(code, out) for code, out, _ in ends] == [(143, "")] * 2
    assert ends[asked][2][0] == "rlreps: asked to end; the same command goes on from what was saved"
    assert re.search(
        f"^rlreps: error: process {asked} got SIGTERM; the same", ends[1 - asked][2][0]
    )
    ends = [finish(process) for process in start_together(LONG, path)]
    assert [(code, said) for code, _, said in ends] == [(0, []), (0, [])]
    assert block_bytes(path) == long_content


@pytest.mark.integration
def test_a_process_that_is_asked_to_end_while_it_waits_for_others_says_so(start_rlreps, tmp_path):
    port = free_port()
    place = ["--coordinator", f"127.0.0.1:{port}", "--num-processes", 2, "--process-id", 0]
    process = start_rlreps(*QUICK, "--out", tmp_path / "psi", *place)
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline:
        with socket.socket() as way:
            if way.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    said = ["rlreps: asked to end; the same command goes on from what was saved"]
    assert finish(process) == (143, "", said)


@pytest.mark.integration
def test_processes_with_other_numbers_of_devices_are_refused(start_rlreps, quick, tmp_path):
    place = ["--coordinator", f"127.0.0.1:{free_port()}", "--num-processes", 2]
    place += ["--heartbeat", HEARTBEAT, "--process-id"]
    running = [
        start_rlreps(
            *["train", quick, *SHORT, "--out", tmp_path / "run", *place, index],
            *["--devices", index + 1],
            **TWO_DEVICES,
        )
        for index in range(2)
    ]
    ends = [finish(process) for process in running]
    assert [code for code, _, _ in ends] == [2, 2]
    assert all("expected as many devices of every process" in said[-1] for _, _, said in ends)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"coordinator": "a:1"}, "coordinator, num_processes and process_id together"),
        ({"num_processes": 0}, "expected num_processes >= 1, got 0"),
        ({"process_id": 0}, "coordinator, num_processes and process_id together"),
        ({"num_processes": 1, "process_id": 0}, "together, or none of them"),
        (
            {"coordinator": "a:1", "num_processes": 0, "process_id": 0},
            "expected num_processes >= 1, got 0",
        ),
        (
            {"coordinator": "a:1", "num_processes": 2, "process_id": 2},
            r"expected process_id in \[0, 2\), got 2",
        ),
        (
            {"coordinator": "a:1", "num_processes": 2, "process_id": -1},
            r"expected process_id in \[0, 2\), got -1",
        ),
        ({"timeout": 0}, "expected timeout >= 1, got 0"),
        ({"heartbeat": 0}, "expected heartbeat >= 1, got 0"),
    ],
)
def test_a_place_that_cannot_be_is_refused(given, message):
    with pytest.raises(InputError, match=message):
        ProcessesConfig(**given)


def test_a_number_of_processes_alone_is_for_plans():
    config = ProcessesConfig(num_processes=2)
    assert config.planned == 2
    refused = pytest.raises(InputError, match="coordinator, num_processes and process_id together")
    with refused, together(config):
        pass


@pytest.mark.parametrize("config", [ProcessesConfig(), ProcessesConfig(num_processes=1)])
def test_without_a_place_a_process_is_alone_and_first(config):
    with together(config):
        assert (process_index(), process_count()) == (0, 1)
        anything = object()
        assert first_does(lambda: anything) is anything
        wait_for_all()


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
    ("count", "seeds", "where"),
    [(2, 4, "memory"), (4, 3, "memory"), (2, 3, "disk")],
    ids=["seeds on 2", "rows on 4", "rows from disk on 2"],
)
def test_processes_train_what_one_does(start_together, quick, tmp_path, count, seeds, where):
    """Seeds that share out evenly over two devices a process have their own; else rows do."""
    arguments = ["train", quick, *SHORT, "--num-seeds", seeds]
    one = alone([str(argument) for argument in arguments], tmp_path / "one")
    code = "import rlreps.successor.ground_truth as g; g.IN_MEMORY_BYTES = "
    options = {"first": code + ("0" if where == "disk" else "2**30"), **TWO_DEVICES}
    arguments += ["--devices", 2]
    running = start_together(arguments, tmp_path / "all", count, **options)
    ends = [finish(process, timeout=300) for process in running]
    assert [(code, said) for code, _, said in ends] == [(0, [])] * count
    assert [out == "" for _, out, _ in ends] == [index > 0 for index in range(count)]
    found, expected = figures_of(tmp_path / "all"), figures_of(one)
    for name, values in expected.items():
        assert found[name].shape == (3, seeds)
        np.testing.assert_allclose(found[name], values, rtol=0, atol=ROUNDING, err_msg=name)
    kept = json.loads((tmp_path / "all" / "summary.json").read_text())
    assert kept.pop("checksum")
    assert {"metrics.jsonl", "features/000000030.npy"} <= kept.pop("files").keys()
    assert json.loads(ends[0][1]) == kept
    # Finished: every process sees that it is, and trains no more.
    if (count, seeds) == (2, 4):
        running = start_together(arguments, tmp_path / "all", **options)
        again = [finish(process) for process in running]
        assert [(code, out) for code, out, _ in again] == [(0, ends[0][1]), (0, "")]


def newest(run):
    """The last step whose checkpoint is whole: older ones are deleted."""
    seals = (run / "checkpoints").glob("*/seal.json")
    return max((int(seal.parent.name) for seal in seals), default=0)


@pytest.mark.integration
def test_training_whose_processes_die_ends_and_goes_on_to_the_same_bits(
    start_together, quick, tmp_path
):
    arguments = ["train", quick, *TRAIN, "--steps", 1000, "--num-seeds", 2]
    arguments += ["--evaluate-every", 10, "--checkpoint-every", 100]

    for victim in (1, 0):
        before, deadline = newest(tmp_path / "run"), time.monotonic() + 100
        running = start_together(arguments, tmp_path / "run")
        while newest(tmp_path / "run") == before:
            assert time.monotonic() < deadline
            assert all(process.poll() is None for process in running)
            time.sleep(0.01)
        running[victim].send_signal(signal.SIGKILL)
        assert finish(running[victim])[0] == -signal.SIGKILL
        require_named(victim, *finish(running[1 - victim], timeout=6 * HEARTBEAT))
        assert not (tmp_path / "run" / "summary.json").exists()
    for name in ("run", "whole"):
        ends = [finish(process, 300) for process in start_together(arguments, tmp_path / name)]
        assert [(code, said) for code, _, said in ends] == [(0, []), (0, [])]
    summaries = [
        json.loads((tmp_path / name / "summary.json").read_text()) for name in ("run", "whole")
    ]
    assert summaries[0]["per_seed"] == summaries[1]["per_seed"]


def logged(folder):
    """Figures of every line that a run has logged, without its times."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: line[name] for name in line if name != "seconds"} for line in lines]


AGENTS = [
    "agent",
    "train",
    "--quiet",
    "--hidden",
    "16",
    "--num-features",
    "8",
    "--steps",
    "400",
    "--evaluate-every",
    "200",
    "--n-step",
    "1",
    "--checkpoint-every",
    "200",
    "--warmup",
    "80",
    "--batch-size",
    "8",
    "--capacity",
    "400",
    "--evaluation-episodes",
    "4",
    "--num-seeds",
    "2",
    "--epsilon-steps",
    "300",
    "--max-episode-steps",
    "30",
    "--num-envs",
    "2",
]


@pytest.mark.integration
def test_agents_over_processes_are_those_of_one(start_rlreps, start_together, tmp_path):
    ends = [finish(start_rlreps(*AGENTS, "--out", tmp_path / "one"), 300)]
    ends += [finish(process, 300) for process in start_together(AGENTS, tmp_path / "all")]
    assert [(code, said) for code, _, said in ends] == [(0, [])] * 3
    assert [out == "" for _, out, _ in ends] == [False, False, True]
    found, expected = logged(tmp_path / "all"), logged(tmp_path / "one")
    assert [line["step"] for line in found] == [0, 200, 400]
    for line, other in zip(found, expected, strict=True):
        assert line.keys() == other.keys()
        for name in line:
            np.testing.assert_allclose(line[name], other[name], atol=ROUNDING, err_msg=name)
    assert (tmp_path / "all" / "report.html").exists()


@pytest.mark.integration
def test_agents_go_on_with_another_number_of_processes(start_rlreps, start_together, tmp_path):
    out = tmp_path / "run"
    long = [*AGENTS, "--steps", "2000"]

    running, deadline = start_together(long, out), time.monotonic() + 200
    while not newest(out):
        assert time.monotonic() < deadline
        assert all(process.poll() is None for process in running)
        time.sleep(0.01)
    running[-1].send_signal(signal.SIGTERM)
    assert {finish(process)[0] for process in running} == {143}
    kept = [line for line in logged(out) if line["step"] <= newest(out)]
    assert 0 < len(kept) < 11
    code, _, said = finish(start_rlreps(*long, "--out", out), 300)
    assert (code, said) == (0, [])
    assert logged(out)[: len(kept)] == kept
    assert [line["step"] for line in logged(out)] == list(range(0, 2001, 200))


@pytest.mark.integration
def test_a_sweep_over_processes_has_the_table_of_one(start_together, quick, tmp_path):
    arguments = ["sweep", quick, *SHORT, "--grid", "learning-rate=1e-3,3e-4", "--num-seeds", 2]
    one = alone([str(argument) for argument in arguments], tmp_path / "one")
    ends = [finish(process, 300) for process in start_together(arguments, tmp_path / "all")]
    assert [(code, said) for code, _, said in ends] == [(0, [])] * 2
    found, expected = (
        json.loads((path / "results" / "sweep.json").read_text())
        for path in (tmp_path / "all", one)
    )
    assert len(found) == len(expected) == 2
    for row, other in zip(found, expected, strict=True):
        distances = [name for name in row if name.startswith("subspace_distance")]
        assert distances
        for name in distances:
            # Of several runs, their numbers in a text.
            values, expected_values = (
                np.asarray(str(each[name]).split(), float) for each in (row, other)
            )
            np.testing.assert_allclose(values, expected_values, atol=ROUNDING, err_msg=name)


@pytest.mark.integration
def test_processes_that_share_the_rows_of_a_large_matrix_find_the_components_of_one(
    start_rlreps, start_together, quick, tmp_path
):
    options = {"first": "import rlreps.successor.ground_truth as g; g.IN_MEMORY_BYTES = 0"}
    paths = [shutil.copytree(quick, tmp_path / name) for name in ("one", "all")]
    arguments = ["svd", "--rank", 5, "--oversampling", 10, "--quiet"]
    ends = [finish(start_rlreps(*arguments, paths[0], **options))]
    ends += [finish(process) for process in start_together([*arguments, paths[1]], None, **options)]
    assert [(code, said) for code, _, said in ends] == [(0, [])] * 3
    assert (ends[1][1] != "", ends[2][1]) == (True, "")
    one, both = (
        principal_subspace(open_store(path), RandomizedSVD(rank=5, oversampling=10))
        for path in paths
    )
    assert both.method == "randomized"  # Kept beside the store: nothing was computed here.
    np.testing.assert_allclose(both.singular_values, one.singular_values, rtol=1e-5)
    distance = subspace_distance(jnp.asarray(both.basis), jnp.asarray(one.basis))
    assert float(distance) < 1e-8


@pytest.mark.integration
def test_processes_that_were_started_with_other_options_are_refused(
    start_together, start_rlreps, quick, tmp_path
):
    place = ["--coordinator", f"127.0.0.1:{free_port()}", "--num-processes", 2, "--process-id"]
    running = [
        start_rlreps(
            "train", quick, *SHORT, "--seed", index, "--out", tmp_path / "run", *place, index
        )
        for index in range(2)
    ]
    ends = [finish(process) for process in running]
    assert [(code, out, len(said)) for code, out, said in ends] == [(2, "", 1)] * 2
    assert all(
        "expected the same run in all processes: expected config.seed=0, got 1" in said[0]
        for _, _, said in ends
    )
    assert not (tmp_path / "run").exists()


def test_an_error_is_told_once_the_others_are_known_to_live(monkeypatch):
    run = processes._Run(count=2, heartbeat=3000)
    monkeypatch.setattr(processes, "_run", run)

    def watch():
        for _ in range(3):
            time.sleep(0.1)
            run.rounds += 1

    threading.Thread(target=watch).start()
    began = time.monotonic()
    processes.outlive_the_lost()
    assert run.rounds >= 2
    assert time.monotonic() - began < 60.0


def test_without_a_word_of_the_others_an_error_waits_for_their_heartbeat(monkeypatch):
    monkeypatch.setattr(processes, "_run", processes._Run(count=2, heartbeat=1))
    monkeypatch.setattr(processes, "_FAREWELL_SECONDS", 0.5)
    began = time.monotonic()
    processes.outlive_the_lost()
    assert time.monotonic() - began >= 1.5


ONE_METHOD = """
import dataclasses
from rlreps.experiments.le_lan_2023.puddle_world import PRESETS
smoke = PRESETS["smoke"]
tiny = {"objectives": smoke.objectives[:1], "dimensions": (2,), "headline_dimension": 2}
PRESETS["smoke"] = dataclasses.replace(smoke, **tiny)
"""


@pytest.mark.integration
def test_processes_run_an_experiment_as_one_does(start_together, start_rlreps, tmp_path):
    command = ["experiment", "puddle-world", "--preset", "smoke", "--quiet"]
    running = start_together(command, tmp_path / "two", first=ONE_METHOD)
    running.append(start_rlreps(*command, "--out", tmp_path / "one", first=ONE_METHOD))
    ends = [finish(process) for process in running]
    assert [code for code, _, _ in ends] == [0, 0, 0], ends
    # The first alone says what was found.
    assert [bool(out) for _, out, _ in ends] == [True, False, True]
    names = ("two", "one")
    two, one = (
        json.loads((tmp_path / name / "summary.json").read_text())["distances"] for name in names
    )
    assert len(two) == len(one) == 1
    assert two[0].pop("method") == one[0].pop("method")
    assert two[0] == pytest.approx(one[0], abs=100 * ROUNDING)
    for pattern in ("*.*", "figures/*", "results/*", "runs/*/*.*"):
        two, one = ({each.name for each in (tmp_path / name).glob(pattern)} for name in names)
        assert two == one != set()


# A rule in float32 and one in float64; it says whose devices the runs are shared out to.
TWO_RULES = """
import dataclasses, sys
from rlreps.experiments.amid_warmuth_2020.distributed_pca import PRESETS
from rlreps.streaming import passes
smoke, mesh = PRESETS["smoke"], passes._even_mesh
rules = {rule.double: rule for rule in smoke.contenders}
PRESETS["smoke"] = dataclasses.replace(smoke, contenders=tuple(rules.values()))
def said(devices, runs):
    found = mesh(devices, runs)
    print(runs, sorted({device.process_index for device in found.devices.flat}), file=sys.stderr)
    return found
passes._even_mesh = said
"""


@pytest.mark.integration
def test_processes_share_out_runs_over_rows(start_together, start_rlreps, tmp_path):
    """Two repeats are shared out, three learning rates to choose from are not."""
    scales = np.linspace(3.0, 0.3, 12, dtype=np.float32)
    np.save(tmp_path / "rows.npy", scales * np.random.default_rng(0).random((600, 12), np.float32))
    command = ["experiment", "distributed-pca", "--preset", "smoke", "--quiet"]
    command += ["--data", tmp_path / "rows.npy"]
    running = start_together(command, tmp_path / "two", first=TWO_RULES)
    running.append(start_rlreps(*command, "--out", tmp_path / "one", first=TWO_RULES))
    ends = [finish(process) for process in running]
    assert [code for code, _, _ in ends] == [0, 0, 0], ends
    for index, shared in enumerate(("[0, 1]", "[0, 1]", "[0]")):
        alone = f"[{index % 2}]"
        assert {*ends[index][2]} == {f"2 {shared}", f"3 {alone}"}
    parts = sorted((tmp_path / "one" / "parts").glob("*.json"))
    assert len(parts) == 2
    for part in parts:
        one, two = (
            json.loads((tmp_path / name / "parts" / part.name).read_text())
            for name in ("one", "two")
        )
        assert two["learning_rate"] == one["learning_rate"]
        for name in ("single", "workers", "combined"):
            np.testing.assert_allclose(two[name], one[name], rtol=ROUNDING)
            assert len({json.dumps(run) for run in np.moveaxis(one[name], 1, 0).tolist()}) == 2


def test_an_experiment_takes_several_jobs_or_several_processes(monkeypatch, tmp_path):
    experiment = EXPERIMENTS["hydrogen"].load()
    monkeypatch.setattr(processes, "_run", processes._Run(count=2))
    monkeypatch.setattr(harness, "finished_summary", lambda *_: None)
    with pytest.raises(InputError, match="jobs or several processes, not both, got '2 processes'"):
        experiment.run(experiment.presets["smoke"], tmp_path / "run", jobs=2)
    assert not (tmp_path / "run").exists()
