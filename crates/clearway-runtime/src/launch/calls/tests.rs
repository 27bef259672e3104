//! Layouts against the installed header, and descriptors.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::mem::offset_of;
use std::os::unix::net::UnixStream;

use super::super::send::{RemoteInput, send_all};
use super::*;

/// Where Debian and a default build put the header.
const HEADERS: [&str; 3] =
    ["/usr/lib/x86_64-linux-gnu/pmix2/include", "/usr/include", "/usr/local/include"];

/// Prints what the declarations of this file must say.
const PROGRAM: &str = r#"
#include <pmix.h>
#include <stdio.h>
#include <stddef.h>
int main(void) {
    printf("%zu %zu %zu %zu ", sizeof(pmix_proc_t), sizeof(pmix_value_t), sizeof(pmix_info_t), sizeof(pmix_byte_object_t));
    printf("%zu %zu ", offsetof(pmix_proc_t, rank), offsetof(pmix_value_t, data));
    printf("%zu %zu ", offsetof(pmix_info_t, flags), offsetof(pmix_info_t, value));
    printf("%zu %zu ", offsetof(pmix_byte_object_t, size), sizeof(pmix_scope_t));
    printf("%d %d %d ", PMIX_BOOL, PMIX_UINT32, PMIX_BYTE_OBJECT);
    printf("%d %d %d ", PMIX_GLOBAL, PMIX_SUCCESS, PMIX_ERR_TYPE_MISMATCH);
    printf("%u %s %s\n", (unsigned)(PMIX_RANK_WILDCARD), PMIX_COLLECT_DATA, PMIX_JOB_SIZE);
    return 0;
}
"#;

#[test]
fn layouts__are_those_of_the_installed_header() {
    let Some(include) = HEADERS.into_iter().find(|path| Path::new(path).join("pmix.h").exists())
    else {
        eprintln!("skipped: pmix.h is not installed (libpmix-dev)");
        return;
    };
    let directory = std::env::temp_dir().join(format!("clearway-pmix-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let (source, program) = (directory.join("layout.c"), directory.join("layout"));
    fs::write(&source, PROGRAM).unwrap();
    let compiled =
        Command::new("cc").arg("-I").arg(include).arg(&source).arg("-o").arg(&program).status();
    let said = compiled
        .ok()
        .filter(|status| status.success())
        .map(|_| Command::new(&program).output().unwrap());
    fs::remove_dir_all(&directory).unwrap();
    let Some(said) = said else {
        eprintln!("skipped: no C compiler that takes pmix.h");
        return;
    };
    let ours = format!(
        "{} {} {} {} {} {} {} {} {} {} {BOOL} {UINT32} {BYTE_OBJECT} {GLOBAL} {SUCCESS} {TYPE_MISMATCH} {WHOLE_JOB} \
         pmix.collect pmix.job.size\n",
        size_of::<PmixProc>(),
        size_of::<PmixValue>(),
        size_of::<PmixAttribute>(),
        size_of::<PmixByteObject>(),
        offset_of!(PmixProc, rank),
        offset_of!(PmixValue, content),
        offset_of!(PmixAttribute, flags),
        offset_of!(PmixAttribute, value),
        offset_of!(PmixByteObject, size),
        size_of::<u8>(),
    );
    assert_eq!(String::from_utf8(said.stdout).unwrap(), ours);
}

#[test]
fn open__a_missing_library_is_a_sentence() {
    let error = PmixLibrary::open(Some(Path::new("/nowhere/libpmix.so.2"))).err().unwrap();
    assert!(error.contains("/nowhere/libpmix.so.2"), "{error}");
}

#[test]
fn open__a_library_without_the_functions_is_refused() {
    assert!(
        PmixLibrary::open(Some(Path::new("libc.so.6"))).err().unwrap().contains("PMIx_Get_version")
    );
}

#[test]
fn adopt__the_copy_and_the_original_are_closed_in_programs() {
    let (ours, _peer) = UnixStream::pair().unwrap();
    fcntl_setfd(&ours, FdFlags::empty()).unwrap();
    let own = adopt(u32::try_from(ours.as_raw_fd()).unwrap()).unwrap();
    for descriptor in [rustix::io::fcntl_getfd(&ours), rustix::io::fcntl_getfd(&own)] {
        assert_eq!(descriptor.unwrap(), FdFlags::CLOEXEC);
    }
}

#[test]
fn adopt__a_number_that_is_not_open_is_refused() {
    assert!(adopt(1_000_000).is_err());
    assert!(adopt(u32::MAX).is_err());
}

/// Writes to something without a reader, and says whether that raised the signal. It cannot end
/// this process: the thread blocks it.
fn raises_sigpipe(write: impl FnOnce() -> io::Result<()>) -> bool {
    without_sigpipe(|| {
        assert!(!BlockedSigpipe::is_waiting(), "one from before");
        assert_eq!(write().unwrap_err().kind(), ErrorKind::BrokenPipe);
        BlockedSigpipe::is_waiting()
    })
}

#[test]
fn send_all__a_socket_whose_other_end_is_closed_is_an_error_without_a_signal() {
    let ours = || UnixStream::pair().unwrap().0;
    assert!(!raises_sigpipe(|| send_all(ours(), b"x")));
    assert!(!raises_sigpipe(|| RemoteInput(ours()).write_all(b"x")));
}

#[test]
fn without_sigpipe__the_signal_of_a_write_to_a_closed_pipe_is_discarded() {
    let write = || {
        let (reader, mut writer) = io::pipe().unwrap();
        drop(reader);
        writer.write_all(b"x")
    };
    assert!(raises_sigpipe(write), "the test must be able to see one");
    assert!(!BlockedSigpipe::is_waiting(), "none is left behind");
    without_sigpipe(|| {
        assert!(write().is_err());
        without_sigpipe(|| ());
        assert!(BlockedSigpipe::is_waiting(), "a call within a call leaves what waited before it");
    });
}
