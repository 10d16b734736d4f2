"""All faults: importing this module fills the catalogue."""

from __future__ import annotations

from . import faults_crash, faults_memory, faults_none, faults_start, faults_stops, faults_stuck
from .catalogue import FAULTS, Aftermath, Fault

__all__ = [
    "FAULTS",
    "Aftermath",
    "Fault",
    "faults_crash",
    "faults_memory",
    "faults_none",
    "faults_start",
    "faults_stops",
    "faults_stuck",
]
