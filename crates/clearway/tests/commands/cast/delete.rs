//! What `--delete` removes at receivers, and what stays.

use super::*;

fn write(path: &Path) {
    fs::create_dir_all(path.parent().expect("in a directory")).expect("made");
    fs::write(path, b"something").expect("written");
}

/// The first receiver's row of a summary.
fn row(reported: &CastOutput) -> serde_json::Value {
    let summary: serde_json::Value = serde_json::from_str(&reported.text).expect(&reported.errors);
    summary["receivers"][0].clone()
}

#[test]
fn delete__what_the_source_does_not_have_goes_and_everything_else_stays() {
    let ground = Ground::new("delete", 1);
    write(&ground.from("tree/kept"));
    write(&ground.from("tree/dir/kept"));
    ground.cast(&["tree"]).expect(0, "1 of 1 have everything");
    let outside = ground.root.join("outside");
    write(&outside.join("file"));
    write(&ground.at(0, "sibling"));
    for name in ["old", "dir/old", "gone/deep/er/old", "gone/x.o", "only/cache/one", "dir/x.o"] {
        write(&ground.at(0, &format!("tree/{name}")));
    }
    symlink(&outside, ground.at(0, "tree/link")).expect("a link");
    symlink(outside.join("file"), ground.at(0, "tree/dir/link")).expect("a link");
    fs::set_permissions(ground.at(0, "tree/gone/deep"), fs::Permissions::from_mode(0o555))
        .expect("set");
    let exclude = ["tree", "--delete", "--exclude", "*.o", "--exclude", "/only/cache/"];
    let before = names(&ground.at(0, "tree"));
    let dry = ground.cast(&[&exclude[..], &["-n"]].concat());
    dry.expect(0, "would be removed: tree/gone/deep/er/old");
    dry.expect(0, "differs");
    let dry = row(&ground.cast(&[&exclude[..], &["-n", "--json"]].concat()));
    assert_eq!((&dry["removed"], &dry["extras"]["count"]), (&0.into(), &7.into()));
    assert_eq!(dry["extras"]["paths"].as_array().map(Vec::len), Some(7));
    assert_eq!(names(&ground.at(0, "tree")), before);
    ground.cast(&["tree"]).expect(0, "0 B cast");
    assert_eq!(names(&ground.at(0, "tree")), before, "nothing goes unasked");
    let reported = ground.cast(&exclude);
    reported.expect(0, "complete");
    reported.expect(0, "removed: 7");
    assert_eq!(names(&ground.at(0, "tree")), ["dir", "gone", "kept", "only"]);
    assert_eq!(names(&ground.at(0, "tree/dir")), ["kept", "x.o"]);
    assert_eq!(names(&ground.at(0, "tree/gone")), ["x.o"]);
    assert_eq!(names(&ground.at(0, "tree/only/cache")), ["one"]);
    assert!(outside.join("file").exists() && ground.at(0, "sibling").exists());
    let [sent, there] = [ground.from("tree/dir"), ground.at(0, "tree/dir")]
        .map(|path| path.metadata().expect("there"));
    assert_eq!((sent.mtime(), sent.mtime_nsec()), (there.mtime(), there.mtime_nsec()));
    let again = row(&ground.cast(&[&exclude[..], &["--json"]].concat()));
    assert_eq!((&again["state"], &again["removed"]), (&"unchanged".into(), &0.into()));
}

#[test]
fn delete__contents_of_a_directory_replace_those_of_the_target() {
    let ground = Ground::new("delete-into", 1);
    write(&ground.from("tree/kept"));
    write(&ground.from("single"));
    let unfinished = format!(".clearway-cast-{}", "a".repeat(32));
    for name in ["old", "deep/old", &unfinished] {
        write(&ground.at(0, name));
    }
    ground.cast(&["tree/", "single", "--delete"]).expect(0, "removed: 3");
    assert_eq!(names(&ground.receivers[0].directory), [&unfinished[..], "kept", "single"]);
    ground
        .cast(&["single", "--delete"])
        .expect(2, "--delete removes below directories that are cast, and none is cast");
    ground.cast(&["-", "--delete"]).expect(2, "--delete is for directories");
    let home = ground.root.join("home");
    write(&home.join("precious"));
    for into in [&[][..], &["--into", ""], &["--into", "./"]] {
        let mut command = Command::new(PROGRAM);
        command.args(["cast", "tree/", "--delete", "--to", "n1"]).args(into);
        command.current_dir(ground.from("")).env("HOME", &home);
        CastOutput::from_output(command.output().expect("the program"))
            .expect(2, "name a directory with --into");
    }
}

#[test]
fn delete__nothing_goes_when_something_could_not_be_read_or_did_not_arrive() {
    let ground = Ground::new("delete-not", 1);
    write(&ground.from("tree/kept"));
    write(&ground.from("tree/closed/file"));
    ground.cast(&["tree"]).expect(0, "1 of 1 have everything");
    write(&ground.at(0, "tree/old"));
    let close = |mode| {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(ground.from("tree/closed"), permissions).expect("set");
    };
    close(0o000);
    let reported = without_rights(&ground.command(&["tree", "--delete"]))
        .map(|mut command| CastOutput::from_output(command.output().expect("the program")));
    close(0o755);
    if let Some(reported) = reported {
        reported.expect(1, "nothing was removed, because not everything could be read");
    }
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(ground.at(0, "tree/closed"), open).expect("set");
    assert!(ground.at(0, "tree/old").exists() && ground.at(0, "tree/closed/file").exists());
    // The other path is in no directory that is cast, so nothing makes room for it.
    write(&ground.from("wrong"));
    fs::create_dir(ground.at(0, "wrong")).expect("made");
    ground
        .cast(&["tree", "wrong", "--delete"])
        .expect(1, "nothing was removed, because not everything arrived");
    assert!(ground.at(0, "tree/old").exists());
    ground.cast(&["tree", "--delete"]).expect(0, "removed: 1");
    assert!(!ground.at(0, "tree/old").exists());
}

#[test]
fn delete__what_the_source_has_and_does_not_cast_stays() {
    let ground = Ground::new("delete-left", 1);
    write(&ground.from("tree/kept"));
    let _socket =
        std::os::unix::net::UnixListener::bind(ground.from("tree/socket")).expect("a socket");
    write(&ground.at(0, "tree/socket"));
    ground.cast(&["tree", "--delete"]).expect(0, "1 of 1 have everything");
    assert_eq!(names(&ground.at(0, "tree")), ["kept", "socket"]);
}

#[test]
fn delete__of_a_directory_in_another_each_extra_goes_once_and_what_is_excluded_stays() {
    let ground = Ground::new("delete-nested", 1);
    write(&ground.from("outer/one"));
    write(&ground.from("inner/kept"));
    for name in ["inner/build/object", "inner/a\nb"] {
        write(&ground.at(0, name));
    }
    let nested = ["outer/", "inner", "--delete", "--exclude", "/build"];
    let dry = row(&ground.cast(&[&nested[..], &["-n", "--json"]].concat()));
    assert_eq!(dry["extras"]["paths"], serde_json::json!(["inner/a%0Ab"]));
    ground.cast(&nested).expect(0, "removed: 1");
    assert!(ground.at(0, "inner/build/object").exists() && ground.at(0, "inner/kept").exists());
    assert!(!ground.at(0, "inner/a\nb").exists());
}

#[test]
fn delete__a_name_of_another_kind_makes_room() {
    let ground = Ground::new("delete-kinds", 1);
    write(&ground.from("tree/file"));
    fs::write(ground.from("tree/large"), noise(3 * MIB, 1)).expect("written");
    symlink("file", ground.from("tree/link")).expect("a link");
    write(&ground.from("tree/directory/inner"));
    for name in ["file", "large", "link"] {
        write(&ground.at(0, &format!("tree/{name}/old/inner")));
    }
    write(&ground.at(0, "tree/directory"));
    ground.cast(&["tree"]).expect(1, "file: a directory is where a file must be");
    ground.cast(&["tree", "--delete", "-n"]).expect(0, "would be removed: tree/file/old/inner");
    assert!(ground.at(0, "tree/file/old/inner").exists(), "nothing was changed");
    ground.cast(&["tree", "--delete"]).expect(0, "1 of 1 have everything");
    assert_same(&ground.from("tree/large"), &ground.at(0, "tree/large"));
    assert_eq!(names(&ground.at(0, "tree")), ["directory", "file", "large", "link"]);
    assert_eq!(fs::read_link(ground.at(0, "tree/link")).expect("a link"), Path::new("file"));
    assert!(ground.at(0, "tree/directory/inner").is_file() && ground.at(0, "tree/file").is_file());
}

#[test]
fn delete__a_directory_with_something_that_stays_makes_no_room() {
    let ground = Ground::new("delete-stays", 1);
    write(&ground.from("tree/file"));
    write(&ground.at(0, "tree/file/kept.o"));
    write(&ground.at(0, "tree/old"));
    let reported = ground.cast(&["tree", "--delete", "--exclude", "*.o"]);
    reported.expect(1, "what stays in this directory is in the way of a file");
    assert!(ground.at(0, "tree/file/kept.o").exists() && ground.at(0, "tree/old").exists());
}

#[test]
fn delete__is_refused_where_the_receiver_forbids_it() {
    let mut ground = Ground::new("delete-denied", 0);
    let directory = ground.root.join("at");
    fs::create_dir(&directory).expect("made");
    let mut command = Command::new("sh");
    command.args(["-c", &format!("exec {PROGRAM} \"$@\" --no-delete"), "sh"]);
    let key = ground.root.join("key");
    ground.receivers.push(Receiver::start(command, &key, directory, "127.0.0.1:0"));
    write(&ground.from("tree/file"));
    write(&ground.at(0, "tree/old"));
    ground.cast(&["tree", "--delete"]).expect(1, "--no-delete here; cast without --delete");
    assert!(ground.at(0, "tree/old").exists() && !ground.at(0, "tree/file").exists());
    ground.cast(&["tree"]).expect(0, "1 of 1 have everything");
}
