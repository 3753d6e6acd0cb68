"""The profiler: events of the core, added up, shown and exported."""

from wengert._hooks import hide_frames
from wengert.debug.profile.session import Profile, profile

__all__ = ["Profile", "profile"]

hide_frames()
