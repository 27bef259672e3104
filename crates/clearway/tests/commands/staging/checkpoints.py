"""Saves and loads checkpoints as a program does, and stops at each step for the test to kill it.

Arguments: `scr` or `dcp`, the directory of the mount, the program. Standard input has commands:
`save STEP` and `load DIRECTORY`, each a line. A save writes a line before and after each of its steps
and reads a byte: `g` continues, `k` kills all of its processes at once.
"""

import errno
import hashlib
import os
import signal
import subprocess
import sys
import warnings

KIND, ROOT, PROGRAM = sys.argv[1:]
RANKS = 2
PIECES = 3


warnings.simplefilter("ignore")


def say(line):
    os.write(1, line.encode() + b"\n")


def point(what):
    say("at " + what)
    if os.read(0, 1) != b"g":
        os.killpg(0, signal.SIGKILL)
        signal.pause()


def in_parallel(work):
    """Runs `work(rank)` in a process for each rank."""
    children = []
    for rank in range(RANKS):
        child = os.fork()
        if child == 0:
            try:
                work(rank)
            except OSError as why:
                if why.errno not in (errno.ECONNABORTED, errno.ENOTCONN):
                    raise
                # The mount was killed; this process is next.
                signal.pause()
            os._exit(0)
        children.append(child)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0, "a rank failed"


def piece(step, rank, number):
    return hashlib.sha256(b"%d %d %d" % (step, rank, number)).digest() * 1000


class Scr:
    """A file for each rank, as SCR and VeloC write them."""

    FILES = RANKS

    def save(self, directory, step):
        def write(rank):
            with open(f"{directory}/rank_{rank}.ckpt", "wb", buffering=0) as file:
                for number in range(PIECES):
                    point(f"write {number} of rank {rank}")
                    file.write(piece(step, rank, number))
            point(f"closed by rank {rank}")

        in_parallel(write)

    def load(self, directory, step):
        for rank in range(RANKS):
            with open(f"{directory}/rank_{rank}.ckpt", "rb") as file:
                expected = b"".join(piece(step, rank, number) for number in range(PIECES))
                assert file.read() == expected, f"rank {rank} of step {step}"


class Dcp:
    """torch.distributed.checkpoint: a file for each rank, and `.metadata` behind them."""

    FILES = RANKS + 1

    def __init__(self):
        import torch
        # Each process of a save would import it again.
        import torch._dynamo
        import torch.distributed
        import torch.distributed.checkpoint
        import torch.distributed.tensor

        torch.set_num_threads(1)
        self.torch, self.distributed = torch, torch.distributed

    def tensor(self, step):
        return self.torch.arange(20000, dtype=self.torch.float32).reshape(200, 100) + step

    def save(self, directory, step):
        def hook(event, arguments):
            if event == "open" and str(arguments[0]).startswith(ROOT) and arguments[2] & os.O_ACCMODE:
                point(f"open {arguments[0]}")
            elif event == "os.rename":
                point(f"rename {arguments[1]}")

        fsync = os.fsync

        def synced(file):
            point("sync")
            fsync(file)
            point("synced")

        def write(rank):
            distributed = self.distributed
            meeting = f"file://{os.path.dirname(ROOT)}/meeting-{os.getppid()}"
            distributed.init_process_group(
                "gloo", init_method=meeting, rank=rank, world_size=RANKS
            )
            tensors = distributed.tensor
            mesh = tensors.DeviceMesh("cpu", list(range(RANKS)))
            shards = tensors.distribute_tensor(self.tensor(step), mesh, [tensors.Shard(0)])
            sys.addaudithook(hook)
            os.fsync = synced
            distributed.checkpoint.save({"model": shards}, checkpoint_id=directory)
            point(f"saved by rank {rank}")
            distributed.barrier()

        in_parallel(write)

    def load(self, directory, step):
        found = {"model": self.torch.zeros(200, 100)}
        self.distributed.checkpoint.load(found, checkpoint_id=directory, no_dist=True)
        assert self.torch.equal(found["model"], self.tensor(step)), f"step {step}"


def save(kind, step):
    directory = f"{ROOT}/step.{step}"
    # What a save that was killed left.
    subprocess.run(["rm", "-rf", directory], check=True)
    os.mkdir(directory)
    point("made")
    os.setxattr(directory, "user.clearway.publish", b"explicit")
    kind.save(directory, step)
    point("publish")
    publish = subprocess.Popen([PROGRAM, "stage", "publish", directory])
    point("publishes")
    assert publish.wait() == 0, "publish"
    point("published")
    with open(f"{ROOT}/latest.new", "w") as file:
        file.write(str(step))
    point("written")
    os.rename(f"{ROOT}/latest.new", f"{ROOT}/latest")
    point("renamed")
    subprocess.run([PROGRAM, "stage", "wait", "--until", "stored", f"{ROOT}/latest"], check=True)
    point("stored")
    subprocess.run(["rm", "-rf", f"{ROOT}/step.{step - 1}"], check=True)
    point("removed")
    say(f"saved {step}")


def read_line():
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            sys.exit()
        line += byte
    return line.decode().strip().split(" ", 1)


def main():
    try:
        kind = {"scr": Scr, "dcp": Dcp}[KIND]()
    except ImportError as why:
        return say(f"missing {why}")
    say(f"ready {kind.FILES}")
    while True:
        command, argument = read_line()
        if command == "load":
            with open(f"{argument}/latest") as file:
                step = int(file.read())
            kind.load(f"{argument}/step.{step}", step)
            say(f"loaded {step}")
            continue
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            save(kind, int(argument))
            os._exit(0)
        os.waitpid(child, 0)
        say("ended")


main()
