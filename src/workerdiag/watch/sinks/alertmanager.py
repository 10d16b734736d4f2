"""Prometheus' Alertmanager by its API v2: a case is an alert, which fires until it is resolved."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from math import isfinite

from workerdiag.incidents import BLIND_KEY
from workerdiag.rendering.wording import clip
from workerdiag.values import field, frozen
from workerdiag.watch.case import WatchedCase
from workerdiag.watch.notices import clean, is_web_address
from workerdiag.watch.sinks.base import TIMEOUT_S, Delivery, name_field, post, sink_name, url_given

#: An alert that nobody sends any more ends after this time, in seconds: that its watcher is gone is no good news.
LASTS_S = 86_400.0
_REMEDY = "give the address of Alertmanager, http://alertmanager:9093"


@frozen
class AlertmanagerSink:
    """Alerts of one Alertmanager. Of a cluster of them, each one needs a sink.

    The labels are the identity of an alert: when they change, the alert with the old ones is resolved.
    """

    url: str = field(repr=False, validator=url_given("alertmanager", _REMEDY))
    name: str = name_field("alertmanager", lambda sink: sink_name("alertmanager", sink.url))
    timeout_s: float = TIMEOUT_S
    #: Seconds after which the last notice of each open case is delivered again: alerts are kept in memory only.
    repeat_s: float = 60.0
    #: Seconds since the epoch.
    clock: Callable[[], float] = field(default=time.time, repr=False)

    def deliver(self, delivery: Delivery) -> Mapping[str, str]:
        """Send the alert, and the end of the one that it replaces; note its labels."""
        labels = labels_of(delivery.notice)
        before = json.loads(delivery.receipt.get("labels", "null"))
        alerts = [alert_of(delivery.notice, labels, self.clock())]
        if before and before != labels:
            alerts.append({**alerts[0], "labels": before, "endsAt": _time(self.clock())})
        url, body = f"{self.url.rstrip('/')}/api/v2/alerts", json.dumps(alerts).encode()
        post(self, url, body, {"Content-Type": "application/json"}, remedy=_REMEDY, secrets=[self.url])
        return {"labels": json.dumps(labels)}


def labels_of(notice: WatchedCase) -> Mapping[str, str]:
    """The labels, by which Alertmanager routes, groups, silences and inhibits."""
    is_blind = notice.key == BLIND_KEY
    cause = notice.cause or ("watcher.blind" if is_blind else "unknown")
    labels = {
        "alertname": "DaskUnwatched" if is_blind else "DaskTrouble",
        "fingerprint": notice.key,
        "cause": cause,
        "family": cause.partition(".")[0],
        "blame": notice.blame,
        "cluster": notice.cluster,
    }
    return {name: clip(clean(value), 200) or "-" for name, value in labels.items()}


def alert_of(notice: WatchedCase, labels: Mapping[str, str], now: float) -> Mapping[str, object]:
    """The alert as JSON: it ends in the past if the case is over."""
    is_over = notice.state in ("resolved", "ended")
    begin = notice.opened_at if isfinite(notice.opened_at) else now
    links = {name: target for name, target in notice.links.items() if is_web_address(target)}
    return {
        "labels": labels,
        "annotations": {
            "summary": notice.title,
            "description": notice.text,
            **({"runbook_url": links["cause"]} if "cause" in links else {}),
        },
        "startsAt": _time(min(begin, now)),
        "endsAt": _time(now if is_over else now + LASTS_S),
        **({"generatorURL": links["bundle"]} if "bundle" in links else {}),
    }


def _time(when: float) -> str:
    return datetime.fromtimestamp(max(0.0, when), UTC).isoformat(timespec="milliseconds")


def from_option(value: str, _: Mapping[str, str]) -> AlertmanagerSink:
    """Return the sink for the address of an Alertmanager."""
    return AlertmanagerSink(value)
