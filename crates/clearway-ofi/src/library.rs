//! Finds and loads a libfabric at run time, and asks it what it offers.
//!
//! # Model
//! Two places are tried in order: the path that the caller names, or else `libfabric.so.1` where
//! the system's loader looks (`LD_LIBRARY_PATH` of a module system included). Nothing is needed at
//! build time, and a program that never loads the library runs where there is none. A loaded
//! library stays for the life of the process: providers leave threads and exit handlers behind, so
//! that unloading one is not safe.
//!
//! # Source
//! Symbol versions: libfabric exports `fi_getinfo` once for each layout that its structures had.
//! `FABRIC_1.3` is the layout of 1.17, and releases up to 2.7 still export it; a plain `dlsym`
//! would return the newest layout, which is another one. Signal handlers: libinfinipath and
//! libpsm2, which Debian's 1.17 pulls in, install one for SIGSEGV when loaded.
//!
//! # Invariants
//! I1. Every structure that crosses this border has the layout of [`crate::abi`]: each symbol is
//!     asked for by version.
//! I2. Signal handlers are after loading, and after the first question, what they were before.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};

use crate::abi::*;
use crate::error::OfiError;

/// What the system's loader is asked for: the name that 1.x and 2.x share.
const DEFAULT_NAME: &str = "libfabric.so.1";
/// Signals that may have handlers: 1 to 64 (`signal(7)`); two that libc keeps for itself refuse to
/// be read.
const SIGNALS: std::ops::RangeInclusive<c_int> = 1..=64;

type AskOffers = unsafe extern "C" fn(
    u32,
    *const c_char,
    *const c_char,
    u64,
    *const FiRecord,
    *mut *mut FiRecord,
) -> c_int;
type FreeRecord = unsafe extern "C" fn(*mut FiRecord);
type CopyRecord = unsafe extern "C" fn(*const FiRecord) -> *mut FiRecord;
type OpenFabric =
    unsafe extern "C" fn(*mut FiFabricAttr, *mut *mut FidFabric, *mut c_void) -> c_int;
type StrError = unsafe extern "C" fn(c_int) -> *const c_char;

/// A version as libfabric says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LibraryVersion {
    /// The first number.
    pub major: u16,
    /// The second number.
    pub minor: u16,
}

impl LibraryVersion {
    fn from_packed(packed: u32) -> Self {
        Self { major: (packed >> 16) as u16, minor: packed as u16 }
    }
}

impl fmt::Display for LibraryVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A loaded libfabric. Copies are the same library.
#[derive(Clone, Debug)]
pub(crate) struct Library {
    get_info: AskOffers,
    free_info: FreeRecord,
    dup_info: CopyRecord,
    open_fabric: OpenFabric,
    str_error: StrError,
    /// The interface version that it speaks.
    pub(crate) version: LibraryVersion,
    /// The file it came from.
    pub(crate) path: PathBuf,
}

/// What an endpoint must be able to do.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndpointRequirements {
    /// Atomics, beyond messages, one-sided operations and multi-receives.
    pub(crate) atomics: bool,
    /// Only offers that use this address.
    pub(crate) source: Option<IpAddr>,
}

/// One way to communicate that a library offers; what it says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OfferFacts {
    pub(crate) provider: String,
    pub(crate) provider_version: u32,
    pub(crate) domain: String,
    pub(crate) protocol: u32,
    pub(crate) protocol_version: u32,
    pub(crate) source: Option<SocketAddr>,
    pub(crate) address_format: u32,
    pub(crate) atomics: bool,
    pub(crate) mode: u64,
    pub(crate) mr_mode: c_int,
    pub(crate) mr_key_size: usize,
    pub(crate) order: u64,
    pub(crate) inject_size: usize,
    pub(crate) message_max: usize,
}

/// An offer with the library's own record of it.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) facts: OfferFacts,
    pub(crate) library: Library,
    record: FabricRecord,
}

/// An owned `fi_info`.
#[derive(Debug)]
struct FabricRecord {
    info: NonNull<FiRecord>,
    free: FreeRecord,
}

// SAFETY: a plain structure on the heap that this value alone owns; `fi_freeinfo` may be called by
// any thread.
unsafe impl Send for FabricRecord {}

impl Drop for FabricRecord {
    fn drop(&mut self) {
        // SAFETY: `info` came from this library's getinfo or dupinfo and is freed once, here.
        unsafe { (self.free)(self.info.as_ptr()) };
    }
}

impl Library {
    /// Loads the library at `named`, or else the system's.
    ///
    /// # Errors
    /// The file cannot be loaded, or is no libfabric of 1.17 or later; the sentence says which.
    pub(crate) fn load(named: Option<&Path>) -> Result<Self, OfiError> {
        let name = named.map_or(DEFAULT_NAME.as_bytes(), |path| path.as_os_str().as_bytes());
        let c_name = CString::new(name)
            .map_err(|_| OfiError::NoLibrary { said: "the path has a zero byte".into() })?;
        // SAFETY: a plain dlopen of a null-terminated name. The library's constructors run; those
        // of libfabric and of what it pulls in touch nothing of this process but signal handlers,
        // which are put back.
        let handle = keeping_signal_handlers(|| unsafe {
            libc::dlopen(c_name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL)
        });
        let Some(handle) = NonNull::new(handle) else {
            return Err(OfiError::NoLibrary { said: loader_said() });
        };
        let fallback = PathBuf::from(std::ffi::OsString::from_vec(name.to_vec()));
        let find = |symbol: &'static CStr, version: &'static CStr| {
            find(handle, symbol, version, &fallback)
        };
        let get_info = find(c"fi_getinfo", c"FABRIC_1.3")?;
        let path = file_of(get_info).unwrap_or_else(|| fallback.clone());
        // SAFETY: each symbol was asked for by the version in which it has exactly this signature.
        unsafe {
            let version = std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> u32>(
                find(c"fi_version", c"FABRIC_1.0")?.as_ptr(),
            );
            Ok(Self {
                get_info: std::mem::transmute::<*mut c_void, AskOffers>(get_info.as_ptr()),
                free_info: std::mem::transmute::<*mut c_void, FreeRecord>(
                    find(c"fi_freeinfo", c"FABRIC_1.3")?.as_ptr(),
                ),
                dup_info: std::mem::transmute::<*mut c_void, CopyRecord>(
                    find(c"fi_dupinfo", c"FABRIC_1.3")?.as_ptr(),
                ),
                open_fabric: std::mem::transmute::<*mut c_void, OpenFabric>(
                    find(c"fi_fabric", c"FABRIC_1.1")?.as_ptr(),
                ),
                str_error: std::mem::transmute::<*mut c_void, StrError>(
                    find(c"fi_strerror", c"FABRIC_1.0")?.as_ptr(),
                ),
                version: LibraryVersion::from_packed(version()),
                path,
            })
        }
    }

    /// Returns what the library calls the error `code`.
    pub(crate) fn error_text(&self, code: i32) -> String {
        // SAFETY: fi_strerror takes any number and returns a static string.
        unsafe { text((self.str_error)(code.abs())) }
    }

    /// Returns everything that the library's providers offer for `question`, in the library's
    /// order.
    ///
    /// # Errors
    /// The code that the library gave, other than that there is nothing.
    pub(crate) fn offers(&self, question: &EndpointRequirements) -> Result<Vec<Offer>, i32> {
        let mut hints = self.hints().ok_or(libc::ENOMEM)?;
        // SAFETY: the library filled `hints` with its five attribute structures, and nobody else
        // has it.
        unsafe { fill(hints.info.as_mut(), question) };
        let node =
            question.source.map(|address| CString::new(address.to_string()).unwrap_or_default());
        let (node_text, flags) =
            node.as_ref().map_or((ptr::null(), 0), |node| (node.as_ptr(), FI_SOURCE));
        let mut first = ptr::null_mut();
        // SAFETY: hints and node live across the call; `first` receives a list that is freed below.
        let code = keeping_signal_handlers(|| unsafe {
            (self.get_info)(
                API_VERSION,
                node_text,
                ptr::null(),
                flags,
                hints.info.as_ptr(),
                &mut first,
            )
        });
        if code != 0 || first.is_null() {
            return if code == 0 || -code == FI_ENODATA { Ok(Vec::new()) } else { Err(-code) };
        }
        let mut offers = Vec::new();
        let mut next = first;
        // SAFETY: a list of complete records, linked by `next`, that stays until it is freed after
        // the loop.
        while let Some(info) = unsafe { next.as_ref() } {
            offers.extend(self.record_of(info).map(|record| {
                // SAFETY: a record of the library's has all its attribute structures.
                let facts = unsafe { facts_of(record.info.as_ref()) };
                Offer { facts, library: self.clone(), record }
            }));
            next = info.next;
        }
        // SAFETY: the list came from getinfo above and is not used any more; the offers are copies.
        unsafe { (self.free_info)(first) };
        Ok(offers)
    }

    /// Creates an empty record with its attribute structures: what headers call `fi_allocinfo`.
    fn hints(&self) -> Option<FabricRecord> {
        // SAFETY: dupinfo of nothing allocates an empty record.
        let info = unsafe { (self.dup_info)(ptr::null()) };
        NonNull::new(info).map(|info| FabricRecord { info, free: self.free_info })
    }

    fn record_of(&self, info: &FiRecord) -> Option<FabricRecord> {
        // SAFETY: dupinfo copies one record, and the copy is owned here.
        let copy = unsafe { (self.dup_info)(info) };
        NonNull::new(copy).map(|info| FabricRecord { info, free: self.free_info })
    }

    /// Calls `fi_fabric`: its answer, and the object if that is zero, which belongs to the caller.
    pub(crate) fn open_fabric(&self, offer: &Offer) -> (c_int, *mut FidFabric) {
        let mut fabric = ptr::null_mut();
        // SAFETY: the record has a fabric attribute structure; `fabric` receives the object.
        let code = unsafe {
            (self.open_fabric)((*offer.info()).fabric_attr, &mut fabric, ptr::null_mut())
        };
        (code, fabric)
    }
}

impl Offer {
    /// Returns the library's record, for calls that open objects from it.
    pub(crate) fn info(&self) -> *mut FiRecord {
        self.record.info.as_ptr()
    }

    /// Returns this offer with libfabric's traffic class `tclass` asked for.
    pub(crate) fn with_class(&self, tclass: u32) -> Option<Self> {
        // SAFETY: the record is complete and lives as long as this offer.
        let record = self.library.record_of(unsafe { self.record.info.as_ref() })?;
        // SAFETY: the copy is owned here alone and has a transmit attribute structure.
        unsafe { (*(*record.info.as_ptr()).tx_attr).tclass = tclass };
        Some(Self { facts: self.facts.clone(), library: self.library.clone(), record })
    }
}

/// Writes what is asked for into empty hints.
///
/// # Safety
/// All attribute structures of `hints` must be there.
unsafe fn fill(hints: &mut FiRecord, question: &EndpointRequirements) {
    let mut caps = FI_MSG | FI_RMA | FI_MULTI_RECV;
    caps |= FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    hints.caps = if question.atomics { caps | FI_ATOMIC } else { caps };
    hints.mode = FI_CONTEXT | FI_CONTEXT2;
    // SAFETY: as promised by the caller.
    unsafe {
        (*hints.ep_attr).ep_type = FI_EP_RDM;
        let domain = &mut *hints.domain_attr;
        domain.threading = FI_THREAD_DOMAIN;
        domain.control_progress = FI_PROGRESS_MANUAL;
        domain.data_progress = FI_PROGRESS_MANUAL;
        domain.resource_mgmt = FI_RM_ENABLED;
        domain.av_type = FI_AV_TABLE;
        domain.mr_mode =
            FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
    }
}

/// Reads an offer.
///
/// # Safety
/// All attribute structures of `info` must be there, their strings null-terminated or null.
unsafe fn facts_of(info: &FiRecord) -> OfferFacts {
    // SAFETY: as promised by the caller.
    unsafe {
        let (tx, ep) = (&*info.tx_attr, &*info.ep_attr);
        let (domain, fabric) = (&*info.domain_attr, &*info.fabric_attr);
        OfferFacts {
            provider: text(fabric.prov_name),
            provider_version: fabric.prov_version,
            domain: text(domain.name),
            protocol: ep.protocol,
            protocol_version: ep.protocol_version,
            source: socket_address(info.addr_format, bytes(info.src_addr, info.src_addrlen)),
            address_format: info.addr_format,
            atomics: info.caps & FI_ATOMIC != 0,
            mode: info.mode,
            mr_mode: domain.mr_mode,
            mr_key_size: domain.mr_key_size,
            order: tx.msg_order,
            inject_size: tx.inject_size,
            message_max: ep.max_msg_size,
        }
    }
}

/// Returns the bytes at `start`; none when it is null.
///
/// # Safety
/// `start` is null or points to `length` readable bytes that stay for as long as the result is
/// used.
unsafe fn bytes<'a>(start: *const c_void, length: usize) -> &'a [u8] {
    if start.is_null() {
        return &[];
    }
    // SAFETY: as promised by the caller.
    unsafe { std::slice::from_raw_parts(start.cast(), length) }
}

/// Returns a C string as text; empty for null.
///
/// # Safety
/// `start` is null or points to a null-terminated string.
unsafe fn text(start: *const c_char) -> String {
    if start.is_null() {
        return String::new();
    }
    // SAFETY: as promised by the caller.
    unsafe { CStr::from_ptr(start) }.to_string_lossy().into_owned()
}

/// Returns the IP address and port in a provider's address, if it is one of that kind: `struct
/// sockaddr_in` or `sockaddr_in6`.
pub(crate) fn socket_address(format: u32, bytes: &[u8]) -> Option<SocketAddr> {
    if !matches!(format, FI_SOCKADDR | FI_SOCKADDR_IN | FI_SOCKADDR_IN6) {
        return None;
    }
    let family = u16::from_ne_bytes(bytes.first_chunk().copied()?);
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    let ip = match i32::from(family) {
        libc::AF_INET => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(4..8)?).ok()?)),
        libc::AF_INET6 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes.get(8..24)?).ok()?)),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// Looks a symbol up in the version whose layout is known.
fn find(
    handle: NonNull<c_void>,
    symbol: &'static CStr,
    version: &'static CStr,
    path: &Path,
) -> Result<NonNull<c_void>, OfiError> {
    // SAFETY: a live handle and two null-terminated strings.
    let found = unsafe { libc::dlvsym(handle.as_ptr(), symbol.as_ptr(), version.as_ptr()) };
    NonNull::new(found).ok_or_else(|| OfiError::Symbol {
        path: path.to_owned(),
        symbol: symbol.to_str().unwrap_or_default(),
        version: version.to_str().unwrap_or_default(),
    })
}

/// Returns the file that holds `symbol`.
fn file_of(symbol: NonNull<c_void>) -> Option<PathBuf> {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr takes any address and fills the structure when it returns non-zero.
    let name = unsafe {
        if libc::dladdr(symbol.as_ptr(), found.as_mut_ptr()) == 0 {
            return None;
        }
        text(found.assume_init().dli_fname)
    };
    Some(PathBuf::from(name))
}

/// Returns why the last dlopen failed.
fn loader_said() -> String {
    // SAFETY: dlerror returns null or a string that lives until this thread's next call of the
    // loader.
    unsafe { text(libc::dlerror()) }
}

/// Runs `load` and puts back every signal handler that it changed.
fn keeping_signal_handlers<T>(load: impl FnOnce() -> T) -> T {
    let read = |signal: c_int| {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: only reads the handler into `action`, which is whole when the call returns zero.
        let code = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
        // SAFETY: see above; a zeroed structure would be a valid value as well.
        (code == 0).then(|| (signal, unsafe { action.assume_init() }))
    };
    let before: Vec<(c_int, libc::sigaction)> = SIGNALS.filter_map(read).collect();
    let loaded = load();
    for (signal, action) in before {
        let changed = read(signal).is_some_and(|(_, now)| now.sa_sigaction != action.sa_sigaction);
        if changed {
            // SAFETY: gives a signal the handler that it had before, which is still in this
            // process.
            unsafe { libc::sigaction(signal, &action, ptr::null_mut()) };
        }
    }
    loaded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeping_signal_handlers__a_handler_installed_inside_is_gone_afterwards() {
        extern "C" fn foreign(_: c_int) {}
        let handler = || {
            let mut action = MaybeUninit::<libc::sigaction>::zeroed();
            // SAFETY: reads the handler of SIGUSR2, which nothing else in this test program uses.
            unsafe {
                libc::sigaction(libc::SIGUSR2, ptr::null(), action.as_mut_ptr());
                action.assume_init().sa_sigaction
            }
        };
        let before = handler();
        let inside = keeping_signal_handlers(|| {
            // SAFETY: installs a handler that does nothing.
            unsafe { libc::signal(libc::SIGUSR2, foreign as *const () as libc::sighandler_t) };
            handler()
        });
        assert_ne!(inside, before);
        assert_eq!(handler(), before);
    }

    #[test]
    fn load__a_file_that_is_no_library_is_one_sentence() {
        let error = Library::load(Some(Path::new("/proc/self/cmdline")))
            .expect_err("no library")
            .to_string();
        assert!(error.starts_with("no libfabric: /proc/self/cmdline"), "{error}");
        assert!(
            error.ends_with("or put the library where the loader looks (LD_LIBRARY_PATH)"),
            "{error}"
        );
        let error =
            Library::load(Some(Path::new("libm.so.6"))).expect_err("no libfabric").to_string();
        assert!(error.contains("lacks fi_getinfo of version FABRIC_1.3"), "{error}");
    }

    #[test]
    fn socket_address__both_families_and_nothing_else() {
        let mut v4 = [0u8; 16];
        v4[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        v4[2..8].copy_from_slice(&[0x1f, 0x90, 10, 1, 2, 3]);
        assert_eq!(socket_address(FI_SOCKADDR_IN, &v4), "10.1.2.3:8080".parse().ok());
        assert_eq!(socket_address(FI_SOCKADDR_IN, &v4[..7]), None, "too short");
        assert_eq!(socket_address(12, &v4), None, "an address of another kind");
        let mut v6 = [0u8; 28];
        v6[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
        v6[23] = 1;
        assert_eq!(socket_address(FI_SOCKADDR_IN6, &v6), "[::1]:0".parse().ok());
    }
}
