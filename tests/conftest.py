"""Shared by all tests: the Hypothesis profiles.

``PLACEPROOF_PROFILE=nightly`` searches long, with new examples each time; a run that decides whether a change lands takes the
same examples each time, so that it judges the change and not the draw.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("default", deadline=None, derandomize="CI" in os.environ, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("nightly", deadline=None, max_examples=2_000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("PLACEPROOF_PROFILE", "default"))
