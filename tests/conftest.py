"""Settings of every test: Hypothesis without deadlines, since timings never decide a test."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "atoll", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("atoll")
