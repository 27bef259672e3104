//! What `--exclude` leaves out.

use super::*;

/// Writes files with their own names in them below the place for what is sent.
fn write_all(ground: &Ground, files: &[&str]) {
    for name in files {
        let path = ground.from(name);
        fs::create_dir_all(path.parent().expect("in a directory")).expect("made");
        fs::write(path, name).expect("written");
    }
}

/// The paths of all files below `directory`, sorted.
fn files(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(&at).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else {
                let path = path.strip_prefix(directory).expect("below it");
                found.push(path.display().to_string());
            }
        }
    }
    found.sort();
    found
}

#[test]
fn exclude__patterns_leave_out_what_rsync_and_git_would() {
    let ground = Ground::new("exclude", 1);
    write_all(
        &ground,
        &[
            "tree/main.c",
            "tree/main.o",
            "tree/build/out",
            "tree/src/build/kept",
            "tree/src/deep/er/x.o",
            "tree/src/cache/one",
            "tree/cache",
            "tree/docs/a.html",
            "tree/docs/more/b.html",
            "tree/docs/more/tmp/c",
        ],
    );
    let patterns = ["*.o", "/build", "cache/", "docs/*.html", "docs/**/tmp"];
    let arguments: Vec<&str> = patterns.iter().flat_map(|one| ["--exclude", *one]).collect();
    let left = ["cache", "docs/more/b.html", "main.c", "src/build/kept"];
    let reported = ground.cast(&[&["tree"], &arguments[..]].concat());
    reported.expect(0, "1 of 1 have everything");
    reported.expect(0, "left out by --exclude: 6");
    assert_eq!(files(&ground.at(0, "tree")), left);
    assert!(!ground.at(0, "tree/build").exists() && ground.at(0, "tree/src/deep/er").exists());
    let reported =
        ground.cast(&[&["tree/", "--into", "inside", "--json"], &arguments[..]].concat());
    assert_eq!(files(&ground.at(0, "inside")), left);
    let summary: serde_json::Value = serde_json::from_str(&reported.text).expect(&reported.errors);
    assert_eq!((&summary["excluded"], &summary["entries"]), (&6.into(), &10.into()));
}

#[test]
fn exclude__what_is_named_is_left_out_by_its_name() {
    let ground = Ground::new("exclude-named", 1);
    write_all(&ground, &["a.log", "b.txt", "target/out", "kept/target"]);
    let reported =
        ground.cast(&["a.log", "b.txt", "target", "kept", "--exclude=*.log", "--exclude=target/"]);
    reported.expect(0, "left out by --exclude: 2");
    assert_eq!(files(&ground.receivers[0].directory), ["b.txt", "kept/target"]);
    ground.cast(&["a.log", "--exclude", "*"]).expect(0, "0 B cast");
}

#[test]
fn exclude__what_cannot_be_read_is_no_failure_when_it_is_left_out() {
    let ground = Ground::new("exclude-closed", 1);
    write_all(&ground, &["tree/kept", "tree/closed/file", "tree/secret"]);
    let close = |mode| {
        for name in ["tree/closed", "tree/secret"] {
            let permissions = fs::Permissions::from_mode(mode);
            fs::set_permissions(ground.from(name), permissions).expect("set");
        }
    };
    let _socket =
        std::os::unix::net::UnixListener::bind(ground.from("tree/socket")).expect("a socket");
    close(0o000);
    let mut command =
        ground.command(&["tree", "--exclude=closed/", "--exclude=secret", "--exclude=socket"]);
    let reported = without_rights(&command)
        .map(|mut command| command.output().expect("the program"))
        .unwrap_or_else(|| command.output().expect("the program"));
    close(0o755);
    let reported = CastOutput::from_output(reported);
    reported.expect(0, "1 of 1 have everything; ");
    reported.expect(0, "left out by --exclude: 3");
    assert!(!reported.text.contains("socket"), "{}", reported.text);
    assert_eq!(files(&ground.at(0, "tree")), ["kept"]);
}

#[test]
fn exclude__a_malformed_pattern_is_said_before_anything_begins() {
    let ground = Ground::new("exclude-wrong", 1);
    write_all(&ground, &["file"]);
    for (pattern, sentence) in [
        ("[a", "unclosed character class; missing ']'"),
        ("!a", "a pattern only excludes"),
        ("a/../b", "a name that is empty, `.` or `..`"),
        ("", "a name that is empty"),
    ] {
        ground.cast(&["file", "--exclude", pattern]).expect(2, sentence);
    }
    ground.cast(&["-", "--exclude", "a"]).expect(2, "--exclude is for files and directories");
    assert!(names(&ground.receivers[0].directory).is_empty());
}
