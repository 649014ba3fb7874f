"""Checkpoints: a run in a folder, from which the same call goes on."""

from tallchain.checkpoints.container import CheckpointError
from tallchain.checkpoints.folder import Folder
from tallchain.checkpoints.identity import described, versions
from tallchain.checkpoints.run import RunCheckpoint, opened

__all__ = ["CheckpointError", "Folder", "RunCheckpoint", "described", "opened", "versions"]
