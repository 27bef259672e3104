//! One call of each function and of each name that chooses by type, compiled and linked as C99, C11
//! and C++ without a warning.

use std::fmt::Write;
use std::fs;

use clearway_shmem::table::{Function, functions, queue_functions};

use crate::prefix::{compile, has_cxx, prefix};

/// The warnings that count as errors.
const STRICT: [&str; 5] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O0"];

/// A function that calls `name` with one variable for each parameter of `function`, whose types
/// lose their promises when `is_plain`.
fn call(text: &mut String, number: usize, function: &Function, name: &str, form: Form) {
    let mut variables = String::new();
    let mut names = Vec::new();
    for parameter in &function.parameters {
        let c = match form {
            Form::Plain if parameter.is_of_type => {
                parameter.c.replace("const ", "").replace("volatile ", "")
            }
            _ => parameter.c.clone(),
        };
        let _ = write!(variables, "{c} {} = 0; ", parameter.name);
        names.push(parameter.name.as_str());
    }
    let _ = writeln!(
        text,
        "void call_{number}(void) {{ {variables}(void) {name}({}); }}",
        names.join(", ")
    );
}

/// Which types the arguments have.
#[derive(Clone, Copy)]
enum Form {
    /// Those of the prototype.
    Promised,
    /// The same without `const` and `volatile`.
    Plain,
}

/// A program of all calls.
fn program(with_generic: Generic) -> String {
    let mut text = String::from(
        "#include <shmem.h>\n#include <pshmem.h>\n#include <shmemx.h>\n#include <shmem_queue.h>\n#include <mpp/shmem.h>\n",
    );
    text.push_str(
        "#if SHMEM_MAJOR_VERSION != 1 || SHMEM_MINOR_VERSION != 6\n#error version\n#endif\n",
    );
    text.push_str(
        "#if !defined(SHMEM_DEF_H) || !defined(SHMEM_FUNCTION_ATTRIBUTES)\n#error marks\n#endif\n",
    );
    text.push_str("shmem_ctx_t context = SHMEM_CTX_DEFAULT;\nshmem_team_t teams[] = {SHMEM_TEAM_WORLD, SHMEM_TEAM_SHARED, SHMEM_TEAM_INVALID};\n");
    let all = [functions(), queue_functions()].concat();
    let mut number = 0;
    let mut add = |text: &mut String, function: &Function, name: &str, form| {
        call(text, number, function, name, form);
        number += 1;
    };
    for function in &all {
        // C11 has `shmem_sync` for teams as well, C++ likewise; in parentheses it is the function.
        add(&mut text, function, &format!("({})", function.name), Form::Promised);
        add(&mut text, function, &function.profiling_name(), Form::Promised);
        if let (Some(generic), Generic::Too) = (&function.generic, with_generic) {
            add(&mut text, function, generic, Form::Promised);
            add(&mut text, function, generic, Form::Plain);
        }
    }
    if matches!(with_generic, Generic::Too) {
        text.push_str("void sync_of_a_team(void) { (void) shmem_sync(teams[0]); }\n");
        text.push_str("void signals(void) { uint64_t *s = 0; shmem_signal_add(s, 1, 0); shmem_signal_add(context, s, 1, 0); }\n");
        text.push_str("void more_signals(void) { uint64_t *s = 0; shmem_signal_set(s, 1, 0); shmem_signal_set(context, s, 1, 0); }\n");
        text.push_str("void sync_of_a_set(void) { long *p = 0; shmem_sync(0, 0, 1, p); }\n");
    }
    text.push_str("int main(void) { return context == SHMEM_CTX_INVALID; }\n");
    text
}

/// Whether names that choose by type are called.
#[derive(Clone, Copy)]
enum Generic {
    Too,
    No,
}

fn check(compiler: &str, standard: &str, file: &str, with_generic: Generic) {
    let source = prefix().join(file);
    fs::write(&source, program(with_generic)).expect("written");
    let flags: Vec<&str> = STRICT.iter().copied().chain([standard]).collect();
    compile(compiler, &format!("{file}-{standard}.out"), &source, &flags);
}

#[test]
fn header__each_function_can_be_called_from_c99() {
    check("oshcc", "-std=c99", "all.c", Generic::No);
}

#[test]
fn header__each_function_and_generic_name_can_be_called_from_c11() {
    check("oshcc", "-std=c11", "all_generic.c", Generic::Too);
}

#[test]
fn header__each_function_and_overload_can_be_called_from_cxx() {
    if has_cxx() {
        check("oshc++", "-std=c++11", "all.cpp", Generic::Too);
    }
}
