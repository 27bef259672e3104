//! An installation of what was built, below cargo's directory for tests, and programs compiled with
//! its tools.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Seconds after which a program counts as hanging: many times what any takes on a busy machine.
const HANGS_AFTER_S: &str = "120";

/// The installation.
pub(crate) fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(install)
}

/// The library as it was built with this program. Where `cargo build` puts it may be an older one:
/// tests are not put there.
pub(crate) fn library() -> PathBuf {
    std::env::current_exe()
        .expect("the path of this program")
        .with_file_name("libclearway_shmem.so")
}

/// As `cargo xtask install` does, with links in place of copies.
fn install() -> PathBuf {
    let prefix =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("prefix-{}", std::process::id()));
    remove_those_of_the_dead(&prefix);
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
    let place = |below: &str| {
        let directory = prefix.join(below);
        fs::create_dir_all(&directory).expect("a directory");
        directory
    };
    let (bin, lib, libexec) = (place("bin"), place("lib"), place("libexec/clearway"));
    // The tools find the rest by their own place, so they are copied.
    for tool in ["oshcc", "oshrun"] {
        fs::copy(sources.join("tools").join(tool), bin.join(tool)).expect("a tool");
    }
    for name in ["oshc++", "oshc++.clearway"] {
        symlink("oshcc", bin.join(name)).expect("a link");
    }
    let describe = Path::new(env!("CARGO_BIN_EXE_clearway-shmem-describe"));
    symlink(describe, libexec.join("clearway-shmem-describe")).expect("a link");
    fs::copy(program(), bin.join("clearway")).expect("the program");
    symlink(library(), lib.join("libclearway_shmem.so.1")).expect("a link");
    symlink("libclearway_shmem.so.1", lib.join("libclearway_shmem.so")).expect("a link");
    symlink(sources.join("include"), prefix.join("include")).expect("a link");
    prefix
}

/// Removes what earlier runs left.
fn remove_those_of_the_dead(own: &Path) {
    let Some(parent) = own.parent() else { return };
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix("prefix-").and_then(|process| process.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new("/proc").join(process.to_string()).exists()) {
            // Another run may remove it at the same time.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// `clearway`, built if only this package was.
fn program() -> PathBuf {
    let program = library().ancestors().nth(2).expect("a directory of the build").join("clearway");
    if !program.exists() {
        let status = Command::new(env!("CARGO")).args(["build", "--package", "clearway"]).status();
        assert!(status.expect("cargo").success(), "clearway does not build");
    }
    program
}

/// A tool of the installation.
pub(crate) fn tool(name: &str) -> Command {
    let mut command = Command::new(prefix().join("bin").join(name));
    // What a developer has set for runs of their own.
    for variable in [
        "SHMEM_SYMMETRIC_SIZE",
        "SHMEM_DEBUG",
        "SHMEM_INFO",
        "SHMEM_VERSION",
        "OSHRUN_LAUNCHER",
        "CLEARWAY_CC",
    ] {
        command.env_remove(variable);
    }
    command
}

/// Returns whether a compiler of C++ is installed; prints the reason to skip a test where none is.
pub(crate) fn has_cxx() -> bool {
    let has_any = Command::new("c++").arg("--version").output().is_ok();
    if !has_any {
        println!("skipped: there is no compiler of C++ called c++");
    }
    has_any
}

/// Compiles `source` as the program `name`; the same each time it is asked for.
pub(crate) fn compile(compiler: &str, name: &str, source: &Path, flags: &[&str]) -> PathBuf {
    let program = prefix().join(name);
    let output =
        tool(compiler).args(flags).arg("-pthread").arg("-o").arg(&program).arg(source).output();
    let output = output.expect("the compiler");
    assert!(output.status.success(), "{name}: {}", said(&output));
    program
}

/// A program of this directory.
pub(crate) fn program_of(file: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/c").join(file);
    let (compiler, standard) =
        if file.ends_with(".cpp") { ("oshc++", "-std=c++17") } else { ("oshcc", "-std=c11") };
    // Tests run side by side, and two may want one program.
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let flags = [standard, "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror"];
    compile(compiler, &format!("{file}-{count}"), &source, &flags)
}

/// A command that is ended when it hangs.
pub(crate) fn bounded(command: &str) -> Command {
    let mut bounded = Command::new("timeout");
    bounded.args(["-k", "5", HANGS_AFTER_S, command]);
    bounded
}

/// `oshrun` with `n` PEs, ended when it hangs.
pub(crate) fn oshrun(n: u32) -> Command {
    let mut command = bounded(&prefix().join("bin/oshrun").to_string_lossy());
    command.args(["--launcher", "here", "-n", &n.to_string()]);
    // Memory of a test machine, not of a site's.
    command.env("SHMEM_SYMMETRIC_SIZE", "16m");
    command
}

/// Everything that a program said.
pub(crate) fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}: {}{}", output.status, text(&output.stdout), text(&output.stderr))
}
