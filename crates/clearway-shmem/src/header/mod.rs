//! Writes the headers that C and C++ programs include, from the table and the constants.
//!
//! # Model
//! The files are checked in, so that a program can be compiled without building anything and a
//! change of them is seen in review. A test compares them with what this module writes; `cargo
//! xtask header` writes them again.
//!
//! `shmem.h` has three parts: what every C has (constants, prototypes), the names of C11 that
//! choose by the type of an argument, and overloads of the same names for C++. A name chooses by
//! its first pointer, or, where that argument is a context, by the one after it.
//!
//! # Invariants
//! I1. Every prototype of the table stands in `shmem.h` once, and once more in `pshmem.h` under its
//!     name for tools.
//! I2. What is not of the standard begins with `CLEARWAY_` or `clearway_`, or is one of the two
//!     names of [`RECOGNISED`].

mod constants;
mod cxx;
mod generic;
mod queues;
mod written;

pub(crate) use constants::NAME_LENGTH_MAX;

use crate::constants::{CTX_CLASS_SHIFT, CTX_SESSION_SAME_AMO};
use crate::table::{Function, Standing, functions, queue_functions};

/// Names by which programs that know other libraries see that a header lacks nothing of OpenSHMEM
/// 1.5.
pub const RECOGNISED: [&str; 2] = ["SHMEM_DEF_H", "SHMEM_FUNCTION_ATTRIBUTES"];

/// All headers: the path below `include`, and the text.
pub fn files() -> Vec<(&'static str, String)> {
    let all = functions();
    vec![
        ("shmem.h", shmem(&all)),
        ("pshmem.h", pshmem(&all)),
        ("shmemx.h", extensions()),
        ("shmemx_queue.h", queues::own(&queue_functions())),
        ("shmem_queue.h", queues::of_the_proposal(&queue_functions())),
        ("mpp/shmem.h", forward("SHMEM", "shmem.h")),
        ("mpp/pshmem.h", forward("PSHMEM", "pshmem.h")),
        ("mpp/shmemx.h", forward("SHMEMX", "shmemx.h")),
    ]
}

/// The first line of each file.
const WRITTEN: &str =
    "Written by `cargo xtask header` from the table of the library; changes go there.";

fn guarded(guard: &str, about: &str, body: &str) -> String {
    format!(
        "/* {about} {WRITTEN} */\n#ifndef {guard}\n#define {guard}\n\n{body}\n#endif /* {guard} */\n"
    )
}

fn shmem(all: &[Function]) -> String {
    let [marker, attributes] = RECOGNISED;
    let mut body = String::from("#include <stddef.h>\n#include <stdint.h>\n\n");
    body.push_str("/* Programs that know several libraries take these two as a sign that nothing of the standard is missing. */\n");
    body.push_str(&format!("#define {marker} 1\n#define {attributes}\n\n"));
    body.push_str(constants::TYPES);
    body.push_str(&constants::text());
    body.push_str("\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n");
    body.push_str(&prototypes(all, |function| function.name.clone()));
    body.push_str("\n/* Stands where no function takes the type of an argument. It is declared only. */\nvoid clearway_no_function_takes_this_type(void);\n");
    body.push_str("\n#ifdef __cplusplus\n} /* extern \"C\" */\n#endif\n\n");
    body.push_str(&generic::text(all));
    body.push_str(&cxx::text(all));
    guarded("CLEARWAY_SHMEM_H", "OpenSHMEM 1.6 for C and C++.", &body)
}

fn pshmem(all: &[Function]) -> String {
    let mut body =
        String::from("#include \"shmem.h\"\n\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n");
    body.push_str(&prototypes(all, Function::profiling_name));
    body.push_str("\n#ifdef __cplusplus\n} /* extern \"C\" */\n#endif\n");
    let about = "The functions of OpenSHMEM 1.6 under the names that tools call when they put their own in front.";
    guarded("CLEARWAY_PSHMEM_H", about, &body)
}

fn extensions() -> String {
    guarded(
        "CLEARWAY_SHMEMX_H",
        "What programs can ask for beyond the standard.",
        &format!(
            "#include \"shmem.h\"\n\n\
             /* An option of sessions: all their atomic operations are one, on one type. */\n\
             #define SHMEMX_CTX_SESSION_SAME_AMO {CTX_SESSION_SAME_AMO}\n\n\
             /* An option of shmem_ctx_create and shmem_team_create_ctx: the class of what travels between hosts. \
             CLASS is 0 for high, 1 medium, 2 low, 3 scavenger, as SHMEMX_QOS_HIGH and so on in shmemx_queue.h. */\n\
             #define SHMEMX_CTX_CLASS(CLASS) (((long)(CLASS) + 1) << {CTX_CLASS_SHIFT})\n"
        ),
    )
}

fn forward(name: &str, file: &str) -> String {
    guarded(
        &format!("CLEARWAY_MPP_{name}_H"),
        "The old place of the header.",
        &format!("#include \"../{file}\"\n"),
    )
}

/// All prototypes under the name that `named` gives, current ones first.
fn prototypes(all: &[Function], named: impl Fn(&Function) -> String) -> String {
    let mut text = String::new();
    for (standing, about) in
        [(Standing::Current, "Current."), (Standing::Deprecated, "Deprecated by the standard.")]
    {
        text.push_str(&format!("\n/* {about} */\n"));
        for function in all.iter().filter(|function| function.standing == standing) {
            let ends = if function.name == "shmem_global_exit" { "CLEARWAY_NORETURN " } else { "" };
            text.push_str(&format!("{ends}{};\n", function.prototype(&named(function))));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::{fs, io};

    use super::*;
    use crate::constants::VENDOR;

    #[test]
    fn files__are_those_that_are_checked_in() -> io::Result<()> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
        for (path, text) in files() {
            let there = fs::read_to_string(directory.join(path))?;
            assert!(
                there == text,
                "include/{path} is not what the table says; `cargo xtask header` writes it again"
            );
        }
        Ok(())
    }

    #[test]
    fn files__a_generic_name_lists_each_fundamental_type_once() {
        let all = functions();
        let put = generic::groups(&all)
            .into_iter()
            .find(|group| group.name == "shmem_put")
            .expect("shmem_put");
        assert_eq!((put.plain.len(), put.with_context.len()), (14, 14));
        let names: Vec<_> = put.plain.iter().map(|function| function.name.as_str()).collect();
        assert!(
            names.contains(&"shmem_long_put") && !names.contains(&"shmem_int64_put"),
            "{names:?}"
        );
    }

    #[test]
    fn vendor__is_no_longer_than_the_header_says() {
        assert!(VENDOR.len() < NAME_LENGTH_MAX);
    }
}
