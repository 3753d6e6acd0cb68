"""The profiler: events of the core, added up, shown and exported."""

from wengert.profiling.session import Profile, profile

__all__ = ["Profile", "profile"]
