//! What stays, goes and is said of names, modes, attributes and streams that are not as a cast
//! would like them.

use super::*;

/// A name of a file that is not whole.
fn unfinished_name(digit: char) -> String {
    format!(".clearway-cast-{}", String::from(digit).repeat(32))
}

#[test]
fn names__what_looks_unfinished_at_the_source_is_named_and_what_only_begins_so_is_sent() {
    let ground = Ground::new("looks", 1);
    fs::create_dir(ground.from("tree")).expect("made");
    for name in [&unfinished_name('a')[..], ".clearway-cast-notes", "model"] {
        fs::write(ground.from("tree").join(name), name).expect("written");
    }
    let reported = ground.cast(&["tree"]);
    reported.expect(0, &format!("tree/{} is left out: it has the name", unfinished_name('a')));
    assert_eq!(names(&ground.at(0, "tree")), [".clearway-cast-notes", "model"]);
}

#[test]
fn leftovers__parts_of_what_left_the_source_go_and_those_of_casts_at_work_stay() {
    let ground = Ground::new("leftovers", 1);
    fs::create_dir(ground.from("tree")).expect("made");
    fs::write(ground.from("tree/model"), b"model").expect("written");
    fs::create_dir(ground.at(0, "tree")).expect("made");
    let [gone, busy, recent, old] = ['0', '1', '2', '3'].map(unfinished_name);
    for name in [format!("tree/{gone}"), format!("tree/{busy}"), recent.clone(), old.clone()] {
        fs::write(ground.at(0, &name), b"a part").expect("written");
    }
    let at_work = fs::File::open(ground.at(0, &format!("tree/{busy}"))).expect("there");
    at_work.lock().expect("nobody else's");
    let begun = fs::File::options().write(true).open(ground.at(0, &old)).expect("there");
    begun.set_modified(std::time::UNIX_EPOCH).expect("set");
    ground.cast(&["tree"]).expect(0, "1 of 1 have everything");
    assert_eq!(names(&ground.at(0, "tree")), [busy, "model".to_owned()]);
    assert_eq!(names(&ground.receivers[0].directory), [recent, "tree".to_owned()]);
}

#[test]
fn modes__a_setuid_bit_at_the_target_does_not_stay() {
    let ground = Ground::new("setuid", 1);
    fs::write(ground.from("model"), b"model").expect("written");
    ground.cast(&["model"]).expect(0, "1 of 1 have everything");
    let mode = || ground.at(0, "model").metadata().expect("there").mode() & 0o7777;
    let before = mode();
    fs::set_permissions(ground.at(0, "model"), fs::Permissions::from_mode(0o4000 | before))
        .expect("set");
    ground.cast(&["model"]).expect(0, "1 of 1 have everything");
    assert_eq!(mode(), before);
}

#[test]
fn twins__of_two_names_of_one_directory_one_gets_everything() {
    let mut ground = Ground::new("twins", 1);
    symlink("to0", ground.root.join("also")).expect("a link");
    ground.receive_in("also");
    for name in ["large", "small"] {
        fs::write(ground.from(name), noise(if name == "large" { 3 * MIB } else { 10 }, 51))
            .expect("written");
    }
    let reported = ground.cast(&["large", "small"]);
    reported.expect(1, "1 of 2 have everything");
    reported.expect(1, "which gets everything; name it once");
    ["large", "small"].iter().for_each(|name| assert_same(&ground.from(name), &ground.at(0, name)));
    assert_eq!(names(&ground.receivers[0].directory), ["large", "small"]);
}

#[test]
fn streams__one_that_is_empty_short_or_of_a_program_that_fails_replaces_nothing() {
    let ground = Ground::new("streams", 1);
    fs::write(ground.at(0, "s"), b"good").expect("written");
    let cast = |arguments: &[&str]| ground.cast(&[arguments, &["--name", "s"]].concat());
    cast(&["-"]).expect(1, "nothing came; an empty file is cast with --expect-bytes 0");
    cast(&["-", "--expect-bytes", "7"]).expect(1, "0 bytes came, and 7 were expected");
    cast(&["--exec", "printf begun; exit 3"]).expect(1, "the program failed: exit status: 3");
    cast(&["--exec", "exit 3"]).expect(1, "not sent: s: the program failed");
    cast(&["--exec", "exit 3"]).expect(1, "0 of 1 have it; receivers keep the file that they had");
    cast(&["--exec", "no-such-program-here"]).expect(1, "the program failed: exit status: 127");
    cast(&["--exec", "true", "--expect-bytes", "1"]).expect(1, "0 bytes came, and 1 were expected");
    assert_eq!(fs::read(ground.at(0, "s")).expect("there"), b"good");
    cast(&["--exec", "printf better", "--expect-bytes", "6"]).expect(0, "1 of 1 have everything");
    assert_eq!(fs::read(ground.at(0, "s")).expect("there"), b"better");
    cast(&["--exec", "true", "--expect-bytes", "0"]).expect(0, "1 of 1 have everything");
    assert_eq!(fs::read(ground.at(0, "s")).expect("there"), b"");
    fs::write(ground.from("model"), b"model").expect("written");
    ground
        .cast(&["model", "--expect-bytes", "5"])
        .expect(2, "--expect-bytes is for what comes on standard input");
}

#[test]
fn attributes__what_is_not_carried_is_said() {
    let ground = Ground::new("attributes", 1);
    for name in ["plain", "linked"] {
        fs::write(ground.from(name), name).expect("written");
    }
    let reported = ground.cast(&["plain"]);
    assert!(!reported.text.contains("not carried"), "{}", reported.text);
    fs::hard_link(ground.from("linked"), ground.from("also")).expect("a second name");
    ground.cast(&["./"]).expect(0, "not carried: hard links (2 names of files");
    let set = rustix::fs::setxattr(
        ground.from("plain"),
        "user.of",
        b"somebody",
        rustix::fs::XattrFlags::empty(),
    );
    match set {
        Err(rustix::io::Errno::NOTSUP) => {
            eprintln!("skipped: the file system of temporary files has no attributes")
        }
        other => {
            other.expect("set");
            ground.cast(&["./"]).expect(0, "not carried: ACLs and extended attributes (1 files");
        }
    }
}

/// Nothing is so fast that this fails, and only casts that do not share are.
#[test]
fn rate__two_casts_of_a_user_share_it() {
    let ground = Ground::new("shared-rate", 2);
    let bytes = 3 * MIB;
    for (name, seed) in [("one", 41), ("two", 42)] {
        fs::write(ground.from(name), noise(bytes, seed)).expect("written");
    }
    let begun = Instant::now();
    let casts = ["one", "two"].map(|name| {
        let mut command = ground.command(&[name, "--rate", "20Mb/s"]);
        command.spawn().expect("the program")
    });
    for cast in casts {
        let reported = CastOutput::from_output(cast.wait_with_output().expect("it ends"));
        reported.expect(0, "2 of 2 have everything");
    }
    // What leaves before the casts have counted each other is little.
    let least = Duration::from_secs_f64(2.0 * bytes as f64 * 8.0 / 20e6 * 0.8);
    assert!(begun.elapsed() > least, "{:?} where {least:?} are needed", begun.elapsed());
}
