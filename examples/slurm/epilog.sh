#!/bin/sh
# Epilog of slurmd: unmounts what prolog.sh mounted, when the server has everything. Slurm drains a node
# where this fails: a process still uses the mount.
set -eu
clearway=/usr/local/bin/clearway
mounts=/run/clearway-jobs

directory=$mounts/$SLURM_JOB_ID
if ! [ -d "$directory" ]; then
    exit 0
fi
if mountpoint -q -- "$directory"; then
    "$clearway" umount "$directory"
fi
rmdir -- "$directory"
