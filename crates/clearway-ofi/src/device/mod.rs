//! One opened provider: fabric, domain, endpoints, queue, addresses and memory, owned together and
//! closed in order.
//!
//! # Model
//! A [`Device`] has one endpoint for each *lane*, all on one address vector, and one completion
//! queue for all of them or for each. Memory is made here and never leaves: callers
//! name it as [`LocalBytes`] (piece, offset, length), and every call checks a place before a
//! pointer is made of it. What is under way is known by a *key*, the number of one of the device's
//! own contexts; the library gets that context's address, and what it hands back is turned into a
//! key again only if it is one.
//!
//! # Invariants
//! I1. Endpoints are closed before the queues and the addresses they use; memory is freed after
//!     everything that could
//!     touch it is closed; registrations that are bound to an endpoint (`FI_MR_ENDPOINT`) are closed before it.
//! I2. No pointer from the library is followed; addresses in completions become offsets or nothing.
//! I3. Memory never moves and is never unregistered while the device lives.

mod open;

use std::ffi::c_void;
use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::atomic::AtomicU64;

use clearway_proto::wire::AtomicKind;

use self::open::{
    OwnedObject, PinnedBytes, WakeDescriptor, open_addresses, open_endpoint, open_queues, owned,
    refusal, step,
};
use crate::abi::*;
use crate::error::OfiError;
use crate::library::{Offer, OfferFacts};
use crate::port::WakeMethod;
use crate::provider::QueueSharing;

/// Completions taken in one call.
pub(crate) const BATCH: usize = 64;

/// Bytes in this device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LocalBytes {
    /// The piece of memory, in the order of [`Device::add_memory`].
    pub(crate) piece: usize,
    /// Bytes from its beginning.
    pub(crate) offset: usize,
    /// Bytes.
    pub(crate) length: usize,
}

/// A place in a peer's memory, as the fabric names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemoteBytes {
    /// The peer's address number.
    pub(crate) address: u64,
    /// Address or offset, whichever the provider counts in.
    pub(crate) at: u64,
    /// The key of the memory.
    pub(crate) key: u64,
}

/// When a write completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompletionLevel {
    /// Its bytes have left, and may be changed.
    Left,
    /// Its bytes are in the peer's memory.
    There,
}

/// What the library said to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PostResult {
    /// Under way.
    Accepted,
    /// Not now: try again after completions were taken.
    Full,
    /// Never: the error's code.
    Failed(i32),
}

/// The end of something that was under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    /// Its key; `None` for what was given none, and for nonsense.
    pub(crate) key: Option<usize>,
    /// The error's code, if it failed.
    pub(crate) failed: Option<i32>,
    /// A receive buffer is used up and may be posted again.
    pub(crate) released: bool,
    /// Bytes received.
    pub(crate) length: usize,
    /// Where they lie in the receive memory, if something was received.
    pub(crate) offset: Option<usize>,
}

/// A piece of memory with its registration.
struct RegisteredMemory {
    registration: Option<OwnedObject<FidMr>>,
    bytes: PinnedBytes,
}

/// An opened provider. See the module.
pub(crate) struct Device {
    // In the order in which they are closed; `drop` empties the first two.
    endpoints: Vec<OwnedObject<FidEp>>,
    pieces: Vec<RegisteredMemory>,
    wake: Option<WakeDescriptor>,
    queues: Vec<OwnedObject<FidCq>>,
    addresses: OwnedObject<FidAv>,
    domain: OwnedObject<FidDomain>,
    fabric: OwnedObject<FidFabric>,
    contexts: Vec<FiContext2>,
    keys_drawn: u64,
    offer: Offer,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("facts", self.facts())
            .field("lanes", &self.endpoints.len())
            .finish()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.offer.facts.mr_mode & FI_MR_ENDPOINT != 0 {
            self.unregister();
        }
        self.endpoints.clear();
        self.unregister();
    }
}

impl Device {
    /// Opens what `offer` offers, with one endpoint for each of `classes` (libfabric's numbers,
    /// `None` to ask for none) and room for `keys` operations.
    ///
    /// # Errors
    /// The step that the provider refused, and what it said.
    pub(crate) fn open(
        offer: Offer,
        classes: &[Option<u32>],
        queues: QueueSharing,
        keys: usize,
        waking: WakeMethod,
    ) -> Result<Self, OfiError> {
        let (code, fabric) = offer.library.open_fabric(&offer);
        let fabric = owned(&offer, "open the fabric", code, fabric)?;
        let mut domain = ptr::null_mut();
        // SAFETY: a live fabric and the record it was opened from.
        let answer = unsafe {
            ((*(*fabric.raw()).ops).domain)(
                fabric.raw(),
                offer.info(),
                &mut domain,
                ptr::null_mut(),
            )
        };
        let domain = owned(&offer, "open the domain", answer, domain)?;
        let addresses = open_addresses(&offer, &domain)?;
        let count = if queues == QueueSharing::Shared { 1 } else { classes.len() };
        let (queues, wake) = open_queues(&offer, &domain, count, waking)?;
        let mut endpoints = Vec::new();
        for (lane, class) in classes.iter().enumerate() {
            let special = class.and_then(|class| offer.with_class(class));
            let queue = &queues[lane.min(count - 1)];
            endpoints.push(open_endpoint(
                special.as_ref().unwrap_or(&offer),
                &domain,
                &addresses,
                queue,
            )?);
        }
        let contexts = vec![FiContext2 { internal: [0; 8] }; keys];
        Ok(Self {
            endpoints,
            pieces: Vec::new(),
            wake,
            queues,
            addresses,
            domain,
            fabric,
            contexts,
            keys_drawn: 0,
            offer,
        })
    }

    /// Returns what the provider said of itself.
    pub(crate) fn facts(&self) -> &OfferFacts {
        &self.offer.facts
    }

    /// Returns the address of lane `lane`, for peers.
    ///
    /// # Errors
    /// The provider's refusal.
    pub(crate) fn name(&self, lane: usize) -> Result<Vec<u8>, OfiError> {
        let endpoint = &self.endpoints[lane];
        let mut name = vec![0u8; NAME_MAX];
        let mut length = name.len();
        // SAFETY: an enabled endpoint has connection functions; `length` says how much of `name`
        // may be written.
        let code = unsafe {
            ((*(*endpoint.raw()).cm).getname)(endpoint.fid(), name.as_mut_ptr().cast(), &mut length)
        };
        step(&self.offer, "tell its address", code)?;
        name.truncate(length);
        Ok(name)
    }

    /// Inserts a peer's address; the result names it in operations.
    ///
    /// # Errors
    /// The provider does not take it.
    pub(crate) fn insert(&mut self, name: &[u8]) -> Result<u64, OfiError> {
        let mut padded = [0u8; NAME_MAX];
        padded
            .get_mut(..name.len())
            .ok_or_else(|| refusal(&self.offer, "insert an address", libc::EINVAL))?
            .copy_from_slice(name);
        let mut address = u64::MAX;
        let addresses = self.addresses.raw();
        // SAFETY: a live address vector; the address is read from a buffer as long as any address,
        // one is written.
        let inserted = unsafe {
            ((*(*addresses).ops).insert)(
                addresses,
                padded.as_ptr().cast(),
                1,
                &mut address,
                0,
                ptr::null_mut(),
            )
        };
        let code = if inserted == 1 { 0 } else { inserted.min(-libc::EINVAL) };
        step(&self.offer, "insert an address", code)?;
        Ok(address)
    }

    /// Adds `length` zeroed bytes that this device can send from and receive into, and peers can
    /// read and write.
    ///
    /// # Errors
    /// No memory, or the provider does not take it.
    pub(crate) fn add_memory(&mut self, length: usize) -> Result<usize, OfiError> {
        let none = || refusal(&self.offer, "register memory", libc::ENOMEM);
        self.add(PinnedBytes::zeroed(length).ok_or_else(none)?)
    }

    /// Adds the first `length` bytes of a file that others map too; the number of the piece. No
    /// reference to its bytes is given.
    ///
    /// # Errors
    /// The file cannot be mapped or could become shorter, or the provider does not take it.
    pub(crate) fn add_file(
        &mut self,
        file: BorrowedFd<'_>,
        length: usize,
    ) -> Result<usize, OfiError> {
        let refused = |_| refusal(&self.offer, "map memory", libc::EINVAL);
        let bytes = PinnedBytes::mapped(file, length).map_err(refused)?;
        self.add(bytes)
    }

    fn add(&mut self, bytes: PinnedBytes) -> Result<usize, OfiError> {
        let access = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
        let key = if self.offer.facts.mr_mode & FI_MR_PROV_KEY == 0 { self.draw_key() } else { 0 };
        let mut registration = ptr::null_mut();
        let domain = self.domain.raw();
        // SAFETY: a live domain; the bytes live until the registration is closed (I1).
        let code = unsafe {
            ((*(*domain).mr).reg)(
                self.domain.fid(),
                bytes.start.as_ptr().cast(),
                bytes.size(),
                access,
                0,
                key,
                0,
                &mut registration,
                ptr::null_mut(),
            )
        };
        let registration = owned(&self.offer, "register memory", code, registration)?;
        if self.offer.facts.mr_mode & FI_MR_ENDPOINT != 0 {
            self.bind_to_endpoint(&registration)?;
        }
        self.pieces.push(RegisteredMemory { registration: Some(registration), bytes });
        Ok(self.pieces.len() - 1)
    }

    /// Binds a registration to the endpoint: providers that want it (cxi) reach memory through one
    /// endpoint only: the first lane's.
    fn bind_to_endpoint(&self, registration: &OwnedObject<FidMr>) -> Result<(), OfiError> {
        let fid = registration.fid();
        // SAFETY: two live objects of one domain.
        let code = unsafe { ((*(*fid).ops).bind)(fid, self.endpoints[0].fid(), 0) };
        step(&self.offer, "bind memory to an endpoint", code)?;
        // SAFETY: a live object; enabling takes no argument.
        let code = unsafe { ((*(*fid).ops).control)(fid, FI_ENABLE, ptr::null_mut()) };
        step(&self.offer, "enable memory", code)
    }

    /// Returns a memory key that a stranger cannot guess, as long as the provider's keys are.
    fn draw_key(&mut self) -> u64 {
        let mut bytes = [0u8; 8];
        // SAFETY: writes at most eight bytes into a buffer of eight. Without randomness keys are
        // numbers in order.
        let drawn = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        self.keys_drawn += 1;
        let key = if drawn == 8 { u64::from_ne_bytes(bytes) } else { self.keys_drawn };
        match self.offer.facts.mr_key_size {
            0..8 => key & ((1 << (8 * self.offer.facts.mr_key_size)) - 1),
            _ => key,
        }
    }

    /// Returns how many pieces of memory there are.
    pub(crate) fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Returns what a peer must know to reach a piece of memory: the number its bytes begin at, and
    /// their key.
    pub(crate) fn handle_of(&self, piece: usize) -> Option<(u64, u64)> {
        let piece = self.pieces.get(piece)?;
        let virtual_addresses = self.offer.facts.mr_mode & FI_MR_VIRT_ADDR != 0;
        let begin = if virtual_addresses { piece.bytes.start.as_ptr() as u64 } else { 0 };
        // SAFETY: a live registration; its key is a plain member.
        let key = unsafe { (*piece.registration.as_ref()?.raw()).key };
        Some((begin, key))
    }

    /// Returns the length of a piece in bytes.
    pub(crate) fn length(&self, piece: usize) -> Option<usize> {
        self.pieces.get(piece).map(|piece| piece.bytes.length)
    }

    /// Returns the 64-bit word at `offset` of a piece, a multiple of 8.
    pub(crate) fn word(&self, piece: usize, offset: usize) -> Option<&AtomicU64> {
        let (start, _) = self.pointer(LocalBytes { piece, offset, length: 8 })?;
        // SAFETY: eight bytes inside a piece, which begins on a page; pieces live as long as the
        // device.
        offset.is_multiple_of(8).then(|| unsafe { AtomicU64::from_ptr(start.cast()) })
    }

    /// Returns the bytes of a piece of this device's own. Peers and the provider may write to
    /// registered memory at any time; what is read is what was there at some instant.
    pub(crate) fn bytes(&self, piece: usize) -> Option<&[u8]> {
        let bytes = &self.pieces.get(piece).filter(|piece| !piece.bytes.is_mapped())?.bytes;
        // SAFETY: allocated and initialised with this length. The library writes to it only inside
        // calls that take this device mutably, or as a device of its own, outside the program's
        // memory model; every byte pattern is a valid `u8`.
        Some(unsafe { std::slice::from_raw_parts(bytes.start.as_ptr(), bytes.length) })
    }

    /// Returns the bytes of a piece of this device's own, to be written.
    pub(crate) fn bytes_mut(&mut self, piece: usize) -> Option<&mut [u8]> {
        let bytes = &self.pieces.get(piece).filter(|piece| !piece.bytes.is_mapped())?.bytes;
        // SAFETY: as in `bytes`; the exclusive borrow of the device keeps other slices away.
        Some(unsafe { std::slice::from_raw_parts_mut(bytes.start.as_ptr(), bytes.length) })
    }

    /// Copies between two places of one length; `None` when one leaves its piece.
    pub(crate) fn copy(&mut self, from: LocalBytes, into: LocalBytes) -> Option<()> {
        if from.length != into.length {
            return None;
        }
        let (source, target) = (self.pointer(from)?.0, self.pointer(into)?.0);
        // SAFETY: both were checked to lie inside their pieces; `copy` allows overlap.
        unsafe { ptr::copy(source, target, from.length) };
        Some(())
    }

    /// Returns a checked place as pointer and local descriptor.
    fn pointer(&self, place: LocalBytes) -> Option<(*mut u8, *mut c_void)> {
        let piece = self.pieces.get(place.piece)?;
        let end = place.offset.checked_add(place.length)?;
        if end > piece.bytes.length {
            return None;
        }
        // SAFETY: the offset was checked to lie inside the allocation, or at its end.
        let start = unsafe { piece.bytes.start.as_ptr().add(place.offset) };
        // SAFETY: a live registration; its descriptor is a plain member.
        let descriptor = unsafe { (*piece.registration.as_ref()?.raw()).mem_desc };
        Some((start, descriptor))
    }

    fn context(&mut self, key: usize) -> *mut c_void {
        let context: *mut FiContext2 = &raw mut self.contexts[key];
        context.cast()
    }

    /// Returns the key of a context that the library handed back.
    fn key_of(&self, context: *mut c_void) -> Option<usize> {
        let distance = (context as usize).checked_sub(self.contexts.as_ptr() as usize)?;
        let key = distance / size_of::<FiContext2>();
        (key < self.contexts.len() && distance.is_multiple_of(size_of::<FiContext2>()))
            .then_some(key)
    }

    /// Sends the bytes at `from`, which stay untouched until the completion of `key`.
    pub(crate) fn send(
        &mut self,
        lane: usize,
        address: u64,
        from: LocalBytes,
        key: usize,
    ) -> PostResult {
        let Some((start, descriptor)) = self.pointer(from) else {
            return PostResult::Failed(libc::EFAULT);
        };
        let context = self.context(key);
        let endpoint = self.endpoints[lane].raw();
        // SAFETY: a live endpoint, checked bytes in memory that never moves (I3), a context that is
        // the device's own.
        posting(unsafe {
            ((*(*endpoint).msg).send)(
                endpoint,
                start.cast(),
                from.length,
                descriptor,
                address,
                context,
            )
        })
    }

    /// Sends the bytes at `from`, which may be used again at once. There is no completion.
    pub(crate) fn inject(&mut self, lane: usize, address: u64, from: LocalBytes) -> PostResult {
        let Some((start, _)) = self.pointer(from) else { return PostResult::Failed(libc::EFAULT) };
        let endpoint = self.endpoints[lane].raw();
        // SAFETY: a live endpoint and checked bytes, which the library copies before it returns.
        posting(unsafe {
            ((*(*endpoint).msg).inject)(endpoint, start.cast(), from.length, address)
        })
    }

    /// Gives the bytes at `into` to the lane's endpoint for as many messages as fit.
    pub(crate) fn receive(&mut self, lane: usize, into: LocalBytes, key: usize) -> PostResult {
        let Some((start, mut descriptor)) = self.pointer(into) else {
            return PostResult::Failed(libc::EFAULT);
        };
        let context = self.context(key);
        let iov = Iovec { base: start.cast(), len: into.length };
        let message = FiMsg {
            msg_iov: &iov,
            desc: &mut descriptor,
            iov_count: 1,
            addr: u64::MAX,
            context,
            data: 0,
        };
        let endpoint = self.endpoints[lane].raw();
        // SAFETY: a live endpoint; the message is read during the call, the bytes are checked and
        // never move.
        posting(unsafe {
            ((*(*endpoint).msg).recvmsg)(endpoint, &message, FI_MULTI_RECV | FI_COMPLETION)
        })
    }

    /// Writes the bytes at `from` into a peer's memory.
    pub(crate) fn write(
        &mut self,
        lane: usize,
        from: LocalBytes,
        into: RemoteBytes,
        until: CompletionLevel,
        key: usize,
    ) -> PostResult {
        let Some((start, mut descriptor)) = self.pointer(from) else {
            return PostResult::Failed(libc::EFAULT);
        };
        let context = self.context(key);
        let iov = Iovec { base: start.cast(), len: from.length };
        let target = FiRmaIov { addr: into.at, len: from.length, key: into.key };
        let message = FiMsgRma {
            msg_iov: &iov,
            desc: &mut descriptor,
            iov_count: 1,
            addr: into.address,
            rma_iov: &target,
            rma_iov_count: 1,
            context,
            data: 0,
        };
        let endpoint = self.endpoints[lane].raw();
        let level = if until == CompletionLevel::There { FI_DELIVERY_COMPLETE } else { 0 };
        // SAFETY: as in `receive`.
        posting(unsafe { ((*(*endpoint).rma).writemsg)(endpoint, &message, FI_COMPLETION | level) })
    }

    /// Reads a peer's memory into the bytes at `into`; completes when they are there.
    pub(crate) fn read(
        &mut self,
        lane: usize,
        from: RemoteBytes,
        into: LocalBytes,
        key: usize,
    ) -> PostResult {
        let Some((start, descriptor)) = self.pointer(into) else {
            return PostResult::Failed(libc::EFAULT);
        };
        let context = self.context(key);
        let endpoint = self.endpoints[lane].raw();
        // SAFETY: a live endpoint, checked bytes in memory that never moves, a context that is the
        // device's own.
        posting(unsafe {
            ((*(*endpoint).rma).read)(
                endpoint,
                start.cast(),
                into.length,
                descriptor,
                from.address,
                from.at,
                from.key,
                context,
            )
        })
    }

    /// Changes a word of a peer's memory. `words` has three words: operand and comparand (set by
    /// the caller to what `kind` says), and the old value when it completes.
    pub(crate) fn atomic(
        &mut self,
        lane: usize,
        kind: AtomicKind,
        at: RemoteBytes,
        words: LocalBytes,
        key: usize,
    ) -> PostResult {
        let at_words = LocalBytes { length: 24, ..words };
        let Some((operand, descriptor)) = self.pointer(at_words) else {
            return PostResult::Failed(libc::EFAULT);
        };
        let context = self.context(key);
        let endpoint = self.endpoints[lane].raw();
        // SAFETY: the three words were checked to lie inside their piece.
        let (comparand, result) = unsafe { (operand.add(8), operand.add(16)) };
        // SAFETY: as in `read`; the provider said that it has these operations (`has_atomics`).
        unsafe {
            let table = (*endpoint).atomic;
            posting(match kind {
                AtomicKind::FetchAdd(_) | AtomicKind::Swap(_) => ((*table).readwrite)(
                    endpoint,
                    operand.cast(),
                    1,
                    descriptor,
                    result.cast(),
                    descriptor,
                    at.address,
                    at.at,
                    at.key,
                    FI_UINT64,
                    if matches!(kind, AtomicKind::Swap(_)) { FI_ATOMIC_WRITE } else { FI_SUM },
                    context,
                ),
                AtomicKind::CompareSwap { .. } => ((*table).compwrite)(
                    endpoint,
                    operand.cast(),
                    1,
                    descriptor,
                    comparand.cast(),
                    descriptor,
                    result.cast(),
                    descriptor,
                    at.address,
                    at.at,
                    at.key,
                    FI_UINT64,
                    FI_CSWAP,
                    context,
                ),
            })
        }
    }

    /// Returns whether every atomic that a wire needs is there, on 64-bit words.
    pub(crate) fn has_atomics(&self) -> bool {
        let endpoint = self.endpoints[0].raw();
        // SAFETY: a live endpoint; its tables are null or live, their sizes say which functions
        // they have.
        unsafe {
            if !self.offer.facts.atomics || (*endpoint).atomic.is_null() {
                return false;
            }
            let table = &*(*endpoint).atomic;
            if table.size < size_of::<FiOpsAtomic>() {
                return false;
            }
            let valid = |function: Option<AtomicValid>, operation| {
                let mut count = 0;
                function.is_some_and(|f| {
                    f(endpoint, FI_UINT64, operation, &mut count) == 0 && count > 0
                })
            };
            valid(table.readwritevalid, FI_SUM)
                && valid(table.readwritevalid, FI_ATOMIC_WRITE)
                && valid(table.compwritevalid, FI_CSWAP)
        }
    }

    /// Returns how many queues there are: one, or one for each lane.
    pub(crate) fn queues(&self) -> usize {
        self.queues.len()
    }

    /// Puts at most [`BATCH`] completions of a queue into `out`, in place of what it held; makes
    /// progress on the queue's lanes even when there are none. `receive` is the piece of memory
    /// that receive buffers lie in.
    pub(crate) fn poll(&mut self, queue: usize, receive: usize, out: &mut Vec<Completion>) {
        out.clear();
        let mut entries = [const { MaybeUninit::<FiCompletion>::uninit() }; BATCH];
        let raw = self.queues[queue].raw();
        // SAFETY: a live queue of the data format; at most `BATCH` entries are written.
        let read = unsafe { ((*(*raw).ops).read)(raw, entries.as_mut_ptr().cast(), BATCH) };
        if read == -(FI_EAVAIL as isize) {
            return out.extend(self.poll_error(queue));
        }
        let read = usize::try_from(read).unwrap_or(0).min(BATCH);
        for entry in &entries[..read] {
            // SAFETY: the library said that it wrote this many entries.
            let entry = unsafe { entry.assume_init_ref() };
            let received = entry.flags & FI_RECV != 0;
            out.push(Completion {
                key: self.key_of(entry.op_context),
                failed: None,
                released: entry.flags & FI_MULTI_RECV != 0,
                length: if received { entry.len } else { 0 },
                offset: if received { self.offset_in(receive, entry.buf, entry.len) } else { None },
            });
        }
    }

    fn poll_error(&mut self, queue: usize) -> Option<Completion> {
        // SAFETY: all members are numbers and pointers, for which zero is a value.
        let mut error: FiCqErrEntry = unsafe { std::mem::zeroed() };
        let queue = self.queues[queue].raw();
        // SAFETY: a live queue; one entry is written, and later releases' longer one fits as well.
        let read = unsafe { ((*(*queue).ops).readerr)(queue, &mut error, 0) };
        if read != 1 {
            return None;
        }
        let key = self.key_of(error.op_context);
        let released = error.flags & FI_MULTI_RECV != 0;
        Some(Completion { key, failed: Some(error.err.max(1)), released, length: 0, offset: None })
    }

    /// Returns where `start` lies in a piece, if all of `length` does.
    fn offset_in(&self, piece: usize, start: *mut c_void, length: usize) -> Option<usize> {
        let bytes = &self.pieces.get(piece)?.bytes;
        let offset = (start as usize).checked_sub(bytes.start.as_ptr() as usize)?;
        (offset.checked_add(length)? <= bytes.length).then_some(offset)
    }

    /// Returns the descriptor that becomes readable when there is something to poll for, if the
    /// provider has one.
    pub(crate) fn wake_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.wake.as_ref().map(WakeDescriptor::descriptor)
    }

    /// Returns whether the descriptor may be waited for now: nothing is there yet that it would not
    /// tell of.
    pub(crate) fn may_wait(&mut self) -> bool {
        let fabric = self.fabric.raw();
        self.queues.iter().all(|queue| {
            let mut fids = [queue.fid()];
            // SAFETY: a live fabric and a live queue of it that was opened with a descriptor.
            unsafe {
                (*(*fabric).ops)
                    .trywait
                    .is_some_and(|trywait| trywait(fabric, fids.as_mut_ptr(), 1) == 0)
            }
        })
    }

    fn unregister(&mut self) {
        for piece in &mut self.pieces {
            piece.registration = None;
        }
    }
}

/// The longest address of a provider: libfabric's own addresses are at most 64 bytes but for
/// strings, which shm limits to its `NAME_MAX` of 256.
pub(crate) const NAME_MAX: usize = 256;

fn posting(code: isize) -> PostResult {
    match -(code as i32) {
        0 => PostResult::Accepted,
        FI_EAGAIN => PostResult::Full,
        code => PostResult::Failed(code),
    }
}
