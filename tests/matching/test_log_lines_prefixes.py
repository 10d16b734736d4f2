"""What others put before each line that they pass on is not part of it."""

from __future__ import annotations

import pytest

from workerdiag.matching.log_lines import without_prefixes

LINE = "distributed.nanny - INFO - Worker process 4711 was killed by signal 11"


@pytest.mark.parametrize(
    "prefix",
    [
        "dask-worker-1  | ",
        "geo_worker.3.k2j4h5g6f7d8s9a0@node17    | ",
        "2026-05-04T11:22:33.444000+00:00 dask-worker/dask-worker/4f2d1c0b9a874f2d1c0b9a87 ",
        "2026-05-04T11:22:33.444555666Z stderr F ",
        "[pod/geo-worker-3/worker] ",
    ],
)
def test_the_line_is_left(prefix):
    """Containers, services and collectors name where a line comes from."""
    text, *_ = without_prefixes(prefix + LINE)
    assert text == LINE
