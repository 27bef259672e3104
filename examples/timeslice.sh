#!/bin/sh
# Recorded microslices in, timeslices out: four inputs and two builders on virtual hosts of this machine, then a look at what was
# built. Needs libfabric, and what `clearway doctor` says of a lab.
set -eu
clearway=${CLEARWAY:-clearway}
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"

# One archive for each input: a thousand microslices of a detector that has spills.
"$clearway" msa make run_%i.msa --channels 4 --mean 2KiB --sizes skewed

# Timeslices of 100 microslices, each with the first one of the next; an archive for each builder.
"$clearway" timeslice build --on lab --inputs 4 --builders 2 --rate 100Mb/s --ring 2MiB \
    --source run_%i.msa --sink ts_%b.tsa --timeslice-size 100 --overlap 1

# Every CRC, every ramp, every order.
"$clearway" msa check ts_0.tsa ts_1.tsa
