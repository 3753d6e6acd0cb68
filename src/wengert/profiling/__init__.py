"""The profiler: events of the core, added up, shown and exported."""

from wengert.profiling.session import Profile, profile
from wengert.user_line import hide_frames

__all__ = ["Profile", "profile"]

hide_frames()
