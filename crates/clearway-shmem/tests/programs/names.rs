//! The names that the library has for programs: all of the table, each also for tools, three
//! handles, and nothing else.

use std::collections::BTreeSet;
use std::process::Command;

use clearway_shmem::table::{Function, functions, queue_functions};

use crate::prefix::{library, said};

/// Handles that programs of other libraries ask for by name.
const HANDLES: [&str; 3] = ["SHMEM_CTX_DEFAULT", "SHMEM_TEAM_SHARED", "SHMEM_TEAM_WORLD"];

#[test]
fn library__has_the_names_of_the_table_and_no_others() {
    let Ok(output) = Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output()
    else {
        println!("skipped: the names of the library (there is no nm)");
        return;
    };
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8(output.stdout).expect("text");
    let there: BTreeSet<&str> = text.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    let all = [functions(), queue_functions()].concat();
    let names =
        all.iter().flat_map(|function| [function.name.clone(), Function::profiling_name(function)]);
    let wanted: BTreeSet<String> = names.chain(HANDLES.map(str::to_owned)).collect();
    let wanted: BTreeSet<&str> = wanted.iter().map(String::as_str).collect();
    let (missing, unwanted): (Vec<_>, Vec<_>) =
        (wanted.difference(&there).collect(), there.difference(&wanted).collect());
    assert!(
        missing.is_empty() && unwanted.is_empty(),
        "missing: {missing:?}; not in the table: {unwanted:?}"
    );
}

#[test]
fn library__says_by_which_name_programs_ask_for_it() {
    let Ok(output) = Command::new("readelf").arg("-d").arg(library()).output() else {
        println!("skipped: the name of the library (there is no readelf)");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("[libclearway_shmem.so.1]"), "{text}");
}
