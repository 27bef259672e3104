"""Writes a file with h5py while another process reads it (SWMR), and prints its sum.

Arguments: the path. A line of output ends each step; a missing h5py is said, and is no error.
"""

import subprocess
import sys

try:
    import h5py
    import numpy
except ImportError as why:
    print("missing", why)
    sys.exit()

READER = """
import h5py, sys
with h5py.File(sys.argv[1], "r", libver="latest", swmr=True) as file:
    rows = file["rows"]
    print("ready", flush=True)
    for line in sys.stdin:
        rows.refresh()
        print(rows.shape[0], int(rows[:].sum()), flush=True)
"""

path = sys.argv[1]
with h5py.File(path, "w", libver="latest") as file:
    rows = file.create_dataset("rows", (0, 100), maxshape=(None, 100), chunks=(8, 100), dtype="i8")
    file.create_dataset("whole", data=numpy.arange(200000).reshape(2000, 100), compression="gzip")
    command = [sys.executable, "-c", "import h5py, sys; h5py.File(sys.argv[1], 'a')", path]
    other = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    assert "unable to lock file" in other.stderr, other.stderr
    file.swmr_mode = True
    command = [sys.executable, "-c", READER, path]
    reader = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert reader.stdout.readline() == "ready\n"
    for number in range(1, 21):
        rows.resize(number, axis=0)
        rows[number - 1] = number
        rows.flush()
        reader.stdin.write("\n")
        reader.stdin.flush()
        expected = f"{number} {100 * sum(range(number + 1))}\n"
        assert reader.stdout.readline() == expected, f"the reader lacks row {number}"
    reader.stdin.close()
    assert reader.wait() == 0
print("written")
