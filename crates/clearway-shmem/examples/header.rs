//! Writes the headers of the library to the directory given as the only argument; `cargo xtask
//! header` runs it.

use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let directory = env::args_os().nth(1).map(PathBuf::from);
    let directory = directory.ok_or_else(|| {
        io::Error::other("give the directory to write the headers to as the only argument")
    })?;
    for (path, text) in clearway_shmem::header::files() {
        let path = directory.join(path);
        fs::create_dir_all(path.parent().unwrap_or(&directory))?;
        fs::write(path, text)?;
    }
    Ok(())
}
