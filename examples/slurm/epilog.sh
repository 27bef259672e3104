#!/bin/sh
# Epilog of slurmd: unmounts what prolog.sh mounted, and waits until the server has everything. It fails
# while a process still uses the mount; Slurm then sets the node to DRAIN.
set -eu
clearway=/usr/local/bin/clearway
mounts=/run/clearway-jobs

directory=$mounts/$SLURM_JOB_ID
# The list also has a mount whose process was killed: `test -d` and mountpoint(1) fail there.
if grep -qF -- " $directory " /proc/self/mounts; then
    "$clearway" umount "$directory"
fi
if [ -d "$directory" ]; then
    rmdir -- "$directory"
fi
