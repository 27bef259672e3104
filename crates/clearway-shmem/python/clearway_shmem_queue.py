"""Queues of OpenSHMEM operations and data, for use with shmem4py: communication queues, QOS queues, data queues.

Memory is any object with a buffer: bytearray, or an array of NumPy or shmem4py (the latter are symmetric). The type of
elements is that of the buffer.

    from shmem4py import shmem
    import clearway_shmem_queue as queues
    table = shmem.zeros(100, dtype="int64")
    with queues.CommQueue() as queue:
        queue.add(table[7:8], 1, pe=0)
        queue.flush()
"""

import os
import struct

import cffi

__all__ = ["ANY", "COMPLETE", "CommQueue", "DataQueue", "ENDGAME", "HIGH", "LOW", "MEDIUM", "QueueError", "QueueFull"]
__all__ += ["SCAVENGER", "TEAM_WORLD", "WORKING"]

_ffi = cffi.FFI()
_ffi.cdef(
    """
    typedef struct shmemx_queue *shmemx_queue_t;
    typedef struct {
        int qtype, sharing_model;
        uint64_t max_elems, max_bytes;
        int qos_class;
        double timeout_flush;
        int op_type, pe_type;
        size_t elem_size;
        long mask, reserved[4];
    } shmemx_queue_config_t;
    typedef struct {
        uint64_t queue_id, outstanding_elems, available_elems;
        int granted_class, granted_mark;
        uint64_t elements, messages, bytes, closed_full, closed_deadline, closed_flush;
        uint64_t p50_ns, p99_ns, far_messages, far_bytes;
    } shmemx_queue_attr_t;
    typedef struct {
        uint64_t op;
        int pe, elem_type;
        size_t elem_size;
        void *dest;
        const void *source;
        size_t nelems;
        ptrdiff_t dst, sst;
        const void *cond;
        void *fetch;
        uint64_t *sig_addr;
        uint64_t signal;
        int sig_op;
        long reserved[4];
    } shmemx_qop_t;
    int shmemx_queue_create(shmemx_queue_t *queue, void *team, const shmemx_queue_config_t *config);
    int shmemx_queue_destroy(shmemx_queue_t queue);
    int shmemx_queue_push_op(shmemx_queue_t queue, const shmemx_qop_t *operation);
    int shmemx_queue_progress(shmemx_queue_t queue);
    int shmemx_queue_fence(shmemx_queue_t queue);
    int shmemx_queue_flush(shmemx_queue_t queue);
    int shmemx_queue_flush_nbi(shmemx_queue_t queue, uint64_t *ticket);
    int shmemx_queue_test(shmemx_queue_t queue, uint64_t ticket);
    int shmemx_queue_data_pushmem(shmemx_queue_t queue, const void *source, size_t nelems, int pe);
    int shmemx_queue_data_popmem(shmemx_queue_t queue, void *dest, size_t nelems, int *pe);
    int shmemx_queue_data_advance(shmemx_queue_t queue, int done);
    int shmemx_queue_attr(shmemx_queue_t queue, shmemx_queue_attr_t *attr);
    """
)

# The library of this installation; shmem4py has the same, by its name for the loader.
_installed = os.path.join(os.path.dirname(__file__), "../../../lib/libclearway_shmem.so.1")
_lib = _ffi.dlopen(os.path.normpath(_installed) if os.path.exists(_installed) else "libclearway_shmem.so.1")

TEAM_WORLD = 1
ANY = -1
COMPLETE, WORKING, ENDGAME = 0, 1, 2
HIGH, MEDIUM, LOW, SCAVENGER = range(4)

_AGAIN = 1
_COMM, _DATA, _QOS = range(3)
_OPS = {"put": 0, "get": 1, "add": 2, "inc": 3, "and": 16, "or": 17, "xor": 18, "set": 19}
_INTEGERS, _FLOATS = "iIlLqQ", "fd"
_ATTRIBUTES = (
    "outstanding_elems available_elems granted_class granted_mark elements messages bytes "
    "closed_full closed_deadline closed_flush p50_ns p99_ns far_messages far_bytes"
).split()


class QueueError(RuntimeError):
    """A call that cannot be; SHMEM_DEBUG=1 says why on standard error."""


class QueueFull(QueueError):
    """The queue has no room; nothing was done, and there is room again after some progress."""


def _check(answer, what):
    if answer == _AGAIN:
        raise QueueFull(f"{what}: the queue is full")
    if answer < 0:
        raise QueueError(f"{what}: the queue is destroyed, or the arguments do not fit it (SHMEM_DEBUG=1 says which)")
    return answer


def _memory(buffer, writable=False):
    """The address of a buffer, its bytes, and the type of its elements."""
    view = memoryview(buffer)
    if not view.c_contiguous:
        raise QueueError("the elements of a buffer lie one behind the other; copy it first")
    return _ffi.from_buffer(buffer, require_writable=writable), view.nbytes, view.itemsize, view.format.lstrip("@=<")


class _Queue:
    def __init__(self, kind, team, shared, qos, timeout, **fields):
        config = _ffi.new("shmemx_queue_config_t *")
        config.qtype, config.sharing_model, config.timeout_flush = kind, int(shared), timeout
        if qos is not None:
            config.qos_class, config.mask = qos, 1
        for name, value in fields.items():
            setattr(config, name, value)
        handle = _ffi.new("shmemx_queue_t *")
        if _lib.shmemx_queue_create(handle, _ffi.cast("void *", team), config) != 0:
            raise QueueError("the queue cannot be created; SHMEM_DEBUG=1 says why")
        self._handle = handle[0]
        # Targets of gets that no flush has completed: they must live until then. By ticket, those before its flush.
        self._targets, self._flushing = [], {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.flush()
        self.destroy()

    def destroy(self):
        """Destroys the queue, which is empty; a data queue by all members together."""
        _check(_lib.shmemx_queue_destroy(self._handle), "destroy")

    def progress(self):
        """Sends what is old, applies what came; elements outstanding."""
        answer = _lib.shmemx_queue_progress(self._handle)
        if answer < 0:
            _check(answer, "progress")
        return answer

    def flush(self):
        """Completes everything, for all PEs to see; for a data queue by all members together."""
        _check(_lib.shmemx_queue_flush(self._handle), "flush")
        self._targets, self._flushing = [], {}

    def attributes(self):
        """What the queue is and did, by the names of shmemx_queue_attr_t."""
        attr = _ffi.new("shmemx_queue_attr_t *")
        _check(_lib.shmemx_queue_attr(self._handle, attr), "attributes")
        return {name: getattr(attr, name) for name in _ATTRIBUTES}


class CommQueue(_Queue):
    """A queue of puts, gets and atomic operations. With gather=False each is done at once, in its class."""

    def __init__(self, team=TEAM_WORLD, *, shared=False, qos=None, timeout=0.0, max_elems=0, gather=True):
        kind = _COMM if gather else _QOS
        super().__init__(kind, team, shared, qos, timeout, max_elems=max_elems)

    def _push(self, op, dest, source, pe, signal=None):
        # Where a value stands for a buffer, it is one element of the other buffer's type.
        if isinstance(source, (int, float)):
            source = bytearray(struct.pack(memoryview(dest).format, source))
            to, _, size, letter = _memory(dest)
            at, length = _memory(source)[0], size
        else:
            to, room, width, _ = _memory(dest, writable=op == "get")
            at, length, size, letter = _memory(source)
            if room < length or (op not in ("put", "get") and width != size):
                raise QueueError(f"{op}: dest has {room} bytes and source {length}; give dest as many, of the same type")
        call = _ffi.new("shmemx_qop_t *")
        call.op, call.pe = _OPS[op], pe
        call.elem_type = 0 if letter in _INTEGERS else 1 if letter in _FLOATS else 2
        call.elem_size, call.nelems = size, length // size
        call.dest, call.source = to, at
        if signal is not None:
            word, call.signal, call.sig_op = signal
            call.sig_addr = _ffi.cast("uint64_t *", _memory(word)[0])
        _check(_lib.shmemx_queue_push_op(self._handle, call), op)
        if op == "get":
            self._targets.append(to)

    def put(self, dest, source, pe, signal=None):
        """Copies a buffer to a symmetric one of PE pe; signal is (word, value, 0 for set or 1 for add)."""
        self._push("put", dest, source, pe, signal)

    def get(self, dest, source, pe):
        """Copies a symmetric buffer of PE pe; dest is valid after a flush."""
        self._push("get", dest, source, pe)

    def add(self, dest, source, pe):
        """Adds elements, or one number, to a symmetric buffer of PE pe."""
        self._push("add", dest, source, pe)

    def set(self, dest, source, pe):
        """Replaces elements of a symmetric buffer of PE pe, each whole."""
        self._push("set", dest, source, pe)

    def bitwise(self, op, dest, source, pe):
        """The same for op "and", "or" or "xor"."""
        self._push(op, dest, source, pe)

    def fence(self):
        """Orders what was pushed to a PE before what is pushed to it afterwards."""
        _check(_lib.shmemx_queue_fence(self._handle), "fence")

    def flush_later(self):
        """Sends everything off; a ticket for is_done."""
        ticket = _ffi.new("uint64_t *")
        _check(_lib.shmemx_queue_flush_nbi(self._handle, ticket), "flush_later")
        if self._targets:
            self._flushing.setdefault(ticket[0], []).extend(self._targets)
            self._targets = []
        return ticket[0]

    def is_done(self, ticket):
        """Whether everything is complete that was pushed before the flush with this ticket."""
        answer = _lib.shmemx_queue_test(self._handle, ticket)
        if answer < 0:
            _check(answer, "is_done")
        if answer == 1:
            self._flushing.pop(ticket, None)
        return answer == 1


class DataQueue(_Queue):
    """A queue of elements of elem_size bytes that their target pops; created by all members together."""

    def __init__(self, elem_size, team=TEAM_WORLD, *, shared=False, qos=None, timeout=0.0, max_bytes=0):
        super().__init__(_DATA, team, shared, qos, timeout, max_bytes=max_bytes, elem_size=elem_size)
        self.elem_size = elem_size

    def push(self, source, pe):
        """Pushes the elements of a buffer to PE pe, all or none."""
        at, length, _, _ = _memory(source)
        _check(_lib.shmemx_queue_data_pushmem(self._handle, at, length, pe), "push")

    def pop(self, count=1, pe=ANY):
        """Pops elements of one PE, or of any: (bytes, PE), or None where that many are not there."""
        dest, source = bytearray(count * self.elem_size), _ffi.new("int *", pe)
        answer = _lib.shmemx_queue_data_popmem(self._handle, _ffi.from_buffer(dest), len(dest), source)
        if answer == _AGAIN:
            return None
        _check(answer, "pop")
        return bytes(dest), source[0]

    def advance(self, done):
        """WORKING, ENDGAME or COMPLETE; a PE that is done pushes only because of what it pops."""
        answer = _lib.shmemx_queue_data_advance(self._handle, int(done))
        if answer < 0:
            _check(answer, "advance")
        return answer
