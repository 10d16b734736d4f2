"""Logs made up for measuring: what healthy applications say, or a scheduler whose workers come and go."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

#: What applications and libraries say while all is well: 98 of 100 lines.
CHATTER = (
    "my_project.pipeline - INFO - chunk {n} of 40000 done in 0.{p} s, {b} rows kept",
    "my_project.pipeline - DEBUG - reading s3://bucket/stations/{n}.parquet, row group {b}",
    "botocore.credentials - INFO - Found credentials in environment variables.",
    "urllib3.connectionpool - WARNING - Connection pool is full, discarding connection: 10.0.{a}.{b}. Connection pool size: 10",
    "my_project.model - INFO - step {n} loss 0.{n} lr 1e-{p} grad norm {a}.{b}",
    "distributed.shuffle._scheduler_plugin - INFO - Shuffle {n:08x} initialized by task ('p2p', {n})",
)
#: What Dask itself says while all is well.
CALM = (
    "distributed.worker - INFO -       Start worker at:     tcp://10.0.{a}.{b}:{port}",
    "distributed.worker - INFO - -------------------------------------------------",
    "distributed.scheduler - INFO - Register worker addr: tcp://10.0.{a}.{b}:{port} name: worker-{n}",
    "distributed.core - INFO - Starting established connection to tcp://10.0.{a}.{b}:{port}",
    "distributed.scheduler - INFO - Receive client connection: Client-worker-{n:08x}-b1d2-11ef-8a3c-0242ac110002",
    "distributed.core - INFO - Event loop was unresponsive in Worker for 3.{n:02d}s.  This is often caused by long-running GIL-holding functions or moving large chunks of data.",
)
TRACEBACK = """distributed.worker - ERROR - Compute Failed
Key:       process-{n:08x}
State:     executing
Task:  <Task 'process-{n:08x}' process(...)>
Exception: "KeyError('station-{n}')"
Traceback: '  File "/opt/app/pipeline.py", line {p}, in process\\n    return table[name]\\n'
"""
DEATH = """distributed.nanny.memory - WARNING - Worker tcp://10.0.{a}.{b}:{port} (pid={n}) exceeded 95% memory budget. Restarting...
{time} - distributed.nanny - INFO - Worker process {n} was killed by signal 15
{time} - distributed.scheduler - INFO - Remove worker addr: tcp://10.0.{a}.{b}:{port} name: worker-{n} (stimulus_id='handle-worker-cleanup-1763712000.{n}')
{time} - distributed.nanny - WARNING - Restarting worker (status=Status.running)
"""

#: What a scheduler says of one worker that comes and is retired: landmarks but for the connections.
COMING_AND_GOING = """distributed.scheduler - INFO - Register worker addr: tcp://10.0.{a}.{b}:{port} name: worker-{n}
{time} - distributed.scheduler - INFO - Starting worker compute stream, tcp://10.0.{a}.{b}:{port}
{time} - distributed.core - INFO - Starting established connection to tcp://10.0.{a}.{b}:{p}
{time} - distributed.scheduler - INFO - Retire worker addresses (stimulus_id='retire-workers-1763712000.{n}') ['tcp://10.0.{a}.{b}:{port}']
{time} - distributed.scheduler - INFO - Remove worker addr: tcp://10.0.{a}.{b}:{port} name: worker-{n} (stimulus_id='retire-workers-1763712000.{n}')
{time} - distributed.scheduler - INFO - Retired worker 'tcp://10.0.{a}.{b}:{port}' (stimulus_id='retire-workers-1763712000.{n}')
"""


def lines(count: int, *, deaths: int, seed: int = 0) -> str:
    """A log of *count* messages with *deaths* of them deaths; one in 1000 is a failed task."""
    chance = random.Random(seed)
    dying = set(chance.sample(range(count), deaths))
    return "".join(
        _message(index, DEATH if index in dying else _chatty(index, chance), chance) for index in range(count)
    )


def landmarks(count: int, *, deaths: int, seed: int = 0) -> str:
    """A scheduler's log of *count* workers that come and go, *deaths* of which die."""
    chance = random.Random(seed)
    dying = set(chance.sample(range(count), deaths))
    return "".join(_message(index, DEATH if index in dying else COMING_AND_GOING, chance) for index in range(count))


def _chatty(index: int, chance: random.Random) -> str:
    calm = CALM if index % 50 == 7 else CHATTER
    return TRACEBACK if index % 1000 == 500 else chance.choice(calm)


def _message(index: int, shape: str, chance: random.Random) -> str:
    time = (
        f"2026-11-21 {index // 3600 % 24:02d}:{index // 60 % 60:02d}:{index % 60:02d},{chance.randrange(1000):03d}"
    )
    said = shape.format(
        time=time,
        a=chance.randrange(256),
        b=chance.randrange(256),
        port=chance.randrange(30000, 50000),
        n=chance.randrange(100, 40000),
        p=chance.randrange(10, 79),
    )
    return f"{time} - {said.rstrip()}\n"


def write(path: Path, size: int, *, long_line: int = 0, messages: Callable[..., str] = lines) -> None:
    """A file of about *size* bytes of such *messages*, one line of *long_line* bytes in its middle."""
    with path.open("wb") as file:
        for block in _blocks(size - long_line, messages):
            if long_line and file.tell() >= (size - long_line) // 2:
                file.write(
                    b"2026-11-21 12:00:00,000 - distributed.scheduler - ERROR - Removing worker caused loss of {"
                )
                for _ in range(long_line // 1_000_000):
                    file.write(b"'read-parquet-0123456789abcdef', " * (1_000_000 // 33))
                file.write(b"}\n")
                long_line = 0
            file.write(block)


def _blocks(size: int, messages: Callable[..., str]) -> Iterator[bytes]:
    """Blocks of different messages, repeated; a death in one of a hundred blocks."""
    calm = [messages(20_000, deaths=0, seed=seed).encode() for seed in range(4)]
    deadly = messages(20_000, deaths=1, seed=99).encode()
    written = index = 0
    while written < size:
        block = deadly if index % 100 == 1 else calm[index % len(calm)]
        block = block[: size - written]
        yield block
        written += len(block)
        index += 1
