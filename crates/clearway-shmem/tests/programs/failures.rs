//! What a user does wrong gets one sentence: what was wrong, where, and what works.

use std::path::Path;
use std::process::Output;

use crate::prefix::{bounded, compile, oshrun, prefix, program_of, said, tool};

/// That the command failed, and said `parts` in one line.
fn expect_sentence(output: &Output, parts: &[&str]) {
    let text = said(output);
    assert!(!output.status.success(), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 1, "{text}");
    for part in parts {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
}

#[test]
fn oshrun__says_what_it_needs() {
    let ask = |arguments: &[&str]| tool("oshrun").args(arguments).output().expect("oshrun");
    expect_sentence(&ask(&["-n", "0", "true"]), &["oshrun: -n 0 starts no PE", "from 1"]);
    expect_sentence(&ask(&["-np", "two", "true"]), &["oshrun: -n two is no number"]);
    for many in ["257", "99999999999999999999"] {
        expect_sentence(
            &ask(&["--launcher", "here", "-n", many, "true"]),
            &[&format!("oshrun: -n {many} are more PEs than the 256"), "--hostfile"],
        );
    }
    expect_sentence(&ask(&["-n", "2"]), &["name the program"]);
    expect_sentence(&ask(&["--fast", "true"]), &["--fast is unknown"]);
    expect_sentence(&ask(&["-x", "1=2", "true"]), &["-x 1=2 names no variable"]);
    expect_sentence(&ask(&["--launcher", "nowhere", "true"]), &["there is no launcher nowhere"]);
    let missing = ask(&["--launcher", "here", "-n", "1", "/nowhere/program"]);
    expect_sentence(&missing, &["no program /nowhere/program"]);
    assert_eq!(missing.status.code(), Some(127));
}

/// A network namespace begins with its loopback interface down.
#[test]
fn oshrun__without_a_loopback_interface_says_so() {
    let own = ["-r", "-n"];
    let is_there = bounded("unshare").args(own).arg("true").output();
    if !is_there.is_ok_and(|output| output.status.success()) {
        println!("skipped: a job without a loopback interface (no namespace can be made)");
        return;
    }
    let oshrun = prefix().join("bin/oshrun");
    let mut command = bounded("unshare");
    let job = command.args(own).arg(oshrun).args(["--launcher", "here", "-n", "2", "true"]);
    expect_sentence(
        &job.output().expect("unshare"),
        &["reach 127.0.0.1", "is the interface lo up?"],
    );
}

#[test]
fn oshrun__gives_variables_and_arguments_to_all() {
    let script = "echo $A $1 $CLEARWAY_RANK";
    let output =
        oshrun(2).args(["-x", "A=b c", "sh", "-c", script, "sh", "-n 3"]).output().expect("oshrun");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["b c -n 3 0", "b c -n 3 1"], "{}", said(&output));
}

#[test]
fn oshcc__says_what_it_needs() {
    let missing =
        tool("oshcc").env("CLEARWAY_CC", "nocompiler -O2").arg("a.c").output().expect("oshcc");
    expect_sentence(
        &missing,
        &["oshcc: there is no compiler of C called nocompiler", "CLEARWAY_CC"],
    );
    let missing =
        tool("oshc++").env("CLEARWAY_CXX", "nocompiler").arg("a.cpp").output().expect("oshc++");
    expect_sentence(&missing, &["oshc++: there is no compiler of C++", "CLEARWAY_CXX"]);
    let unknown = tool("oshcc").arg("--showme:all").output().expect("oshcc");
    expect_sentence(&unknown, &["--showme:all is unknown", ":libs"]);
}

#[test]
fn oshcc__a_compiler_that_says_what_it_does_still_links() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/c/memory.c");
    compile("oshcc", "said-aloud", &source, &["-v"]);
    let version = tool("oshcc").arg("-v").output().expect("oshcc");
    assert!(version.status.success(), "{}", said(&version));
}

#[test]
fn oshcc__shows_its_command() {
    let show = |part: &str| {
        let output = tool("oshcc").arg(part).output().expect("oshcc");
        String::from_utf8(output.stdout).expect("text")
    };
    let (compile, link) = (show("--showme:compile"), show("--showme:link"));
    assert!(compile.starts_with("-I/") && compile.trim_end().ends_with("/include"), "{compile}");
    assert!(link.contains(" -lclearway_shmem") && link.contains("-rpath,/"), "{link}");
    assert_eq!(show("-showme"), format!("cc {} {link}", compile.trim_end()));
}

#[test]
fn oshcc__a_name_for_cpp_has_its_compiler_also_with_the_ending_of_packages() {
    for name in ["oshc++", "oshc++.clearway"] {
        let output = tool(name).env_remove("CLEARWAY_CXX").arg("--showme:command").output();
        assert_eq!(output.expect(name).stdout, b"c++\n", "{name}");
    }
}

#[test]
fn program__wrong_variables_end_it_with_one_sentence() {
    let program = program_of("memory.c");
    for (name, value, works) in [
        ("SHMEM_SYMMETRIC_SIZE", "many", "number of bytes"),
        ("SHMEM_STATICS", "some", "private"),
        ("SHMEM_CLASS", "HIGH", "high, medium, low or scavenger"),
        ("SHMEM_WIRE", "tcp", "auto, udp or ofi"),
        ("SHMEMX_QUEUE_THRESHOLD", "1e12", "bytes as in 4096 or 4k"),
    ] {
        let output = oshrun(1).env(name, value).arg(&program).output().expect("oshrun");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let sentences: Vec<&str> = text.lines().filter(|line| line.contains(name)).collect();
        assert!(!output.status.success() && sentences.len() == 1, "{text}");
        assert!(sentences[0].contains(value) && sentences[0].contains(works), "{text}");
    }
}

#[test]
fn program__an_address_outside_is_named_with_function_and_argument() {
    let program = program_of("leaving.c");
    let output =
        oshrun(2).env("SHMEM_DEBUG", "1").arg(program).arg("outside").output().expect("oshrun");
    let text = said(&output);
    assert!(
        !output.status.success() && text.contains("shmem_long_put") && text.contains("`dest`"),
        "{text}"
    );
}

/// What the sentence has besides the function, by the mistake that a program makes.
const MISTAKES: [(&str, &str, &str); 10] = [
    ("sizes", "shmem_malloc", "`size` is "),
    ("nothing", "shmem_malloc", "`size` is "),
    ("realloc", "shmem_realloc", "`size` is "),
    ("twice", "shmem_free", "`ptr` is 0x"),
    ("overlap", "shmem_long_fcollect", "`dest` is 0x"),
    ("reduce", "shmem_long_sum_reduce", "`dest` is 0x"),
    ("put", "shmem_long_put", "after shmem_finalize"),
    ("barrier", "shmem_barrier_all", "after shmem_finalize"),
    ("wait", "shmem_long_wait_until", "after shmem_finalize"),
    ("finalize", "shmem_finalize", "after shmem_finalize"),
];

#[test]
fn program__a_mistake_is_one_sentence_with_function_argument_and_value() {
    let program = program_of("mistakes.c");
    for (mistake, function, argument) in MISTAKES {
        let mut command = oshrun(2);
        let output = command.env("SHMEM_DEBUG", "1").arg(&program).arg(mistake).output();
        let text = said(&output.expect("oshrun"));
        let is_one = |line: &&str| line.contains(function) && line.contains(argument);
        assert!(text.lines().any(|line| is_one(&line)), "{mistake}: {text}");
    }
}

/// Undefined by the standard, but no hang.
#[test]
fn program__sizes_that_differ_do_not_keep_it_from_ending() {
    let program = program_of("mistakes.c");
    for mistake in ["sizes", "realloc"] {
        let output = oshrun(2).arg(&program).arg(mistake).output().expect("oshrun");
        assert_ne!(output.status.code(), Some(124), "{mistake} hangs: {}", said(&output));
    }
}

#[test]
fn shmem_info__says_version_and_segments() {
    let output = tool("clearway")
        .args(["shmem", "info"])
        .env("SHMEM_SYMMETRIC_SIZE", "1m")
        .output()
        .expect("clearway");
    let text = said(&output);
    assert!(
        output.status.success() && text.contains("OpenSHMEM 1.6") && text.contains("heap"),
        "{text}"
    );
    let nobody = tool("clearway").args(["shmem", "info", "-n", "0"]).output().expect("clearway");
    expect_sentence(&nobody, &["-n 0 looks with no PE"]);
}
