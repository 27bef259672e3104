#!/bin/sh
# Prolog of slurmd: mounts the staged tree for a job on this node. Adapt the values; slurm.conf then has
#   Prolog=/etc/slurm/prolog.sh
#   Epilog=/etc/slurm/epilog.sh
#   PrologFlags=Alloc
# For a job with #BB_LUA lines, burst_buffer.lua sets CLEARWAY_STAGE to the mount point.
set -eu
clearway=/usr/local/bin/clearway
server=server1
key=/etc/clearway/host.key
mounts=/run/clearway-jobs

directory=$mounts/$SLURM_JOB_ID
mkdir -p -- "$directory"
# Slurm repeats a prolog that it interrupted.
if mountpoint -q -- "$directory"; then
    exit 0
fi
# A node must not hang for ever in the epilog when the server is gone.
exec "$clearway" mount "$server" "$directory" --key "$key" --server-timeout 3600
