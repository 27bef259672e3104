//! Lists the C functions for `src/abi`, one line each, from the table, and gives the library its
//! name for the loader.
//!
//! # Not here
//! What an entry does (`entry!` in `src/abi/mod.rs`). The functions that move a `long double` by
//! value (`src/thunks.rs`).

#![allow(unreachable_pub)] // the table is public where it is part of the library

use std::fmt::Write;
use std::path::Path;
use std::{env, fs, io};

use table::{Function, Parameter, functions, queue_functions};

#[path = "src/table/mod.rs"]
mod table;

/// The name by which programs ask for the library; the number grows when a program would no longer
/// run with a newer one.
const SONAME: &str = "libclearway_shmem.so.1";

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=src/table");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,{SONAME}");
    let mut lines = String::new();
    let all = [functions(), queue_functions()].concat();
    for function in all.iter().filter(|function| !is_thunk(function)) {
        writeln!(lines, "{}", entry(function)).map_err(io::Error::other)?;
    }
    let directory = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo sets OUT_DIR"))?;
    fs::write(Path::new(&directory).join("entries.rs"), lines)
}

/// Whether Rust has no type that travels as the function's does.
fn is_thunk(function: &Function) -> bool {
    function.of.is_some_and(|of| of.name == "longdouble") && function.moves_type()
}

/// The line of `function`.
fn entry(function: &Function) -> String {
    let of = function.of.map_or("", |of| of.rust);
    let typed = |parameter: &Parameter| {
        let own = if parameter.is_of_type { of } else { "" };
        // What the library has no use for: the work arrays of older programs.
        let unused = if function.call.contains(&parameter.name) { "" } else { "_" };
        format!("{unused}{}: {}", parameter.name, rust_type(&parameter.c, own))
    };
    let arguments: Vec<String> = function.parameters.iter().map(typed).collect();
    let returns = rust_type(&function.returns, if function.returns_type { of } else { "" });
    format!(
        "entry!({}, {}, ({}) -> {returns}, {});",
        function.name,
        function.profiling_name(),
        arguments.join(", "),
        function.call
    )
}

/// The type of Rust for `c`, which is made of the type `own` if that is not empty.
fn rust_type(c: &str, own: &str) -> String {
    let base = c.trim_start_matches("const ").trim_start_matches("volatile ");
    let (base, pointer) = match base.strip_suffix('*') {
        Some(base) if c.starts_with("const ") => (base.trim_end(), "*const "),
        Some(base) => (base.trim_end(), "*mut "),
        None => (base, ""),
    };
    let rust = match base {
        _ if !own.is_empty() => own,
        "void" if pointer.is_empty() => "()",
        "void" => "c_void",
        "char" => "c_char",
        "int" => "i32",
        "long" => "i64",
        "size_t" | "shmem_ctx_t" | "shmem_team_t" | "shmemx_queue_t" => "usize",
        "ptrdiff_t" => "isize",
        "uint64_t" => "u64",
        "shmem_team_config_t" => "TeamConfig",
        "shmem_ctx_session_config_t" => "SessionConfig",
        "shmemx_queue_config_t" => "QueueShape",
        "shmemx_queue_attr_t" => "QueueAttributes",
        "shmemx_grant_t" => "ClassGrant",
        "shmemx_qop_t" => "QueueCall",
        other => panic!("the table has a type that the library does not: {other}"),
    };
    format!("{pointer}{rust}")
}
