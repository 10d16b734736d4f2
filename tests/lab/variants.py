"""Programs that die of memory in many sizes, each with its true reason: what is said of them, and what held.

They are others than those of `cures`, in shapes, sizes, threads and limits. The probabilities of reasons and of
first changes are compared with what was true (`docs/cures.md` has the table):

    python -m tests.lab.variants [--only NAME,...] [--recorder] [--keep DIR]
    python -m tests.lab.variants --again DIR      # judge the kept evidence again, without a worker

With ``--keep``, the evidence of each death and whether a change sufficed stay in a folder.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from attrs import evolve, frozen
from distributed import Client, wait

from workerdiag import Diagnosis
from workerdiag.bundle.bundle_file import read_bundle
from workerdiag.model.diagnosis import Findings
from workerdiag.model.memory import Cure
from workerdiag.pipeline import diagnose
from workerdiag.rulebook.load import load_rulebook

from .cures import MIB, Knobs, Program, attempt, turned

#: Bounds of probability between which answers are counted together.
_BOUNDS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.01)
#: A program that has not ended by then stands still; with a change, it may take longer.
_PATIENCE_S, _CHANGED_PATIENCE_S = 25.0, 90.0


def _side(knobs: Knobs, itemsize: int = 8) -> int:
    return int((knobs["piece"] // itemsize) ** 0.5)


def product(client: Client, knobs: Knobs) -> object:
    """Multiply a matrix by itself."""
    import dask.array as da

    side = min(_side(knobs), knobs["n"])
    x = da.random.random((knobs["n"], knobs.get("inner", 2_000)), chunks=side)
    return (x @ x.T).sum().compute()


def spread(client: Client, knobs: Knobs) -> object:
    """Scale by a mean over everything."""
    import dask.array as da

    x = da.random.random((knobs["n"], 1_000), chunks=(max(1, knobs["piece"] // 8_000), 1_000))
    return ((x - x.mean()) / x.std()).max().compute()


def own_blocks(client: Client, knobs: Knobs) -> object:
    """Run a function of one's own on blocks, which makes copies."""
    import dask.array as da

    def smooth(block: Any) -> Any:
        import numpy as np

        low = np.cumsum(block, axis=0)
        return np.sqrt(np.abs(block - low)) + low

    x = da.random.random((knobs["n"], 1_000), chunks=(max(1, knobs["piece"] // 8_000), 1_000))
    return x.map_blocks(smooth).sum().compute()


def many_copies(client: Client, knobs: Knobs) -> object:
    """Run a function of one's own on blocks, which keeps all that it makes of its block."""
    import dask.array as da

    def features(block: Any) -> Any:
        import numpy as np

        return sum([np.sin(block * number) for number in range(1, 10)], block)

    x = da.random.random((knobs["n"], 2_000), chunks=(max(1, knobs["piece"] // 16_000), 2_000))
    return x.map_blocks(features).sum().compute()


def filters(client: Client, knobs: Knobs) -> object:
    """Filter images that overlap."""
    import dask.array as da

    def filter_image(image: Any) -> Any:
        import numpy as np

        spectrum = np.fft.fft2(image)
        return np.real(np.fft.ifft2(spectrum * (np.abs(spectrum) > 1)))

    x = da.random.random((knobs["n"], knobs["n"]), chunks=_side(knobs))
    return x.map_overlap(filter_image, depth=16, boundary="reflect").std().compute()


def decomposes(client: Client, knobs: Knobs) -> object:
    """Take singular values of a tall matrix."""
    import dask.array as da

    x = da.random.random((knobs["n"], 400), chunks=(max(400, knobs["piece"] // 3_200), 400))
    return da.linalg.svd(x)[1].compute()


def one_hot(client: Client, knobs: Knobs) -> object:
    """Make a column of each value."""
    import dask.dataframe as dd
    import numpy as np
    import pandas as pd

    code = pd.Categorical([f"sku-{number % 1_500}" for number in range(knobs["n"])])
    rows = pd.DataFrame({"sku": code, "n": np.arange(float(knobs["n"]))})
    cut = dd.from_pandas(rows, npartitions=max(1, -(-knobs["n"] * 16 // knobs["piece"])))
    return dd.get_dummies(cut, columns=["sku"]).sum().compute()


def merges(client: Client, knobs: Knobs) -> object:
    """Join two small frames whose keys are there many times on both sides."""
    import dask.dataframe as dd
    import numpy as np
    import pandas as pd

    keys = np.random.default_rng(0).integers(0, 40 if knobs["skew"] else knobs["n"], knobs["n"])
    frames = (pd.DataFrame({"key": keys, name: np.arange(float(knobs["n"]))}) for name in "ab")
    left, right = (dd.from_pandas(each, npartitions=8) for each in frames)
    joined = left.merge(right, on="key")
    return (joined.a * joined.b).sum().compute()


def delayed_concat(client: Client, knobs: Knobs) -> object:
    """Put delayed parts together."""
    import dask
    import numpy as np

    parts = [dask.delayed(np.ones)(knobs["each"] // 8) for _ in range(knobs["count"])]
    if not knobs["collect"]:
        parts = [dask.delayed(np.sum)(each) for each in parts]
    return dask.delayed(len)(dask.delayed(np.hstack)(parts)).compute()


def in_time(client: Client, knobs: Knobs) -> object:
    """Bring all days of a place into one chunk."""
    import dask.array as da

    x = da.random.random((200, 600, 600), chunks=(1, 600, 600))
    side = max(1, min(600, int((knobs["piece"] // (200 * 8)) ** 0.5)))
    return x.rechunk((200, side, side)).map_blocks(lambda each: each.cumsum(axis=0)).max().compute()


def partitions(client: Client, knobs: Knobs) -> object:
    """Sort wide partitions."""
    import dask.datasets

    seconds = max(60, knobs["piece"] // 50)
    frame = dask.datasets.timeseries("2000-01-01", "2000-06-28", freq="1s", partition_freq=f"{seconds}s")
    return frame.map_partitions(lambda part: part.sort_values("x").tail(1)).compute()


def frame_of_mine(client: Client, knobs: Knobs) -> object:
    """Cut a frame of this process into few partitions."""
    import dask.dataframe as dd
    import numpy as np
    import pandas as pd

    rows = pd.DataFrame({name: np.arange(12_000_000.0) for name in "abc"})
    frame = dd.from_pandas(rows, npartitions=max(1, -(-12_000_000 * 24 // knobs["piece"])))
    return frame.map_partitions(lambda part: part.sort_values("a").cumsum().tail(1)).compute()


def by_key(client: Client, knobs: Knobs) -> object:
    """Apply a function to groups, of which one has nearly everything."""
    import dask.dataframe as dd
    import numpy as np
    import pandas as pd

    count = knobs["rows"]
    share = 0.95 if knobs["skew"] else 0.001
    user = np.where(np.random.default_rng(1).random(count) < share, 0, np.arange(count) % 500)
    frame = pd.DataFrame({"user": user, **{name: np.arange(float(count)) for name in "abcdef"}})
    cut = dd.from_pandas(frame, npartitions=40)
    return cut.groupby("user").apply(lambda group: group.a.sum(), meta=("a", "f8")).compute()


def hungry(client: Client, knobs: Knobs) -> object:
    """Run tasks that each fill an array."""
    import numpy as np

    def fill(size: int, number: int) -> float:
        values = np.full(size // 8, float(number))
        time.sleep(1)
        return float(values.sum())

    return client.gather(client.map(partial(fill, knobs["each"]), range(knobs.get("count", 6)), pure=False))


def gradual(client: Client, knobs: Knobs) -> object:
    """Run tasks that gather many small values each."""

    def gather(size: int, number: int) -> int:
        held = []
        for _ in range(size // 2**20):
            held.append(bytearray(b"x") * 2**20)
            time.sleep(0.002)
        return len(held) + number

    return client.gather(client.map(partial(gather, knobs["each"]), range(knobs.get("count", 6)), pure=False))


def endless(client: Client, knobs: Knobs) -> object:
    """Loop without an end."""

    def loop(size: int) -> None:
        kept = []
        while True:
            kept.append(bytearray(b"x") * size)
            time.sleep(0.002)

    return client.submit(loop, knobs["step"], pure=False).result()


def keeps(client: Client, knobs: Knobs) -> None:
    """Remember something of each task."""

    def remember(size: int, number: int, *, keep: bool) -> int:
        import builtins

        memory = builtins.__dict__.setdefault("_remembered", {})
        memory[number, time.time()] = bytearray(b"x") * size
        if not keep:
            memory.clear()
        return number

    for start in range(0, knobs["count"], 10):
        tasks = client.map(
            partial(remember, knobs["each"], keep=knobs["keep"]), range(start, start + 10), pure=False
        )
        client.gather(tasks)


def brings_table(client: Client, knobs: Knobs) -> object:
    """Pass an array to each task."""
    import numpy as np

    if not knobs["embed"]:
        return client.gather(client.map(float, range(8), pure=False))
    table = np.ones(knobs["each"] // 8)
    return client.gather([client.submit(lambda a, i: float((a + i).sum()), table, i, pure=False) for i in range(8)])


def graph_of_data(client: Client, knobs: Knobs) -> object:
    """Make an array of one's own into chunks."""
    import dask.array as da
    import numpy as np

    count = knobs["each"] // 8
    x = da.from_array(np.ones(count), chunks=count // 3) if knobs["embed"] else da.ones(count, chunks=count // 64)
    return (x * 2 + 1).std().compute()


def concatenates(client: Client, knobs: Knobs) -> object:
    """Put parts together in one task."""
    import numpy as np

    parts = client.map(
        lambda n, _: np.ones(n // 8), [knobs["each"]] * knobs["count"], range(knobs["count"]), pure=False
    )
    if not knobs["collect"]:
        return client.submit(sum, client.map(lambda part: float(part.sum()), parts)).result()
    return client.submit(lambda every: float(np.concatenate(every).sum()), parts).result()


def whole_result(client: Client, knobs: Knobs) -> object:
    """Ask for all of an array."""
    import dask.array as da

    x = da.random.random((knobs["each"] // 80_000, 10_000), chunks=(500, 5_000))
    return x.sum().compute() if not knobs["collect"] else (x + 1).compute()


def stores(client: Client, knobs: Knobs) -> object:
    """Keep all results on workers that may not spill."""
    import numpy as np

    futures = []
    for number in range(knobs["count"]):
        future = client.submit(lambda n, _: np.ones(n // 8), knobs["each"], number, pure=False)
        wait(future, timeout=_PATIENCE_S)
        if knobs["hold"]:
            futures.append(future)
    return futures[:0]


def _program(run: Callable[[Client, Knobs], object], reason: Any, **knobs: Any) -> Program:
    return Program(run=run, reason=reason, knobs=knobs)


_NO_SPILL = {"distributed.worker.memory.target": False, "distributed.worker.memory.spill": False}
PROGRAMS: Mapping[str, Program] = {
    "product-6000": _program(product, "pieces-too-large", n=6_000, piece=288_000_000),
    "product-9000-700M": _program(product, "pieces-too-large", n=9_000, piece=200_000_000, memory=700 * MIB),
    "product-8000-one-thread": _program(product, "pieces-too-large", n=8_000, piece=220_000_000, threads=1),
    "product-16000": _program(
        product, "pieces-too-large", n=16_000, inner=16_000, piece=512_000_000, memory=600 * MIB
    ),
    "spread-4-threads": _program(
        spread, "pieces-too-large", n=60_000, piece=120_000_000, threads=4, memory=600 * MIB
    ),
    "spread-all-kept": _program(spread, "pieces-too-large", n=200_000, piece=300_000_000),
    "own-blocks": _program(own_blocks, "pieces-too-large", n=80_000, piece=160_000_000),
    "own-blocks-large": _program(own_blocks, "pieces-too-large", n=80_000, piece=320_000_000, memory=800 * MIB),
    "many-copies": _program(many_copies, "pieces-too-large", n=16_000, piece=64_000_000, memory=600 * MIB),
    "filters": _program(filters, "pieces-too-large", n=6_000, piece=72_000_000, memory=600 * MIB),
    "decomposes": _program(decomposes, "pieces-too-large", n=300_000, piece=320_000_000, memory=600 * MIB),
    "one-hot": _program(one_hot, "pieces-too-large", n=1_000_000, piece=4_000_000, memory=600 * MIB),
    "merges": _program(merges, "skew", n=60_000, skew=True, memory=600 * MIB),
    "delayed-concat": _program(
        delayed_concat, "brought-together", each=22 * MIB, count=18, collect=True, memory=600 * MIB
    ),
    "in-time": _program(in_time, "pieces-too-large", piece=300_000_000, memory=600 * MIB),
    "partitions-400M": _program(partitions, "pieces-too-large", piece=400_000_000),
    "partitions-800M": _program(partitions, "pieces-too-large", piece=800_000_000, memory=900 * MIB, threads=1),
    "frame-of-mine": _program(frame_of_mine, "pieces-too-large", piece=144_000_000),
    "by-key": _program(by_key, "skew", rows=8_000_000, skew=True),
    "by-key-small": _program(by_key, "skew", rows=5_000_000, skew=True, memory=400 * MIB),
    "hungry-2-threads": _program(hungry, "too-many-at-once", each=270 * MIB),
    "hungry-4-threads": _program(hungry, "too-many-at-once", each=150 * MIB, threads=4, count=12),
    "hungry-3-threads": _program(hungry, "too-many-at-once", each=250 * MIB, threads=3, memory=700 * MIB, count=9),
    "gradual-2-threads": _program(gradual, "too-many-at-once", each=290 * MIB),
    "gradual-4-threads": _program(gradual, "too-many-at-once", each=160 * MIB, threads=4, count=12),
    "large-alone": _program(hungry, "one-task-too-large", each=900 * MIB, count=1),
    "large-alone-gradual": _program(gradual, "one-task-too-large", each=800 * MIB, count=1),
    "large-one-thread": _program(hungry, "one-task-too-large", each=700 * MIB, threads=1),
    "large-in-pairs": _program(hungry, "one-task-too-large", each=800 * MIB),
    "endless-fast": _program(endless, "runaway", step=8 * 2**20),
    "endless-slow": _program(endless, "runaway", step=2**20),
    "keeps-20M": _program(keeps, "leak", each=20 * MIB, count=150, keep=True),
    "keeps-8M": _program(keeps, "leak", each=8 * MIB, count=300, keep=True, memory=400 * MIB),
    "keeps-60M-one-thread": _program(keeps, "leak", each=60 * MIB, count=60, keep=True, threads=1),
    "brings-table": _program(brings_table, "data-in-graph", each=200_000_000, embed=True),
    "brings-table-large": _program(brings_table, "data-in-graph", each=260_000_000, embed=True, memory=600 * MIB),
    "graph-of-data": _program(graph_of_data, "data-in-graph", each=600_000_000, embed=True),
    "concatenates": _program(concatenates, "brought-together", each=25 * MIB, count=18, collect=True),
    "concatenates-many": _program(
        concatenates, "brought-together", each=6 * MIB, count=90, collect=True, memory=600 * MIB
    ),
    "whole-result": _program(whole_result, "brought-together", each=900_000_000, collect=True),
    "stores": _program(stores, "results-stored", each=40 * MIB, count=40, hold=True, config=_NO_SPILL),
    "stores-small": _program(
        stores, "results-stored", each=12 * MIB, count=90, hold=True, config=_NO_SPILL, threads=4
    ),
}


@frozen(kw_only=True)
class Told:
    """What was said of one death, and what came true; empty: not tried."""

    name: str
    true: str
    reason: str | None
    sure: float
    cure: Cure | None = None
    #: ``yes``, ``no`` (workers died of memory again, or stood still), or ``late`` (work went on, slowly).
    sufficed: str = ""


def told(name: str, findings: Findings) -> Told:
    """The answer of the account."""
    chances = findings.memory.reasons if findings.memory else ()
    return Told(
        name=name,
        true=PROGRAMS[name.partition("+")[0]].reason,
        reason=findings.memory.reason if findings.memory else None,
        sure=chances[0].probability if chances else 0.0,
        cure=findings.cures[0] if findings.cures else None,
    )


def tried(name: str, *, recorder: bool, keep: Path | None) -> Told | None:
    """Run one program until it dies, then with the first change; None if it does not die."""
    program = PROGRAMS[name]
    run = partial(attempt, program, recorder=recorder)
    diagnosis = run(program.knobs, patience_s=_PATIENCE_S)
    if diagnosis is None or diagnosis.outcome == "no-death":
        return None
    label = f"{name}+recorder" if recorder else name
    answer = told(label, diagnosis)
    knobs = turned(program.knobs, answer.cure) if answer.cure else None
    if answer.cure:
        after = run(knobs, patience_s=_CHANGED_PATIENCE_S) if knobs is not None else diagnosis
        answer = evolve(answer, sufficed=_outcome(after))
    if keep is not None:
        _keep(keep, answer, diagnosis)
    return answer


def _outcome(after: Diagnosis | None) -> str:
    if after is None:
        return "yes"
    return "no" if after.memory is not None else "late"


def _keep(folder: Path, answer: Told, diagnosis: Diagnosis) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    diagnosis.save(folder / f"{answer.name}.zip")
    path = folder / "sufficed.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    if answer.cure:
        known[_change(answer)] = answer.sufficed
    path.write_text(json.dumps(known, indent=1))


def _change(answer: Told) -> str:
    return f"{answer.name}: {answer.cure.kind} {answer.cure.value or ''}" if answer.cure else ""


def again(folder: Path) -> Iterator[Told]:
    """What is said now of the evidence that was kept."""
    known = json.loads((folder / "sufficed.json").read_text())
    book = load_rulebook(packs=False)
    for path in sorted(folder.glob("*.zip")):
        bundle = read_bundle(path.name, path.read_bytes())
        if bundle is not None:
            answer = told(path.stem, diagnose(bundle.evidence(), book))
            yield evolve(answer, sufficed=known.get(_change(answer), ""))


def reliability(pairs: Sequence[tuple[float, bool]], what: str) -> str:
    """How often what was said with so much held."""
    rows = [f"| {what} | deaths | mean probability | share that held |", "|---|---|---|---|"]
    for low, high in pairwise(_BOUNDS):
        some = [(sure, held) for sure, held in pairs if low <= sure < high]
        if some:
            mean, share = sum(sure for sure, _ in some) / len(some), sum(held for _, held in some) / len(some)
            rows.append(f"| {low:.1f} to {min(high, 1.0):.1f} | {len(some)} | {mean:.2f} | {share:.2f} |")
    return "\n".join(rows)


def main() -> None:
    """Print a line for each death, then both tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default=",".join(PROGRAMS))
    parser.add_argument("--recorder", action="store_true")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--again", type=Path)
    options = parser.parse_args()
    if options.again:
        answers = list(again(options.again))
    else:
        run = partial(tried, recorder=options.recorder, keep=options.keep)
        answers = [each for name in options.only.split(",") if (each := run(name)) is not None]
    lines = [f"| {each.name} | {each.true} | {each.reason} {each.sure:.2f} | {_said(each)} |" for each in answers]
    reasons = [(each.sure, each.reason == each.true) for each in answers if each.reason]
    changes = [(each.cure.probability, each.sufficed == "yes") for each in answers if each.cure and each.sufficed]
    tables = (reliability(reasons, "reason"), reliability(changes, "first change"))
    print("\n".join(lines), *tables, sep="\n\n")  # noqa: T201


def _said(answer: Told) -> str:
    cure = answer.cure
    return f"{cure.kind} {cure.value or ''} {cure.probability:.2f} | {answer.sufficed}" if cure else "none |"


if __name__ == "__main__":
    main()
