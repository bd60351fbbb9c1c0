"""How long the tests of this folder wait for what members offer, and where hooks find their service."""

from __future__ import annotations

from tests.agents.hook.hook_services import service_folder
from tests.bridges.conftest import patient_lists

__all__ = ["patient_lists", "service_folder"]
