"""Golden texts, and the two ways in which hypothesis draws."""

from hypothesis import HealthCheck, settings

pytest_plugins = ["topos.testing.pytest_plugin", "pytester"]

# The default everywhere, so that a failure in CI is a failure on every machine. A deadline would measure the machine.
settings.register_profile("ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
# `pytest --hypothesis-profile explore` looks for new failures.
settings.register_profile("explore", max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci")
