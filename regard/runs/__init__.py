"""Run folders: their layout, and everything that can be read back from one."""
