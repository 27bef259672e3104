"""Queues from Python, as PEs: symmetric memory by the library's own functions, so that shmem4py need not be there."""

import cffi
import clearway_shmem_queue as queues

ffi = cffi.FFI()
ffi.cdef(
    "void shmem_init(void); void shmem_finalize(void); int shmem_my_pe(void); int shmem_n_pes(void);"
    "void *shmem_calloc(size_t count, size_t size); void shmem_barrier_all(void); void shmem_quiet(void);"
)
lib = ffi.dlopen("libclearway_shmem.so.1")
lib.shmem_init()
me, pes = lib.shmem_my_pe(), lib.shmem_n_pes()
following = (me + 1) % pes
table = memoryview(ffi.buffer(lib.shmem_calloc(16, 8), 128)).cast("B").cast("q")

with queues.CommQueue(timeout=float("inf")) as comm:
    for pe in range(pes):
        comm.add(table[3:4], me + 1, pe)
        comm.bitwise("or", table[4:5], 1 << me, pe)
    assert comm.attributes()["granted_class"] == queues.MEDIUM
    ticket = comm.flush_later()
    while not comm.is_done(ticket):
        pass
    comm.put(table[8:10], bytearray(b"sixteen letters!"), following)
    comm.set(table[12:13], 7, following)
    comm.fence()
    back = bytearray(16)
    comm.get(back, table[8:10].cast("B"), following)
    comm.flush()
    assert back == b"sixteen letters!", back
    # A target of a get that the program forgets is written all the same.
    for _ in range(100):
        comm.get(bytearray(16), table[8:10].cast("B"), following)
    while not comm.is_done(comm.flush_later()):
        pass
    for wrong in (
        lambda: comm.add(table[0:1], bytearray(8), pe=pes),
        lambda: comm.get(bytearray(15), table[8:10], following),
        lambda: comm.put(table[8:9], bytearray(16), following),
        lambda: comm.add(table[8:10].cast("B").cast("i"), table[8:10], following),
    ):
        try:
            wrong()
        except queues.QueueError as error:
            assert not isinstance(error, queues.QueueFull)
        else:
            raise AssertionError("there is no such PE, or the buffers differ")
lib.shmem_barrier_all()
assert table[3] == pes * (pes + 1) // 2 and table[4] == (1 << pes) - 1 and table[12] == 7, list(table)

data = queues.DataQueue(8, max_bytes=64)
sent = 0
try:
    while True:
        data.push((100 * me + sent).to_bytes(8, "little"), following)
        sent += 1
except queues.QueueFull:
    assert sent == 8, sent
# A member that pops early makes room, and its neighbour could push more than fits.
lib.shmem_barrier_all()
popped = []
while data.advance(done=True) != queues.COMPLETE:
    found = data.pop()
    if found:
        popped.append((int.from_bytes(found[0], "little"), found[1]))
before = (me + pes - 1) % pes
assert popped == [(100 * before + index, before) for index in range(8)], popped
data.destroy()
print(f"PE {me} of {pes} is content")
lib.shmem_finalize()
