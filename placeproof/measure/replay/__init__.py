"""Programs run by real processes: each is one device of the runner, and exchanges go over gloo."""
