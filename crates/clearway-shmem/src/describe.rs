//! Describes the library and its environment: `clearway shmem info` runs this on some PEs, and PE 0
//! prints.

#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::process::ExitCode;

use clearway_shmem::constants::{THREAD_SINGLE, VENDOR, VERSION};
use clearway_shmem::fault::Fault;
use clearway_shmem::job;

fn main() -> ExitCode {
    match describe() {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => fault.end("clearway shmem info"),
    }
}

fn describe() -> Result<(), Fault> {
    job::init(THREAD_SINGLE)?;
    if job::my_pe()? == 0 {
        let (major, minor) = VERSION;
        let text = format!(
            "{VENDOR} {}, OpenSHMEM {major}.{minor}\n{}\n",
            env!("CARGO_PKG_VERSION"),
            job::report().trim_end()
        );
        // Nobody may be reading.
        let _ = io::stdout().write_all(text.as_bytes());
    }
    job::finalize()
}
