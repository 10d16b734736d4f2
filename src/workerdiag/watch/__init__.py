"""Watches a cluster: live deaths become incidents, incidents become cases, cases become notices."""

from workerdiag.lazy import call_module as _call_module

_call_module(__name__, "workerdiag.watch.watcher", "watch")
