//! Objects of the library's and memory, each owned by one value; and the steps by which a provider
//! is opened.
//!
//! # Invariants
//! I1. What a value here owns is closed or freed once, when the value is dropped. In which order is
//!     the device's matter.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};

use rustix::event::epoll;
use rustix::fs::SealFlags;

use crate::abi::*;
use crate::error::OfiError;
use crate::library::Offer;
use crate::port::WakeMethod;

/// Alignment of memory: a page, so that words are aligned and registration pins nothing else.
const PAGE: usize = 4096;
/// Entries of the completion queue: everything that can be under way on five lanes, twelve times
/// over.
const QUEUE_LENGTH: usize = 4096;

/// An object of the library's; closed when dropped.
pub(super) struct OwnedObject<T>(NonNull<T>);

// SAFETY: domains are opened with `FI_THREAD_DOMAIN`, which asks that one thread at a time uses the
// objects of a domain, whichever it is. All objects of a domain are in one `Device`, every call
// takes it by `&mut`, and it is not `Sync`.
unsafe impl<T> Send for OwnedObject<T> {}

impl<T> OwnedObject<T> {
    pub(super) fn raw(&self) -> *mut T {
        self.0.as_ptr()
    }

    /// Returns the `Fid` that every object begins with.
    pub(super) fn fid(&self) -> *mut Fid {
        self.0.as_ptr().cast()
    }
}

impl<T> Drop for OwnedObject<T> {
    fn drop(&mut self) {
        let fid = self.fid();
        // SAFETY: a live object that this value alone owns; its table has `close` first.
        unsafe { ((*(*fid).ops).close)(fid) };
    }
}

/// Bytes at an address that stays.
#[derive(Debug)]
pub(super) struct PinnedBytes {
    pub(super) start: NonNull<u8>,
    pub(super) length: usize,
    origin: ByteOrigin,
}

/// Where bytes come from.
#[derive(Debug)]
enum ByteOrigin {
    Allocated(Layout),
    /// Mapped from a file, this many bytes.
    Mapped(usize),
}

// SAFETY: memory of the process that this value alone owns; any thread may use and free it.
unsafe impl Send for PinnedBytes {}

impl PinnedBytes {
    pub(super) fn zeroed(length: usize) -> Option<Self> {
        let layout = Layout::from_size_align(length.max(1), PAGE).ok()?;
        // SAFETY: the layout is not of size zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { start, length, origin: ByteOrigin::Allocated(layout) })
    }

    /// Maps the first `length` bytes of a file that others map too.
    ///
    /// # Errors
    /// `InvalidData` for a file that is shorter or that could become shorter; what the system said
    /// otherwise.
    pub(super) fn mapped(file: BorrowedFd<'_>, length: usize) -> io::Result<Self> {
        let is_sealed = rustix::fs::fcntl_get_seals(file)?.contains(SealFlags::SHRINK);
        let holds = usize::try_from(rustix::fs::fstat(file)?.st_size)
            .is_ok_and(|size| size >= length.max(1));
        if !is_sealed || !holds {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let (size, protection) = (length.max(1), libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing; failure is
        // checked below.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), size, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { start, length, origin: ByteOrigin::Mapped(size) })
    }

    /// Returns how many bytes are registered with the provider: never none.
    pub(super) fn size(&self) -> usize {
        match self.origin {
            ByteOrigin::Allocated(layout) => layout.size(),
            ByteOrigin::Mapped(size) => size,
        }
    }

    /// Returns whether other owners change the bytes at any time, so that no reference to them may
    /// be given.
    pub(super) fn is_mapped(&self) -> bool {
        matches!(self.origin, ByteOrigin::Mapped(_))
    }
}

impl Drop for PinnedBytes {
    fn drop(&mut self) {
        match self.origin {
            // SAFETY: allocated with this layout, freed once. Device's drop closes everything that
            // knows the address first.
            ByteOrigin::Allocated(layout) => unsafe { dealloc(self.start.as_ptr(), layout) },
            ByteOrigin::Mapped(size) => {
                // SAFETY: exactly what `mmap` gave, once, after everything that knows the address
                // was closed.
                let _ = unsafe { libc::munmap(self.start.as_ptr().cast(), size) };
            }
        }
    }
}

/// Turns the provider's answer to a step of opening into an error for a person.
pub(super) fn step(offer: &Offer, what: &'static str, code: i32) -> Result<(), OfiError> {
    if code == 0 { Ok(()) } else { Err(refusal(offer, what, -code)) }
}

pub(super) fn refusal(offer: &Offer, what: &'static str, code: i32) -> OfiError {
    OfiError::Provider {
        provider: offer.facts.provider.clone(),
        what,
        said: offer.library.error_text(code),
    }
}

pub(super) fn owned<T>(
    offer: &Offer,
    what: &'static str,
    code: i32,
    object: *mut T,
) -> Result<OwnedObject<T>, OfiError> {
    step(offer, what, code)?;
    NonNull::new(object).map(OwnedObject).ok_or_else(|| refusal(offer, what, libc::ENOMEM))
}

pub(super) fn open_addresses(
    offer: &Offer,
    domain: &OwnedObject<FidDomain>,
) -> Result<OwnedObject<FidAv>, OfiError> {
    // SAFETY: all members are numbers and pointers, for which zero is a value.
    let mut attributes: FiAvAttr = unsafe { std::mem::zeroed() };
    attributes.av_type = FI_AV_TABLE;
    let mut addresses = ptr::null_mut();
    // SAFETY: a live domain; the attributes are read during the call.
    let code = unsafe {
        ((*(*domain.raw()).ops).av_open)(
            domain.raw(),
            &mut attributes,
            &mut addresses,
            ptr::null_mut(),
        )
    };
    owned(offer, "open an address vector", code, addresses)
}

/// What becomes readable when one of the queues has something.
pub(super) enum WakeDescriptor {
    /// The descriptor of the only queue.
    Queue(RawFd),
    /// An `epoll` over those of all queues.
    Any(OwnedFd),
}

impl WakeDescriptor {
    /// Creates the wake descriptor of queues with these descriptors, as far as they have them.
    fn from_descriptors(descriptors: Option<Vec<RawFd>>) -> Option<Self> {
        let descriptors = descriptors?;
        if let [one] = descriptors[..] {
            return Some(Self::Queue(one));
        }
        let any = epoll::create(epoll::CreateFlags::CLOEXEC).ok()?;
        for fd in descriptors {
            // SAFETY: the descriptor of a live queue, borrowed for one call.
            let queue = unsafe { BorrowedFd::borrow_raw(fd) };
            epoll::add(&any, queue, epoll::EventData::new_u64(0), epoll::EventFlags::IN).ok()?;
        }
        Some(Self::Any(any))
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            // SAFETY: it belongs to the queue, which the device keeps as long as this value.
            Self::Queue(fd) => unsafe { BorrowedFd::borrow_raw(*fd) },
            Self::Any(fd) => fd.as_fd(),
        }
    }
}

/// Opens `count` queues, with something to wait for if that is wanted and the provider has it.
pub(super) fn open_queues(
    offer: &Offer,
    domain: &OwnedObject<FidDomain>,
    count: usize,
    waking: WakeMethod,
) -> Result<(Vec<OwnedObject<FidCq>>, Option<WakeDescriptor>), OfiError> {
    let open = |wait_obj| {
        (0..count).map(|_| open_queue(offer, domain, wait_obj)).collect::<Result<Vec<_>, _>>()
    };
    if waking == WakeMethod::Descriptor
        && let Ok(queues) = open(FI_WAIT_FD)
    {
        let wake = WakeDescriptor::from_descriptors(queues.iter().map(descriptor_of).collect());
        return Ok((queues, wake));
    }
    Ok((open(FI_WAIT_NONE)?, None))
}

fn open_queue(
    offer: &Offer,
    domain: &OwnedObject<FidDomain>,
    wait_obj: i32,
) -> Result<OwnedObject<FidCq>, OfiError> {
    // SAFETY: all members are numbers and pointers, for which zero is a value.
    let mut attributes: FiCqAttr = unsafe { std::mem::zeroed() };
    attributes.size = QUEUE_LENGTH;
    attributes.format = FI_CQ_FORMAT_DATA;
    attributes.wait_obj = wait_obj;
    let mut queue = ptr::null_mut();
    // SAFETY: a live domain; the attributes are read during the call.
    let code = unsafe {
        ((*(*domain.raw()).ops).cq_open)(domain.raw(), &mut attributes, &mut queue, ptr::null_mut())
    };
    owned(offer, "open a completion queue", code, queue)
}

fn descriptor_of(queue: &OwnedObject<FidCq>) -> Option<RawFd> {
    let mut fd: RawFd = -1;
    let fid = queue.fid();
    // SAFETY: a live queue opened with a descriptor, which is written to `fd`.
    let code = unsafe { ((*(*fid).ops).control)(fid, FI_GETWAIT, (&raw mut fd).cast()) };
    (code == 0 && fd >= 0).then_some(fd)
}

pub(super) fn open_endpoint(
    offer: &Offer,
    domain: &OwnedObject<FidDomain>,
    addresses: &OwnedObject<FidAv>,
    queue: &OwnedObject<FidCq>,
) -> Result<OwnedObject<FidEp>, OfiError> {
    let mut endpoint = ptr::null_mut();
    // SAFETY: a live domain and a record of the fabric that it belongs to.
    let code = unsafe {
        ((*(*domain.raw()).ops).endpoint)(
            domain.raw(),
            offer.info(),
            &mut endpoint,
            ptr::null_mut(),
        )
    };
    let endpoint = owned(offer, "open an endpoint", code, endpoint)?;
    let fid = endpoint.fid();
    let message_max = crate::frame::MESSAGE_MAX;
    // SAFETY: live objects of one domain; the option's value is a size_t that is read during the
    // call.
    unsafe {
        let bind = (*(*fid).ops).bind;
        step(offer, "bind an endpoint to its addresses", bind(fid, addresses.fid(), 0))?;
        step(offer, "bind an endpoint to its queue", bind(fid, queue.fid(), FI_SEND | FI_RECV))?;
        step(
            offer,
            "enable an endpoint",
            ((*(*fid).ops).control)(fid, FI_ENABLE, ptr::null_mut()),
        )?;
        // Not before: `shm` of 1.17 has nowhere to put it until it is enabled, and follows a null
        // pointer.
        let option = (&raw const message_max).cast();
        let set = (*(*endpoint.raw()).ops).setopt;
        let code = set(fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, option, size_of::<usize>());
        step(offer, "say how long messages are", code)?;
    }
    Ok(endpoint)
}
