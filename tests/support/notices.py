"""Notices and deliveries as the watcher makes them, and hostile texts."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import strategies as st

from workerdiag.model.vocabulary import NoticeReason
from workerdiag.watch.case import WatchedCase
from workerdiag.watch.notices import notice_of
from workerdiag.watch.sinks.base import Delivery

#: Texts that act on a reader in some service unless they are shown as text.
HOSTILE = (
    "<!channel> <@U012AB3CD> <https://evil.example|click> @everyone </script><img src=x onerror=alert(1)> "
    "*bold* _it_ ~no~ `code` [click](https://evil.example) {{DATE(2017-02-14T06:08:39Z,SHORT)}} <at>x</at> "
    "\x1b[31mred\x1b[0m \u202eesrever & &lt; \r\nBcc: all@evil.example"
)


def sample_notice(reason: NoticeReason = "new", **changes: object) -> WatchedCase:
    """Return a notice: three workers were killed at the memory limit."""
    given: dict[str, object] = {
        "notice_id": "case-1:1",
        "reason": reason,
        "id": "case-1",
        "key": "nanny.memory-terminate",
        "cluster": "prod",
        "state": "firing",
        "what": "memory limit",
        "title": "3 workers of prod died: memory limit (93%)",
        "text": (
            "3 workers of prod died: memory limit (93%)\nWhere: host-a, host-b\nIt goes on.\n"
            "Do now: Give each worker at least 4 GiB.\nMore: https://docs.example.org/causes/nanny\n"
            "Evidence: /var/lib/deaths/1.zip"
        ),
        "cause": "nanny.memory-terminate",
        "probability": 0.93,
        "blame": "task",
        "advice": ("Give each worker at least 4 GiB.", "Split the partitions."),
        "death_count": 3,
        "hosts": frozenset({"host-a", "host-b"}),
        "first_victim": "tcp://10.0.0.1:34937",
        "at": 1_700_000_100.0,
        "opened_at": 1_700_000_000.0,
        "last_death_at": 1_700_000_050.0,
        "links": {"cause": "https://docs.example.org/causes/nanny", "bundle": "/var/lib/deaths/1.zip"},
        **changes,
    }
    return WatchedCase(**given)


def delivery_of(
    notice: WatchedCase | None = None, *, receipt: Mapping[str, str] | None = None, attempt: int = 1
) -> Delivery:
    """Return a delivery of *notice* to some sink."""
    notice = notice or sample_notice()
    return Delivery(id=f"{notice.notice_id}:sink", notice=notice, receipt=receipt or {}, attempt=attempt)


def worded_notice(reason: NoticeReason = "new", **changes: object) -> WatchedCase:
    """Return the notice that the watcher makes of a case with these *changes*."""
    case = sample_notice(reason, **changes)
    return notice_of(case, reason, case.at)


#: Any text, including lone surrogates and control characters, as in names of clusters and hosts.
texts = st.text(max_size=300) | st.just(HOSTILE) | st.sampled_from(["\ud800", "\U0001f525" * 4000, "<" * 9000])
notices = st.builds(
    worded_notice,
    st.sampled_from(["new", "recurring", "escalating", "resolved", "ended", "blind"]),
    cluster=texts,
    what=texts,
    cause=st.none() | st.just("nanny.memory-terminate"),
    first_victim=texts,
    task=texts,
    advice=st.lists(texts, max_size=8).map(tuple),
    acts=st.lists(texts, max_size=8).map(tuple),
    hosts=st.frozensets(texts, max_size=8),
    bundle=texts | st.just("https://a.example/1.zip"),
    probability=st.floats(0, 1),
    at=st.floats(),
    opened_at=st.floats(),
    last_death_at=st.floats(),
    death_count=st.integers(0, 10**9),
)
