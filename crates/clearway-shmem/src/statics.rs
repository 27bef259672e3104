//! Moves the variables of the executable, in place, to memory that other PEs can map.
//!
//! # Model
//! In OpenSHMEM, global and static variables of the executable are symmetric. Initially they are in
//! private pages. Before any thread starts, this module copies them to a file in memory and maps the
//! file over them. The program sees the same bytes at the same addresses.
//!
//! The range is the writable segment of the executable without what the loader made read-only
//! (RELRO). Of its uninitialised part only pages that the program has touched are copied.
//!
//! A child of `fork` must not change its parent's variables: it first copies them back to private
//! pages, and the parent waits for that. `vfork`, `posix_spawn` and `system` need nothing, because
//! their child runs in its parent's memory until it executes a program.
//!
//! In a process with several threads the variables stay private: another thread could change one
//! between copy and mapping.
//!
//! # Source
//! `dl_iterate_phdr(3)`, `elf(5)` (PT_LOAD, PT_GNU_RELRO), `pagemap` of `proc(5)`,
//! `pthread_atfork(3)`.
//!
//! # Not here
//! Variables of shared libraries: the standard does not make them symmetric.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use clearway_runtime::near::StaticsFile;

use crate::calls;

/// The variables of the executable.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Range {
    pub(crate) start: usize,
    /// The end of the part that the file of the executable initialises.
    filled: usize,
    pub(crate) end: usize,
    /// A hash of the executable's build id: other executables have other variables.
    pub(crate) build: u64,
}

/// Shareable variables.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) range: Range,
    pub(crate) file: StaticsFile,
}

/// What a child of `fork` needs to make its variables private.
struct Kept {
    range: Range,
    file: OwnedFd,
}

/// This process is a child of `fork`, whose variables are private already.
static IS_TAKEN_BACK: AtomicBool = AtomicBool::new(false);
static KEPT: OnceLock<Kept> = OnceLock::new();
/// The pipe by which a child of `fork` reports that its variables are private; -1 outside of a fork.
static PIPE: [AtomicI32; 2] = [AtomicI32::new(-1), AtomicI32::new(-1)];

/// Makes the executable's variables shareable.
///
/// # Errors
/// The reason why not, as a sentence.
pub(crate) fn share() -> Result<Shared, String> {
    let threads = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    if threads != 1 {
        return Err(format!(
            "the program has {threads} threads at its start; its variables can be moved only if it has one"
        ));
    }
    let range = find().ok_or("the executable's variables were not found")?;
    let said = |what: &str, error: io::Error| format!("the system refused to {what}: {error}");
    let length = range.end - range.start;
    let file = StaticsFile::new(length)
        .map_err(|error| said("make memory for the program's variables", error))?;
    let kept = file.file.try_clone().map_err(|error| said("duplicate a descriptor", error))?;
    let touched = touched_pages(range);
    // From here to the mapping no code may change a variable: no allocation, no lock.
    copy_out(range, &touched, &file.file)
        .map_err(|error| said("copy the program's variables", error))?;
    map_over(range, &file.file).map_err(|error| said("map the program's variables", error))?;
    if KEPT.set(Kept { range, file: kept }).is_ok()
        && !calls::at_fork(before_fork, after_fork_parent, after_fork_child)
    {
        return Err("the system refused to register a fork handler".to_owned());
    }
    Ok(Shared { range, file })
}

fn page() -> usize {
    // SAFETY: `sysconf` takes a number and has no precondition.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4_096)
}

/// Finds the variables of the executable.
fn find() -> Option<Range> {
    let mut range = Range::default();
    // SAFETY: the callback has the type of the C library, is called before this returns, and gets
    // the address of `range` back.
    unsafe { libc::dl_iterate_phdr(Some(first_object), (&raw mut range).cast()) };
    (range.start < range.end).then_some(range)
}

/// Looks at the first object, which is the executable, and ends the iteration.
unsafe extern "C" fn first_object(
    object: *mut libc::dl_phdr_info,
    _size: usize,
    range: *mut c_void,
) -> c_int {
    // SAFETY: the C library gives an object that is valid during the call, with this many program
    // headers, and `find` gave a `Range`.
    let (base, headers, range) = unsafe {
        let object = &*object;
        let headers = std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum));
        (object.dlpi_addr as usize, headers, &mut *range.cast::<Range>())
    };
    let page = page();
    let relro = headers.iter().find(|header| header.p_type == libc::PT_GNU_RELRO);
    let relro_end = relro
        .map_or(0, |relro| (base + relro.p_vaddr as usize + relro.p_memsz as usize) / page * page);
    let writable = |header: &&libc::Elf64_Phdr| {
        header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W != 0
    };
    for header in headers.iter().filter(writable) {
        let start = base + header.p_vaddr as usize;
        let end = (start + header.p_memsz as usize).next_multiple_of(page);
        let begin = (start / page * page).max(if (start..=end).contains(&relro_end) {
            relro_end
        } else {
            0
        });
        if begin < end && end - begin > range.end - range.start {
            let filled = (start + header.p_filesz as usize).next_multiple_of(page);
            *range =
                Range { start: begin, filled: filled.clamp(begin, end), end, build: range.build };
        }
    }
    for note in headers.iter().filter(|header| header.p_type == libc::PT_NOTE) {
        // SAFETY: notes lie in a loaded, readable segment of the executable.
        let bytes = unsafe {
            std::slice::from_raw_parts(
                (base + note.p_vaddr as usize) as *const u8,
                note.p_memsz as usize,
            )
        };
        range.build = bytes.iter().fold(range.build, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
    }
    1
}

/// Returns which pages of the uninitialised part the program has touched, or all pages if the system
/// does not say.
fn touched_pages(range: Range) -> Vec<bool> {
    let page = page();
    let count = (range.end - range.filled) / page;
    let mut entries = vec![0u8; count * size_of::<u64>()];
    let read = File::open("/proc/self/pagemap").and_then(|file| {
        file.read_exact_at(&mut entries, (range.filled / page * size_of::<u64>()) as u64)
    });
    // Bits 63 and 62: present, swapped out.
    let is_touched = |entry: &[u8]| entry.last().is_some_and(|top| top & 0xc0 != 0);
    match read {
        Ok(()) => entries.chunks_exact(size_of::<u64>()).map(is_touched).collect(),
        Err(_) => vec![true; count],
    }
}

fn copy_out(range: Range, touched: &[bool], file: &OwnedFd) -> io::Result<()> {
    let page = page();
    write_at(range, file, range.start, range.filled - range.start)?;
    for (index, _) in touched.iter().enumerate().filter(|(_, touched)| **touched) {
        write_at(range, file, range.filled + index * page, page)?;
    }
    Ok(())
}

/// Writes `length` bytes of the variables to their offset in the file.
fn write_at(range: Range, file: &OwnedFd, mut from: usize, length: usize) -> io::Result<()> {
    let end = from + length;
    while from < end {
        let at = (from - range.start) as libc::off_t;
        // SAFETY: the bytes are mapped and readable: they are the executable's variables. The
        // kernel reads them, whichever thread writes.
        let wrote =
            unsafe { libc::pwrite(file.as_raw_fd(), from as *const c_void, end - from, at) };
        match usize::try_from(wrote) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(wrote) => from += wrote,
            Err(_) => return Err(io::Error::last_os_error()),
        }
    }
    Ok(())
}

/// Maps the file over the variables.
fn map_over(range: Range, file: &OwnedFd) -> io::Result<()> {
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
    let length = range.end - range.start;
    // SAFETY: exactly the pages of the executable's variables are replaced, by a file with the same
    // contents: nothing has changed them since they were copied, because this is the only thread.
    // Their addresses and rights stay what they were.
    let mapped = unsafe {
        libc::mmap(range.start as *mut c_void, length, protection, flags, file.as_raw_fd(), 0)
    };
    if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

extern "C" fn before_fork() {
    let mut ends = [-1; 2];
    // SAFETY: the array has room for two descriptors.
    let refused = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
    for (place, end) in PIPE.iter().zip(ends) {
        place.store(if refused == 0 { end } else { -1 }, Ordering::Release);
    }
}

fn close_end(end: usize) {
    // SAFETY: the descriptor was made by `before_fork` and is closed once: it is taken out of its
    // place.
    let _ = unsafe { libc::close(PIPE[end].swap(-1, Ordering::AcqRel)) };
}

extern "C" fn after_fork_parent() {
    close_end(1);
    let mut byte = 0u8;
    // SAFETY: one byte of room. The read ends when the child has its own variables, or has ended,
    // or with an error where there is no pipe.
    while unsafe { libc::read(PIPE[0].load(Ordering::Acquire), (&raw mut byte).cast(), 1) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
    close_end(0);
}

extern "C" fn after_fork_child() {
    if let Some(kept) = KEPT.get()
        && !IS_TAKEN_BACK.swap(true, Ordering::AcqRel)
        && !take_back(kept)
    {
        // A child that kept its parent's variables would change them.
        calls::exit_at_once(127);
    }
    close_end(0);
    close_end(1);
}

/// Gives this process private variables with the contents of the shared ones. It allocates no
/// memory, because other threads of the parent may have held locks.
fn take_back(kept: &Kept) -> bool {
    let length = kept.range.end - kept.range.start;
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let (start, file) = (kept.range.start, kept.file.as_raw_fd());
    // SAFETY: new private pages at an address that the kernel chooses. They are filled from the
    // shared ones, within both lengths, where the file has pages; the others read as zero on both
    // sides. Then they replace the shared ones, at the same addresses.
    unsafe {
        let own = libc::mmap(ptr::null_mut(), length, protection, flags, -1, 0);
        if own == libc::MAP_FAILED {
            return false;
        }
        let mut at = 0;
        while at < length as libc::off_t {
            let begin = libc::lseek(file, at, libc::SEEK_DATA);
            if begin < 0 {
                break;
            }
            let end = libc::lseek(file, begin, libc::SEEK_HOLE).clamp(begin, length as libc::off_t);
            let (offset, bytes) = (begin as usize, (end - begin) as usize);
            ptr::copy_nonoverlapping(
                (start + offset) as *const u8,
                own.cast::<u8>().add(offset),
                bytes,
            );
            at = end;
        }
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        libc::mremap(own, length, length, flags, start as *mut c_void) != libc::MAP_FAILED
    }
}
