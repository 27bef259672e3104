//! What `--dry-run` says, and that it changes nothing.

use super::*;

/// All that stands below `directory`: paths, modes, lengths, times of changes of any kind.
fn everything(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(path) = open.pop() {
        let it = path.symlink_metadata().expect("there");
        let changed = (it.mtime(), it.mtime_nsec(), it.ctime(), it.ctime_nsec());
        found.push(format!("{} {:o} {} {changed:?}", path.display(), it.mode(), it.len()));
        if it.is_dir() {
            let inside = fs::read_dir(&path).expect("a directory");
            open.extend(inside.map(|entry| entry.expect("an entry").path()));
        }
    }
    found.sort();
    found
}

#[test]
fn dry_run__says_what_would_be_sent_to_whom_and_changes_nothing() {
    let ground = Ground::new("dry", 2);
    let tree = ground.from("tree");
    fs::create_dir_all(tree.join("new/inner")).expect("made");
    fs::write(tree.join("model"), noise(2 * MIB + 10, 1)).expect("written");
    fs::write(tree.join("new/inner/small"), b"small").expect("written");
    symlink("model", tree.join("link")).expect("a link");
    fs::write(tree.join("left-out.o"), b"out").expect("written");
    // The first has an older model, the second everything but a mode.
    let mut older = noise(2 * MIB + 10, 1);
    older[MIB + 1] ^= 1;
    fs::create_dir(ground.at(0, "tree")).expect("made");
    fs::write(ground.at(0, "tree/model"), older).expect("written");
    let second = ground.receivers[1].address.clone();
    let cast = |arguments: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(["cast", "tree", "--exclude=*.o", "--to", &second, "--key"]);
        command.arg(ground.root.join("key")).args(arguments).current_dir(ground.from(""));
        CastOutput::from_output(command.output().expect("the program"))
    };
    cast(&[]).expect(0, "1 of 1 have everything");
    fs::set_permissions(ground.at(1, "tree/model"), fs::Permissions::from_mode(0o600))
        .expect("set");
    let before = everything(&ground.root);
    let reported = ground.cast(&["tree", "--dry-run", "--exclude", "*.o"]);
    reported.expect(0, "differs         1.0 MiB");
    reported.expect(0, "symbolic links that would change: 1");
    reported.expect(0, "permissions that would change: 1");
    reported.expect(0, "would be sent: tree/model: 1.0 MiB, to 1 of 2");
    reported.expect(0, "would be sent: tree/new/inner/small: 5 B, to 1 of 2");
    reported.expect(
        0,
        "0 of 2 have everything; dry run, nothing was changed; 1.0 MiB of 2 files would be cast",
    );
    let json = ground.cast(&["tree", "-n", "--exclude", "*.o", "--json"]);
    assert_eq!(everything(&ground.root), before);
    let summary: serde_json::Value = serde_json::from_str(&json.text).expect(&json.errors);
    let bytes = MIB as u64 + 5;
    let rows = &summary["receivers"];
    assert_eq!(rows[0]["missing"], serde_json::json!({ "files": 2, "bytes": bytes }));
    assert_eq!((&rows[0]["state"], &rows[1]["state"]), (&"differs".into(), &"differs".into()));
    assert_eq!(rows[0]["changes"], serde_json::json!({ "links": 1, "permissions": 0 }));
    assert_eq!(rows[1]["changes"], serde_json::json!({ "links": 0, "permissions": 1 }));
    assert_eq!((&rows[0]["written"], &summary["cast"]), (&0.into(), &0.into()));
    let plan = &summary["dry_run"];
    assert_eq!(plan["bytes"], bytes);
    assert_eq!(
        plan["files"][0],
        serde_json::json!({ "path": "tree/model", "bytes": MIB, "receivers": 1 })
    );
    assert_eq!(ground.written(&["tree", "--exclude", "*.o"]), [bytes, 0], "as it was said");
    ground.cast(&["tree", "-n", "--exclude", "*.o"]).expect(0, "0 B of 0 files would be cast");
}

#[test]
fn dry_run__a_target_that_is_not_there_is_not_made() {
    let ground = Ground::new("dry-new", 1);
    fs::write(ground.from("model"), noise(MIB + 1, 2)).expect("written");
    let before = everything(&ground.root);
    let reported = ground.cast(&["model", "-n", "--into", "a/b"]);
    reported.expect(0, "would be sent: model: 1.0 MiB, to 1 of 1");
    assert_eq!(everything(&ground.root), before);
    fs::write(ground.at(0, "a"), b"a file").expect("written");
    ground.cast(&["model", "-n", "--into", "a/b"]).expect(1, "refused");
}

#[test]
fn dry_run__over_ssh_not_even_a_key_is_made() {
    let ground = Ground::new("dry-ssh", 0);
    let script =
        "#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\nshift\nexec sh -c \"$*\"\n";
    fs::write(ground.root.join("ssh"), script).expect("written");
    fs::set_permissions(ground.root.join("ssh"), fs::Permissions::from_mode(0o755)).expect("set");
    fs::write(ground.from("model"), b"model").expect("written");
    let path = std::env::var("PATH").unwrap_or_default();
    let before = everything(&ground.root);
    let mut command = Command::new(PROGRAM);
    command.args(["cast", "model", "-n", "--to", "n1", "--into"]).arg(ground.root.join("at-%h"));
    command.env("PATH", format!("{}:{path}", ground.root.display()));
    command.env("XDG_STATE_HOME", ground.root.join("state")).current_dir(ground.from(""));
    CastOutput::from_output(command.output().expect("the program"))
        .expect(0, "would be sent: model: 5 B, to 1 of 1");
    assert_eq!(everything(&ground.root), before);
}

#[test]
fn dry_run__an_unfinished_file_counts_and_stays_as_it_is() {
    let ground = Ground::new("dry-part", 1);
    fs::write(ground.from("model"), noise(24 * MIB, 3)).expect("written");
    let mut cast = ground.begin("model");
    cast.kill().expect("killed");
    cast.wait().expect("ended");
    // Another cast waits until the receiver has noticed the end of this one.
    ground.cast(&["model", "-n"]).expect(0, "would be sent: model: ");
    let part = unfinished(&ground.receivers[0].directory).expect("a part");
    let lock = fs::File::open(&part).expect("there");
    lock.lock().expect("the receiver ended");
    let before = everything(&ground.receivers[0].directory);
    let json = ground.cast(&["model", "-n", "--json"]);
    assert_eq!(everything(&ground.receivers[0].directory), before);
    let summary: serde_json::Value = serde_json::from_str(&json.text).expect(&json.errors);
    let bytes = summary["receivers"][0]["missing"]["bytes"].as_u64().expect("a number");
    assert!(bytes > 0 && bytes <= 21 * MIB as u64, "{bytes}");
    drop(lock);
    assert_eq!(ground.written(&["model"]), [bytes]);
}

#[test]
fn dry_run__a_file_that_cannot_be_opened_is_said_as_a_cast_would() {
    let ground = Ground::new("dry-closed", 1);
    for name in ["tree/open", "tree/closed"] {
        fs::create_dir_all(ground.from("tree")).expect("made");
        fs::write(ground.from(name), b"text").expect("written");
    }
    fs::set_permissions(ground.from("tree/closed"), fs::Permissions::from_mode(0o000))
        .expect("set");
    let Some(mut command) = without_rights(&ground.command(&["tree", "-n"])) else { return };
    let reported = CastOutput::from_output(command.output().expect("the program"));
    reported.expect(1, "tree/closed: Permission denied");
    reported.expect(1, "would be sent: tree/open: 4 B, to 1 of 1");
    assert!(!reported.text.contains("would be sent: tree/closed"), "{}", reported.text);
}

#[test]
fn dry_run__what_would_fail_is_said() {
    let ground = Ground::new("dry-fails", 1);
    fs::write(ground.from("model"), b"model").expect("written");
    fs::create_dir(ground.at(0, "model")).expect("made");
    ground.cast(&["model", "-n"]).expect(1, "model: a directory is where a file must be");
    ground
        .cast(&["model", "-n", "--to", "127.0.0.1:1"])
        .expect(1, "does `clearway cast serve` run there?");
    ground.cast(&["-", "-n"]).expect(2, "--dry-run is for files and directories");
}
