//! Casts into directories, and out of directories, where a second user of the machine may write: a
//! real one, so most need root.

use std::os::unix::process::CommandExt;

use super::*;

/// The other user: nobody.
const OTHER: u32 = 65534;

/// Whether there can be a second user; else the reason is printed.
fn has_other_user() -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        eprintln!("skipped: a second user needs root");
    }
    is_root
}

/// Lets the other user run `script` in `directory`.
#[track_caller]
fn other_user(directory: &Path, script: &str) {
    let mut shell = Command::new("sh");
    let done = shell
        .args(["-ec", script])
        .current_dir(directory)
        .uid(OTHER)
        .gid(OTHER)
        .output()
        .expect("a shell");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Lets everybody write into the directory of receiver `number`, as in `/tmp`.
fn share(ground: &Ground, number: usize) -> PathBuf {
    let directory = ground.receivers[number].directory.clone();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o1777)).expect("set");
    directory
}

/// The name that the unfinished part of `model` has at receiver 0, of which nothing is left.
fn learned_name(ground: &Ground) -> String {
    let mut cast = ground.begin("model");
    cast.kill().expect("killed");
    cast.wait().expect("ended");
    let file = unfinished(&ground.receivers[0].directory).expect("a part");
    fs::remove_file(&file).expect("removed");
    file.file_name().expect("a name").to_string_lossy().into_owned()
}

#[test]
fn planted__a_file_of_another_user_is_not_adopted() {
    if !has_other_user() {
        return;
    }
    let ground = Ground::new("planted", 1);
    let directory = share(&ground, 0);
    fs::write(ground.from("model"), noise(24 * MIB, 31)).expect("written");
    let name = learned_name(&ground);
    other_user(
        &directory,
        &format!("head -c 100 {} > {name}; chmod 666 {name}", ground.from("model").display()),
    );
    ground.cast(&["model"]).expect(0, "1 of 1 have everything");
    let there = ground.at(0, "model").metadata().expect("there");
    assert_eq!((there.uid(), there.nlink()), (0, 1), "whose it is");
    assert_same(&ground.from("model"), &ground.at(0, "model"));
    let planted = directory.join(&name).metadata().expect("what was planted stays");
    assert_eq!((planted.uid(), planted.len()), (OTHER, 100));
}

#[test]
fn planted__whatever_it_is_costs_a_sentence() {
    if !has_other_user() {
        return;
    }
    let ground = Ground::new("kinds", 1);
    let directory = share(&ground, 0);
    fs::write(ground.from("model"), noise(24 * MIB, 32)).expect("written");
    let name = learned_name(&ground);
    let victim = ground.root.join("victim");
    fs::write(&victim, b"kept").expect("written");
    for plant in [
        format!("ln -s {} {name}", victim.display()),
        format!("ln -s nowhere {name}"),
        format!("mkfifo {name}"),
        format!("mkdir {name}"),
        format!("touch {name}; ln {name} other"),
    ] {
        other_user(&directory, &plant);
        ground
            .cast(&["model"])
            .expect(0, "another user had put something under the name of its unfinished file");
        assert_same(&ground.from("model"), &ground.at(0, "model"));
        assert_eq!(fs::read(&victim).expect("there"), b"kept");
        assert_eq!(ground.at(0, "model").metadata().expect("there").uid(), 0, "{plant}");
        fs::remove_file(ground.at(0, "model")).expect("removed");
        other_user(&directory, &format!("rm -rf {name} other"));
    }
}

#[test]
fn planted__a_file_of_the_same_size_and_time_is_replaced() {
    if !has_other_user() {
        return;
    }
    let ground = Ground::new("alike", 1);
    let directory = share(&ground, 0);
    fs::write(ground.from("model"), b"what was sent").expect("written");
    let from = ground.from("model");
    other_user(
        &directory,
        &format!("printf other.bytes.. > model; touch -r {} model", from.display()),
    );
    ground.cast(&["model"]).expect(0, "1 of 1 have everything");
    assert_same(&from, &ground.at(0, "model"));
    assert_eq!(ground.at(0, "model").metadata().expect("there").uid(), 0);
    fs::remove_file(ground.at(0, "model")).expect("removed");
    other_user(&directory, &format!("cp {0} model; touch -r {0} model", from.display()));
    ground.cast(&["model", "--checksum"]).expect(0, "1 of 1 have everything");
    assert_eq!(
        ground.at(0, "model").metadata().expect("there").uid(),
        0,
        "the same bytes, which he can change"
    );
}

#[test]
fn planted__a_directory_of_another_user_is_refused() {
    if !has_other_user() {
        return;
    }
    let ground = Ground::new("tree", 1);
    let directory = share(&ground, 0);
    fs::create_dir(ground.from("tree")).expect("made");
    fs::write(ground.from("tree/file"), b"sent").expect("written");
    other_user(&directory, "mkdir tree");
    ground.cast(&["tree"]).expect(1, "another user made this directory where all may");
    assert!(names(&directory.join("tree")).is_empty());
}

#[test]
fn swapped__what_root_sends_of_another_users_directory_is_what_it_saw_there() {
    if !has_other_user() {
        return;
    }
    let ground = Ground::new("swapped", 1);
    let private = ground.root.join("private");
    fs::create_dir(&private).expect("made");
    fs::write(private.join("file"), b"the secret").expect("written");
    fs::set_permissions(private.join("file"), fs::Permissions::from_mode(0o600)).expect("set");
    fs::set_permissions(&private, fs::Permissions::from_mode(0o711)).expect("set");
    // More than is read ahead.
    fs::write(ground.from("first"), noise(36 * MIB, 33)).expect("written");
    fs::create_dir(ground.from("shared")).expect("made");
    fs::set_permissions(ground.from("shared"), fs::Permissions::from_mode(0o777)).expect("set");
    let secret = private.join("file").display().to_string();
    let shared = ground.from("shared");
    other_user(
        &shared,
        &format!(
            "for name in file inner/file; do mkdir -p inner; printf 0123456789 > $name; touch -r {secret} $name; done"
        ),
    );
    let cast = ground.begin("./");
    other_user(
        &shared,
        &format!("ln -sf {secret} file; mv inner outer; ln -s {} inner", private.display()),
    );
    let reported = CastOutput::from_output(cast.wait_with_output().expect("it ends"));
    for name in ["file", "inner/file"] {
        reported.expect(1, &format!("not sent: ./shared/{name}: it changed while it was sent"));
        assert!(!ground.at(0, "shared").join(name).exists(), "{name}");
    }
    assert_same(&ground.from("first"), &ground.at(0, "first"));
}

/// One more receiver, as the other user, with a directory of its own.
fn receive_as_other(ground: &mut Ground) {
    let home = ground.root.join("other");
    fs::create_dir_all(home.join("into")).expect("made");
    // The way to the program itself may be closed to others.
    let program = home.join("clearway");
    fs::hard_link(PROGRAM, &program)
        .or_else(|_| fs::copy(PROGRAM, &program).map(drop))
        .expect("a program");
    fs::copy(ground.root.join("key"), home.join("key")).expect("a key");
    for name in ["", "into", "key"] {
        std::os::unix::fs::chown(home.join(name), Some(OTHER), Some(OTHER)).expect("given away");
    }
    let mut command = Command::new(&program);
    command.uid(OTHER).gid(OTHER);
    ground.receivers.push(Receiver::start(
        command,
        &home.join("key"),
        home.join("into"),
        "127.0.0.1:0",
    ));
}

/// Runs git in `directory` as this user; what it says is shown when it fails.
fn git(directory: &Path, arguments: &[&str], other: bool) {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=n", "-c", "user.email=e", "-c", "safe.directory=*"]);
    git.args(arguments).current_dir(directory).env("HOME", directory);
    git.env("GIT_CONFIG_NOSYSTEM", "1");
    if other {
        git.uid(OTHER).gid(OTHER);
    }
    let done = git.output().expect("git");
    let said = [done.stdout, done.stderr].concat();
    assert!(done.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&said));
}

#[test]
fn modes__a_git_repository_is_whole_at_a_receiver_that_is_not_root() {
    if !has_other_user() {
        return;
    }
    if Command::new("git").arg("--version").output().is_err() {
        eprintln!("skipped: there is no git");
        return;
    }
    let mut ground = Ground::new("git", 0);
    receive_as_other(&mut ground);
    let repository = ground.from("repository");
    fs::create_dir(&repository).expect("made");
    git(&repository, &["init", "-q"], false);
    for seed in 0..3 {
        let length = 10_000 + seed as usize * MIB;
        fs::write(repository.join("file"), noise(length, seed)).expect("written");
        git(&repository, &["add", "."], false);
        git(&repository, &["commit", "-q", "-m", "a change"], false);
        // Of the first changes a pack, of the last loose objects: git makes both read-only.
        if seed == 1 {
            git(&repository, &["gc", "-q"], false);
        }
        // The second and third cast update what the one before left.
        ground.cast(&["repository"]).expect(0, "1 of 1 have everything");
        let there = ground.at(0, "repository");
        git(&there, &["fsck", "--full", "--strict"], true);
        assert_same(&repository.join("file"), &there.join("file"));
    }
    let objects = ground.at(0, "repository/.git/objects/pack");
    let modes = names(&objects)
        .into_iter()
        .map(|name| objects.join(name).metadata().expect("there").mode() & 0o777);
    assert!(modes.into_iter().all(|mode| mode == 0o444));
}

#[test]
fn modes__a_receiver_that_is_not_root_keeps_what_it_cannot_read_or_write() {
    if !has_other_user() {
        return;
    }
    let mut ground = Ground::new("modes", 0);
    receive_as_other(&mut ground);
    let tree = ground.from("tree");
    fs::create_dir_all(tree.join("closed")).expect("made");
    let sizes = [0, 10, MIB, MIB + 1];
    let modes = [0o444, 0o555, 0o400, 0o200, 0o000];
    let all = || sizes.iter().flat_map(|size| modes.map(|mode| (*size, mode)));
    let name = |size: usize, mode: u32| format!("closed/{mode:03o}-{size}");
    for seed in [34, 35] {
        for (size, mode) in all() {
            fs::write(tree.join(name(size, mode)), noise(size, seed)).expect("written");
            let permissions = fs::Permissions::from_mode(mode);
            fs::set_permissions(tree.join(name(size, mode)), permissions).expect("set");
        }
        fs::set_permissions(tree.join("closed"), fs::Permissions::from_mode(0o555)).expect("set");
        ground.cast(&["tree"]).expect(0, "1 of 1 have everything");
        for (size, mode) in all() {
            let there = ground.at(0, "tree").join(name(size, mode));
            assert_same(&tree.join(name(size, mode)), &there);
            assert_eq!(
                there.metadata().expect("there").mode() & 0o7777,
                mode,
                "{}",
                name(size, mode)
            );
        }
        assert_eq!(ground.at(0, "tree/closed").metadata().expect("there").mode() & 0o7777, 0o555);
        assert_eq!(ground.written(&["tree"]), [0], "nothing changed");
    }
    fs::write(ground.from("one"), b"one").expect("written");
    ground.cast(&["one", "--into", "tree/closed"]).expect(0, "1 of 1 have everything");
    assert_eq!(
        ground.at(0, "tree/closed").metadata().expect("there").mode() & 0o7777,
        0o555,
        "as it was"
    );
}
