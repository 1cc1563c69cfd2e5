"""Run a command with a Slurm of one node on this machine, for tests and to try job scripts.

Needs root and Debian's packages: apt-get install slurm-wlm munge. The daemons listen at addresses
of the loopback interface and end with the command:

    python scripts/one_node_slurm.py sbatch --wait job.sh
"""

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

CONFIG = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ReturnToService=2
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobRequeue=1
SchedulerParameters=sched_interval=1,batch_sched_delay=0
MinJobAge=300
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@contextlib.contextmanager
def one_node_slurm() -> Iterator[dict[str, str]]:
    """Start the daemons; yield the environment of a command that uses them."""
    host = socket.gethostname().split(".")[0]
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        os.chmod(folder, 0o755)
        for name in ("state", "spool"):
            (folder / name).mkdir()
        config = folder / "slurm.conf"
        cores = len(os.sched_getaffinity(0))
        config.write_text(
            CONFIG.format(host=host, folder=folder, cores=cores, ports=_free_ports(2))
        )
        for name in ("key", "munge"):
            (folder / name).mkdir(mode=0o755)
            shutil.chown(folder / name, "munge", "munge")
        key = folder / "key" / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        shutil.chown(key, "munge", "munge")
        environment = {**os.environ, "SLURM_CONF": str(config)}
        names = ("pid-file", "log-file", "seed-file", "socket")
        files = [f"--{name}={folder}/munge/{name}" for name in names]
        daemons = (
            ["munged", "--foreground", f"--key-file={key}", *files],
            ["slurmctld", "-D"],
            ["slurmd", "-D"],
        )
        log = stack.enter_context((folder / "log").open("wb"))
        for command in daemons:
            stack.enter_context(_daemon(command, environment, log))
            time.sleep(0.5)
        until = time.monotonic() + 30
        while "idle" not in _says(environment, "sinfo", "-h", "-o", "%t"):
            if time.monotonic() > until:
                sys.exit((folder / "log").read_text())
            time.sleep(0.2)
        try:
            yield environment
        finally:  # Jobs would outlive the daemons.
            subprocess.run(["scancel", "--user=root"], env=environment)
            until = time.monotonic() + 20
            while _says(environment, "squeue", "-h") and time.monotonic() < until:
                time.sleep(0.2)


def _says(environment: dict[str, str], *command: str) -> str:
    return subprocess.run(command, env=environment, capture_output=True, text=True).stdout


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


@contextlib.contextmanager
def _daemon(command: list[str], environment: dict[str, str], log: object) -> Iterator[None]:
    started = subprocess.Popen(
        command,
        env=environment,
        stdout=log,
        stderr=log,
        start_new_session=True,
        user="munge" if command[0] == "munged" else None,
    )
    try:
        yield
    finally:
        started.terminate()
        started.wait()


if __name__ == "__main__":
    with one_node_slurm() as environment:
        code = subprocess.run(sys.argv[1:], env=environment).returncode
    sys.exit(code)
