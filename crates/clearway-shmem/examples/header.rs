//! Writes the headers of the library below the directory that the only argument names; `cargo xtask
//! header` runs it.

use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let directory = env::args_os().nth(1).map(PathBuf::from);
    let directory =
        directory.ok_or_else(|| io::Error::other("the directory of the headers is missing"))?;
    for (path, text) in clearway_shmem::header::files() {
        let path = directory.join(path);
        fs::create_dir_all(path.parent().unwrap_or(&directory))?;
        fs::write(path, text)?;
    }
    Ok(())
}
