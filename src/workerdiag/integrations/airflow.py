"""Airflow: retry a task only if the death of Dask's workers allows it.

    @task(retries=3, retry_policy=DeathRetryPolicy())
    def total():
        with Client(cluster) as client, workerdiag.explaining(client):
            ...

Airflow asks a policy in the process of the task, after the task has failed (task SDK 1.3). A cluster that the
task started is gone by then, so ``explaining`` finds the reason earlier.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, assert_never

from workerdiag.integrations.diagnose import diagnose

try:
    from airflow.sdk import RetryDecision, RetryPolicy
except ImportError as problem:
    raise ImportError(
        "the policy for Airflow needs its task SDK 1.3 or newer: pip install 'workerdiag[airflow]'",
        name="airflow.sdk",
    ) from problem

if TYPE_CHECKING:
    from airflow.sdk import Context


class DeathRetryPolicy(RetryPolicy):
    """Decides by `Decision.policy` whether Airflow tries a task again; the task's ``retries`` stay the limit.

    ``retry`` and ``retry-elsewhere`` are tried again. ``do-not-retry`` fails at once, and so does
    ``retry-with-memory`` unless *give_memory* gives the next try more. ``ask``, and exceptions that did not
    come from Dask, are left to the settings of the task.

    Args:
        scheduler: Address of a scheduler that outlives the task; None: what `explaining` found, the client at
            hand, or Dask's setting ``scheduler-address``.
        retry_delay: Time before the next try; None: that of the task.
        give_memory: Called with the minimum memory for each worker, in bytes, and Airflow's context. It
            stores the size for the next try and returns True; or False if the task has had more memory before,
            since nobody knows whether even more would help.
        timeout_s: Seconds that the diagnosis may take; None: the setting ``workerdiag.explain.timeout``.
    """

    def __init__(
        self,
        scheduler: str | None = None,
        *,
        retry_delay: timedelta | None = None,
        give_memory: Callable[[int, Context | None], bool] | None = None,
        timeout_s: float | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.retry_delay = retry_delay
        self.give_memory = give_memory
        self.timeout_s = timeout_s

    def evaluate(
        self,
        exception: BaseException,
        try_number: int,  # noqa: ARG002  Airflow counts the tries
        max_tries: int,  # noqa: ARG002  as above
        context: Context | None = None,
    ) -> RetryDecision:
        """Return what Airflow does with the task, and why. The reason goes to the log of the task."""
        diagnosis = diagnose(exception, self.scheduler, timeout_s=self.timeout_s)
        if diagnosis is None:
            return RetryDecision.default()
        policy = diagnosis.decision.policy
        said = " ".join((f"workerdiag: {policy.action}: {policy.reason}.", *policy.conditions))
        reason = said[:500]  # what Airflow keeps (task_runner.py, task SDK 1.3)
        match policy.action:
            case "retry" | "retry-elsewhere":
                return RetryDecision.retry(delay=self.retry_delay, reason=reason)
            case "retry-with-memory" if (
                self.give_memory is not None
                and policy.memory_bytes is not None
                and self.give_memory(policy.memory_bytes, context)
            ):
                return RetryDecision.retry(delay=self.retry_delay, reason=reason)
            case "do-not-retry" | "retry-with-memory":
                return RetryDecision.fail(reason=reason)
            case "ask":
                return RetryDecision(reason=reason)
            case _:
                assert_never(policy.action)
