//! Calls into the PMIx library, and those into the system that no safe library has: the only unsafe
//! code of this room.
//!
//! # Model
//! The library is loaded at run time by its soname, so that a program built without it starts
//! anywhere. Nine functions and three structs are declared here as `pmix.h` and `pmix_common.h` of
//! releases 4 and 5 declare them; a test compares the layouts with the header where it is
//! installed.
//!
//! # Invariants
//! I1. No pointer outlives the call that it was made for.
//! I2. A loaded library is never unloaded: its own threads run in it.
//!
//! # Not here
//! When the PMIx library is called, and how long it may take (`pmix`).

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::ptr;

use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};

/// Copies stay clear of the three standard descriptors.
const ABOVE_STANDARD: RawFd = 3;

/// Takes over a descriptor that a launcher left open and named in the environment: the result, and
/// the original from now on, are closed in programs that this process starts.
pub(super) fn adopt(number: u32) -> io::Result<OwnedFd> {
    let inherited = close_on_exec(number)?;
    Ok(fcntl_dupfd_cloexec(inherited, ABOVE_STANDARD)?)
}

/// Has a descriptor that was left open closed in programs that this process starts, and lends it.
pub(super) fn close_on_exec(number: u32) -> io::Result<BorrowedFd<'static>> {
    let number =
        RawFd::try_from(number).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: the descriptor is used for two calls of fcntl only, here and in `adopt`, which fail
    // with EBADF when it is not open. It is neither closed nor kept, so nobody else's descriptor
    // can be harmed if the environment names a wrong one.
    let inherited = unsafe { BorrowedFd::borrow_raw(number) };
    fcntl_setfd(inherited, FdFlags::CLOEXEC)?;
    Ok(inherited)
}

/// Has the program that `command` starts inherit `descriptor`, under the number that is returned.
/// No other program inherits it, not even one that another thread starts at the same time: the flag
/// is taken away in the new process only.
pub(super) fn pass_on(command: &mut Command, descriptor: OwnedFd) -> io::Result<RawFd> {
    // Its own three standard descriptors take their places in the new process first.
    let descriptor = fcntl_dupfd_cloexec(descriptor, ABOVE_STANDARD)?;
    let number = descriptor.as_raw_fd();
    let keep = move || Ok(fcntl_setfd(&descriptor, FdFlags::empty())?);
    // SAFETY: between fork and exec the closure makes one system call on a descriptor that the
    // command holds, and an error from a number; it neither allocates nor takes a lock.
    unsafe { command.pre_exec(keep) };
    Ok(number)
}

/// Ends this process with `code` and runs no handler.
pub(super) fn exit_at_once(code: i32) -> ! {
    // SAFETY: the function takes any number, reads and writes no memory of this process, and does
    // not return.
    unsafe { libc::_exit(code) }
}

/// Runs `work`. In it a write to a pipe without a reader is an error and no signal, whatever the
/// program does with SIGPIPE.
pub(super) fn without_sigpipe<T>(work: impl FnOnce() -> T) -> T {
    let _blocked = BlockedSigpipe::new();
    work()
}

/// SIGPIPE waits for this thread as long as this value lives, and is discarded with it. The kernel
/// sends the signal of a write to the thread that wrote, so no other thread is concerned.
struct BlockedSigpipe {
    sigpipe: libc::sigset_t,
    before: libc::sigset_t,
    /// A signal that waited already is not one of ours to discard.
    was_waiting: bool,
}

impl BlockedSigpipe {
    fn new() -> Self {
        // SAFETY: a signal set is plain data, for which zeros are a valid value; each call gets
        // pointers to sets that live through it, and only the mask of this thread changes.
        unsafe {
            let mut sigpipe: libc::sigset_t = mem::zeroed();
            libc::sigemptyset(&mut sigpipe);
            libc::sigaddset(&mut sigpipe, libc::SIGPIPE);
            let was_waiting = Self::is_waiting();
            let mut before: libc::sigset_t = mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, &sigpipe, &mut before);
            Self { sigpipe, before, was_waiting }
        }
    }

    /// Returns whether a SIGPIPE waits for this thread.
    fn is_waiting() -> bool {
        // SAFETY: as in `new`; the second call only reads the set.
        unsafe {
            let mut waiting: libc::sigset_t = mem::zeroed();
            libc::sigpending(&mut waiting);
            libc::sigismember(&waiting, libc::SIGPIPE) == 1
        }
    }
}

impl Drop for BlockedSigpipe {
    fn drop(&mut self) {
        const AT_ONCE: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the sets and the time live through the calls, which only read them; the details
        // of the signal are not asked for. The mask becomes what it was.
        unsafe {
            if !self.was_waiting && Self::is_waiting() {
                libc::sigtimedwait(&self.sigpipe, ptr::null_mut(), &AT_ONCE);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, ptr::null_mut());
        }
    }
}

/// The library's soname, the same from release 2 to 5.
const SONAME: &CStr = c"libpmix.so.2";

/// `pmix_status_t`; zero is success, errors are negative.
pub(super) type PmixStatus = c_int;

/// `PMIX_SUCCESS`.
const SUCCESS: PmixStatus = 0;

/// `PMIX_ERR_TYPE_MISMATCH` of `pmix_common.h`: a value of another type than was asked for.
const TYPE_MISMATCH: PmixStatus = -18;

/// `PMIX_RANK_WILDCARD`: the whole job.
const WHOLE_JOB: u32 = u32::MAX - 1;

/// `PMIX_GLOBAL`: for ranks of all hosts.
const GLOBAL: u8 = 3;

/// Type codes of `pmix_common.h`.
const BOOL: u16 = 1;
const UINT32: u16 = 14;
const BYTE_OBJECT: u16 = 27;

/// Characters of a namespace and of a key, with the terminating zero.
const NAMESPACE: usize = 256;
const KEY: usize = 512;

/// `pmix_proc_t`: a rank of a job.
#[repr(C)]
#[derive(Clone, Copy)]
struct PmixProc {
    namespace: [c_char; NAMESPACE],
    rank: u32,
}

/// The part of `pmix_value_t`'s union that is used here, as long as the whole.
#[repr(C)]
#[derive(Clone, Copy)]
union PmixContent {
    flag: bool,
    number: u32,
    object: PmixByteObject,
    whole: [u64; 3],
}

/// `pmix_byte_object_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct PmixByteObject {
    bytes: *mut c_char,
    size: usize,
}

/// `pmix_value_t`.
#[repr(C)]
struct PmixValue {
    kind: u16,
    content: PmixContent,
}

/// `pmix_info_t`.
#[repr(C)]
struct PmixAttribute {
    key: [c_char; KEY],
    flags: u32,
    value: PmixValue,
}

/// The functions of the library.
#[derive(Clone, Copy)]
pub(super) struct PmixLibrary {
    get_version: unsafe extern "C" fn() -> *const c_char,
    error_string: unsafe extern "C" fn(PmixStatus) -> *const c_char,
    init: unsafe extern "C" fn(*mut PmixProc, *mut PmixAttribute, usize) -> PmixStatus,
    put: unsafe extern "C" fn(u8, *const c_char, *mut PmixValue) -> PmixStatus,
    commit: unsafe extern "C" fn() -> PmixStatus,
    fence: unsafe extern "C" fn(*const PmixProc, usize, *const PmixAttribute, usize) -> PmixStatus,
    get: unsafe extern "C" fn(
        *const PmixProc,
        *const c_char,
        *const PmixAttribute,
        usize,
        *mut *mut PmixValue,
    ) -> PmixStatus,
    finalize: unsafe extern "C" fn(*const PmixAttribute, usize) -> PmixStatus,
    abort: unsafe extern "C" fn(PmixStatus, *const c_char, *mut PmixProc, usize) -> PmixStatus,
}

/// The process that this one is, as the library says.
#[derive(Clone)]
pub(super) struct PmixIdentity(PmixProc);

/// Whether a fence also brings what was put everywhere.
#[derive(Clone, Copy)]
pub(super) enum FenceCollection {
    /// It only waits.
    Plain,
    /// It collects, so that every later get is local.
    Collecting,
}

impl PmixIdentity {
    /// Returns the job's name.
    pub(super) fn namespace(&self) -> String {
        let bytes: Vec<u8> =
            self.0.namespace.iter().map(|c| *c as u8).take_while(|c| *c != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub(super) fn rank(&self) -> u32 {
        self.0.rank
    }
}

impl PmixLibrary {
    /// Loads the library at `path`, or the one that the loader finds.
    ///
    /// # Errors
    /// What the loader said, or the function that is missing.
    pub(super) fn open(path: Option<&Path>) -> Result<Self, String> {
        let name = match path {
            Some(path) => CString::new(path.as_os_str().as_bytes())
                .map_err(|_| "the path holds a zero".to_owned())?,
            None => SONAME.to_owned(),
        };
        // SAFETY: the name is a C string. Loading runs the library's constructors, which is what
        // the user asked for; the handle is never closed (I2).
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let handle = ptr::NonNull::new(handle).ok_or_else(loader_error)?;
        // SAFETY: each field's type is the declaration of the function of that name in pmix.h of
        // releases 4 and 5; the addresses are inside the library, which stays loaded.
        unsafe {
            Ok(Self {
                get_version: function(handle, c"PMIx_Get_version")?,
                error_string: function(handle, c"PMIx_Error_string")?,
                init: function(handle, c"PMIx_Init")?,
                put: function(handle, c"PMIx_Put")?,
                commit: function(handle, c"PMIx_Commit")?,
                fence: function(handle, c"PMIx_Fence")?,
                get: function(handle, c"PMIx_Get")?,
                finalize: function(handle, c"PMIx_Finalize")?,
                abort: function(handle, c"PMIx_Abort")?,
            })
        }
    }

    /// Returns the library's own name of itself and its release.
    pub(super) fn version(&self) -> String {
        // SAFETY: the function takes nothing, may be called before `init`, and gives a constant C
        // string of the library, which stays loaded.
        let text = unsafe { CStr::from_ptr((self.get_version)()) };
        text.to_string_lossy().into_owned()
    }

    /// Returns the library's name of a status.
    pub(super) fn name(&self, status: PmixStatus) -> String {
        // SAFETY: the function takes any number and gives a constant C string of the library, which
        // stays loaded.
        let text = unsafe { (self.error_string)(status).as_ref().map(|text| CStr::from_ptr(text)) };
        text.map_or_else(
            || status.to_string(),
            |text| format!("{} ({status})", text.to_string_lossy()),
        )
    }

    /// Connects to the launcher's server.
    pub(super) fn init(&self) -> Result<PmixIdentity, PmixStatus> {
        let mut identity = PmixProc { namespace: [0; NAMESPACE], rank: 0 };
        // SAFETY: `identity` has the layout of pmix_proc_t and lives through the call; no
        // attributes are given.
        let status = unsafe { (self.init)(&mut identity, ptr::null_mut(), 0) };
        checked(status).map(|()| PmixIdentity(identity))
    }

    /// Puts `bytes` under `key` for everybody; [`commit`](Self::commit) sends it off.
    pub(super) fn put(&self, key: &CStr, bytes: &[u8]) -> Result<(), PmixStatus> {
        let object = PmixByteObject { bytes: bytes.as_ptr().cast_mut().cast(), size: bytes.len() };
        let mut value = PmixValue { kind: BYTE_OBJECT, content: PmixContent { object } };
        assert!(key.to_bytes_with_nul().len() <= KEY, "keys are short");
        // SAFETY: `value` has the layout of pmix_value_t and its bytes live through the call, which
        // copies them and does not write to them.
        checked(unsafe { (self.put)(GLOBAL, key.as_ptr(), &mut value) })
    }

    /// Sends off everything put so far.
    pub(super) fn commit(&self) -> Result<(), PmixStatus> {
        // SAFETY: the function takes nothing.
        checked(unsafe { (self.commit)() })
    }

    /// Waits for all ranks of the job.
    pub(super) fn fence(&self, kind: FenceCollection) -> Result<(), PmixStatus> {
        let mut whole = PmixContent { whole: [0; 3] };
        whole.flag = true;
        let mut collect = PmixAttribute {
            key: [0; KEY],
            flags: 0,
            value: PmixValue { kind: BOOL, content: whole },
        };
        for (place, byte) in collect.key.iter_mut().zip(c"pmix.collect".to_bytes()) {
            *place = *byte as c_char;
        }
        let count = match kind {
            FenceCollection::Plain => 0,
            FenceCollection::Collecting => 1,
        };
        // SAFETY: no list of ranks means the whole job; `collect` has the layout of pmix_info_t, is
        // fully initialised and lives through the call, which only reads it.
        checked(unsafe { (self.fence)(ptr::null(), 0, &collect, count) })
    }

    /// Returns what `rank` has put under `key`, at most `limit` bytes of it.
    pub(super) fn get(
        &self,
        job: &PmixIdentity,
        rank: u32,
        key: &CStr,
        limit: usize,
    ) -> Result<Vec<u8>, PmixStatus> {
        let of = PmixProc { rank, ..job.0 };
        self.read(&of, key, |value| {
            if value.kind != BYTE_OBJECT {
                return None;
            }
            // SAFETY: the type code says that the union holds a byte object.
            let object = unsafe { value.content.object };
            if object.size == 0 || object.bytes.is_null() {
                return Some(Vec::new());
            }
            // SAFETY: the library allocated `size` bytes at `bytes` for this value, which is alive
            // until `read` frees it; no more than that is read.
            let bytes = unsafe {
                std::slice::from_raw_parts(object.bytes.cast::<u8>(), object.size.min(limit))
            };
            Some(bytes.to_vec())
        })
    }

    /// Returns the number that the launcher keeps for the whole job under `key`.
    pub(super) fn number_of_job(&self, job: &PmixIdentity, key: &CStr) -> Result<u32, PmixStatus> {
        let of = PmixProc { rank: WHOLE_JOB, ..job.0 };
        self.read(&of, key, |value| {
            if value.kind != UINT32 {
                return None;
            }
            // SAFETY: the type code says that the union holds a 32-bit number.
            Some(unsafe { value.content.number })
        })
    }

    /// Gets one value, lets `take` copy what it needs, and frees it.
    fn read<T>(
        &self,
        of: &PmixProc,
        key: &CStr,
        take: impl FnOnce(&PmixValue) -> Option<T>,
    ) -> Result<T, PmixStatus> {
        let mut value: *mut PmixValue = ptr::null_mut();
        // SAFETY: `of` has the layout of pmix_proc_t and the key is a C string; both live through
        // the call. No attributes are given. On success the library has stored the address of a
        // value that it allocated.
        checked(unsafe { (self.get)(of, key.as_ptr(), ptr::null(), 0, &mut value) })?;
        // SAFETY: a successful call gives null or a valid pmix_value_t that now belongs to the
        // caller.
        let Some(got) = (unsafe { value.as_ref() }) else { return Err(TYPE_MISMATCH) };
        let taken = take(got).ok_or(TYPE_MISMATCH);
        // SAFETY: as the macro PMIX_VALUE_RELEASE does: the object's bytes and the value come from
        // malloc of the same C library, belong to the caller, and are not used after this. Values
        // of other types free only themselves.
        unsafe {
            if got.kind == BYTE_OBJECT {
                libc::free(got.content.object.bytes.cast());
            }
            libc::free(value.cast());
        }
        taken
    }

    /// Leaves the server.
    pub(super) fn finalize(&self) -> Result<(), PmixStatus> {
        // SAFETY: no attributes are given.
        checked(unsafe { (self.finalize)(ptr::null(), 0) })
    }

    /// Asks the server to end the job.
    pub(super) fn abort(&self, code: i32, sentence: &CStr) -> Result<(), PmixStatus> {
        // SAFETY: the sentence is a C string that lives through the call; no list of ranks means
        // the whole job.
        checked(unsafe { (self.abort)(code, sentence.as_ptr(), ptr::null_mut(), 0) })
    }
}

fn checked(status: PmixStatus) -> Result<(), PmixStatus> {
    if status == SUCCESS { Ok(()) } else { Err(status) }
}

/// Returns the function `name` of a loaded library.
///
/// # Safety
/// `F` is the type of a pointer to that function, and the library is never unloaded.
unsafe fn function<F: Copy>(handle: ptr::NonNull<c_void>, name: &CStr) -> Result<F, String> {
    assert_eq!(
        size_of::<F>(),
        size_of::<*mut c_void>(),
        "a function pointer is as long as an address"
    );
    // SAFETY: the handle comes from dlopen and is never closed; the name is a C string.
    let address = unsafe { libc::dlsym(handle.as_ptr(), name.as_ptr()) };
    if address.is_null() {
        return Err(format!("the library lacks {}", name.to_string_lossy()));
    }
    // SAFETY: the caller says that the address, which is not null, is one of a function of type
    // `F`.
    Ok(unsafe { mem::transmute_copy::<*mut c_void, F>(&address) })
}

/// Returns what the loader says about its last failure in this thread.
fn loader_error() -> String {
    // SAFETY: dlerror gives null or a C string that is valid until the next call of the loader in
    // this thread.
    let text = unsafe {
        libc::dlerror().as_ref().map(|text| CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    text.unwrap_or_else(|| "the loader gave no reason".to_owned())
}

#[cfg(test)]
mod tests;
