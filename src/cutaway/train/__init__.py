"""Batches to better parameters: objectives, optimisers, schedules, the loop, and runs that survive a crash."""
