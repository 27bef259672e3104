//! `examples/slurm`: the hooks of `burst_buffer.lua`, called as Slurm calls them, with what users write
//! into their scripts; prolog and epilog.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::served::ServedPlace;
use super::{PROGRAM, StagingPlace, error_of};

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/slurm");
/// Interpreters: the plug-in takes any of these releases.
const INTERPRETERS: [&str; 5] = ["lua5.4", "lua5.3", "lua5.1", "lua", "luajit"];
/// Calls a hook as the plug-in does: all arguments are text.
const CALLER: &str = "\
slurm = { SUCCESS = 0, ERROR = -1, log_info = function(...) io.stderr:write(string.format(...), '\\n') end }
dofile(arg[1])
local status, said = _G[arg[2]]((table.unpack or unpack)(arg, 3))
io.write(status, ' ', said or '')
";
/// A user who is not root, and is on every machine: nobody.
const USER: &str = "65534";
/// All hooks: those that newer releases need come second.
const HOOKS: [&str; 13] = [
    "job_process",
    "pools",
    "setup",
    "data_in",
    "real_size",
    "paths",
    "pre_run",
    "post_run",
    "data_out",
    "job_teardown",
    "get_status",
    "test_data_in",
    "test_data_out",
];

/// Reads an example with other values.
fn example(name: &str, values: &[(&str, String)]) -> String {
    let mut text = fs::read_to_string(Path::new(EXAMPLES).join(name)).expect("an example");
    for (old, new) in values {
        assert_eq!(text.matches(old).count(), 1, "{old}");
        text = text.replace(old, new);
    }
    text
}

/// A mounted tree, and the script for it.
struct HookPlace {
    place: StagingPlace,
    interpreter: &'static str,
}

impl HookPlace {
    /// Makes it; `None`, and says why, where that cannot be.
    fn new() -> Option<Self> {
        let has = |name: &&&str| Command::new(name).arg("-v").output().is_ok();
        let Some(interpreter) = INTERPRETERS.iter().find(has) else {
            eprintln!("skipped: there is no interpreter of Lua");
            return None;
        };
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: hooks that act as a user need root");
            return None;
        }
        let mut place = StagingPlace::new()?;
        if !place.mount(&[]) {
            return None;
        }
        let all = fs::Permissions::from_mode(0o777);
        fs::set_permissions(place.path("mnt"), all.clone()).expect("set");
        fs::create_dir(place.path("in")).expect("a directory");
        fs::set_permissions(place.path("in"), all).expect("set");
        let shown = |name: &str| place.path(name).display().to_string();
        let values = [
            ("/usr/local/bin/clearway", PROGRAM.to_owned()),
            ("MOUNT = \"/ck\"", format!("MOUNT = \"{}\"", shown("mnt"))),
            ("/lustre/scratch\"", format!("{}\"", shown("store"))),
        ];
        fs::write(place.path("bb.lua"), example("burst_buffer.lua", &values)).expect("written");
        fs::write(place.path("call.lua"), CALLER).expect("written");
        Some(Self { place, interpreter })
    }

    fn call(&self, hook: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(self.interpreter);
        command.arg(self.place.path("call.lua")).arg(self.place.path("bb.lua"));
        command.arg(format!("slurm_bb_{hook}")).args(arguments);
        command.current_dir(self.place.path("in")).output().expect("an interpreter")
    }

    /// Calls a hook for a script of these lines; returns what it answers.
    fn hook(&self, hook: &str, lines: &str) -> String {
        let script = self.place.path("job.sh");
        fs::write(&script, format!("#!/bin/sh\n{lines}\n")).expect("written");
        let script = script.display().to_string();
        let arguments: &[&str] = match hook {
            "job_process" => &[&script, USER, USER],
            _ => &["7", &script, USER, USER],
        };
        let output = self.call(hook, arguments);
        assert!(output.status.success(), "{}", error_of(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn on_mount(&self, name: &str) -> PathBuf {
        self.place.path("mnt").join(name)
    }

    /// Lets the user do something.
    fn as_user(&self, script: &str) {
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={USER}"), &format!("--regid={USER}"), "--clear-groups"]);
        command.args(["sh", "-ec", script]).current_dir(self.place.path("mnt"));
        let output = command.output().expect("setpriv");
        assert!(output.status.success(), "{}", error_of(&output));
    }
}

#[test]
fn hooks__files_are_there_before_and_after_a_job_whatever_their_names_are() {
    let Some(mut place) = HookPlace::new() else { return };
    let names =
        ["plain", "a b", "it's", "x;touch pwned", "$(touch pwned)", "-rf", "q\"uote\\", "*"];
    for (number, name) in names.iter().enumerate() {
        let source = place.place.path("in").join(name);
        fs::create_dir(&source).expect("a directory");
        fs::write(source.join("file"), name).expect("written");
        let word = |path: &Path| {
            let text = path.display().to_string();
            format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
        };
        let staged = place.on_mount(&format!("{number}/{name}"));
        let out = format!("out {number}/{name}");
        let lines = format!(
            "#BB_LUA stage_in source={} destination={}\n#BB_LUA stage_out source={} destination={} class=bulk",
            word(&source),
            word(&staged),
            word(&staged),
            word(Path::new(&out)),
        );
        assert_eq!(place.hook("job_process", &lines), "0 ", "{lines}");
        assert_eq!(place.hook("data_in", &lines), "0 ", "{lines}");
        assert_eq!(fs::read_to_string(staged.join("file")).expect("staged in"), *name);
        assert_eq!(place.hook("data_out", &lines), "0 ", "{lines}");
        let stored = place.place.path("store").join(&out).join("file");
        assert_eq!(fs::read_to_string(stored).expect("staged out"), *name);
        assert!(!staged.exists(), "{name}");
        // Slurm may repeat it.
        assert_eq!(place.hook("data_out", &lines), "0 ", "{lines}");
    }
    let made = fs::read_dir(place.place.path("in")).expect("listed").count();
    assert_eq!(made, names.len(), "nothing but the sources");
    place.place.umount();
}

#[test]
fn hooks__a_set_is_published_and_a_deadline_leaves_the_drain_behind() {
    let Some(mut place) = HookPlace::new() else { return };
    place.as_user("mkdir set && setfattr -n user.clearway.publish -v explicit set || rmdir set");
    if !place.on_mount("set").exists() {
        eprintln!("skipped: there is no setfattr");
        return;
    }
    place.as_user("echo 1 >set/one; echo 2 >set/two");
    let lines = "#BB_LUA stage_out source=set destination=published";
    assert_eq!(place.hook("data_out", lines), "0 ");
    assert_eq!(fs::read_to_string(place.place.path("store/published/two")).expect("there"), "2\n");
    place.as_user("echo late >late");
    place.place.hide_store();
    let lines = "#BB_LUA stage_out source=late destination=late deadline=1s";
    assert_eq!(place.hook("data_out", lines), "0 ");
    place.place.show_store();
    super::staged(&["wait", "--until", "stored"], &[&place.on_mount("late")]);
    place.place.umount();
}

#[test]
fn hooks__what_is_wrong_is_one_sentence() {
    let Some(mut place) = HookPlace::new() else { return };
    let refused = |hook: &str, lines: &str, words: &str| {
        let answer = place.hook(hook, &format!("#BB_LUA {lines}"));
        assert!(answer.starts_with("-1 burst buffer: ") && answer.contains(words), "{answer}");
        assert_eq!(answer.lines().count(), 1, "{answer}");
    };
    for (line, words) in [
        ("stage_in", "line 2: stage_in needs source="),
        ("stage_in source=x destination=y", "source= is not a full path"),
        ("stage_in source=/x destination=a/../../y", "destination= has a '..'"),
        ("stage_in source=/x destination=/etc/y", "destination= is not below"),
        ("stage_in source=/x destination=/", "is not below"),
        ("stage_in source=/x destination=.", "names the whole tree"),
        ("stage_in source=/x destination=y z", "expects KEY=VALUE at 'z'"),
        ("stage_in source=\"/x destination=y", "has no closing quote"),
        ("stage_in source=\"/x\"destination=y", "has no space behind source="),
        ("stage_in source=/x destination=y class=bulk", "does not know class="),
        ("stage_in source=/x\tdestination=y", "has a control character"),
        ("stage_in source=/x destination=y\r", "has a control character"),
        ("stage_out source=a destination=b class=fast", "has no class fast"),
        ("stage_out source=a destination=b deadline=1d", "is not a time"),
        ("stage_out source=a source=b", "has source= twice"),
        ("stage_up source=a", "expects stage_in or stage_out"),
    ] {
        refused("job_process", line, words);
        refused("data_in", line, words);
    }
    refused("data_in", "stage_in source=/no/such/file destination=y", "no source /no/such/file");
    let own = place.place.path("of-root");
    fs::write(&own, "secret").expect("written");
    fs::set_permissions(&own, fs::Permissions::from_mode(0o600)).expect("set");
    let line = format!("stage_in source={} destination=y", own.display());
    refused("data_in", &line, "that user 65534 can read");
    fs::write(place.on_mount("of-root"), "not the user's").expect("written");
    refused("data_out", "stage_out source=of-root destination=mine", "of user 65534");
    refused("data_out", "stage_out source=nothing destination=mine", "of user 65534");
    assert!(place.on_mount("of-root").exists());
    place.as_user("echo 1 >here; echo 2 >there");
    refused("data_out", "stage_out source=here destination=there", "there exists");
    assert_eq!(place.hook("job_process", "#BB_LUAX stage_up\necho '#BB_LUA x'"), "0 ");
    place.place.umount();
}

#[test]
fn hooks__both_generations_of_the_plug_in_find_theirs() {
    let Some(mut place) = HookPlace::new() else { return };
    let environment = place.place.path("environment").display().to_string();
    for hook in HOOKS {
        let script = place.place.path("job.sh").display().to_string();
        fs::write(&script, "#!/bin/sh\n").expect("written");
        let arguments: &[&str] = match hook {
            "job_process" => &[&script, USER, USER],
            "paths" => &["7", &script, &environment, USER, USER],
            "get_status" => &[USER, USER, "more"],
            "setup" => &["7", USER, USER, "", "0", &script],
            _ => &["7", &script, USER, USER],
        };
        let output = place.call(hook, arguments);
        assert!(output.status.success(), "{hook}: {}", error_of(&output));
        let answer = String::from_utf8_lossy(&output.stdout);
        assert!(answer.starts_with("0 "), "{hook}: {answer}");
        assert_eq!(hook == "get_status", answer.contains("inodes"), "{hook}: {answer}");
    }
    let environment = fs::read_to_string(environment).expect("written");
    assert_eq!(environment, "CLEARWAY_STAGE=/run/clearway-jobs/7\n");
    place.place.umount();
}

#[test]
fn prolog__mounts_for_a_job_and_the_epilog_unmounts() {
    let Some(served) = ServedPlace::new() else { return };
    if !served.mount("mnt", "") {
        return;
    }
    served.umount("mnt");
    let mounts = served.place.path("jobs");
    let program = ("/usr/local/bin/clearway", PROGRAM.to_owned());
    let place = ("mounts=/run/clearway-jobs", format!("mounts={}", mounts.display()));
    let epilog = example("epilog.sh", &[program.clone(), place.clone()]);
    let server = ("server=server1", format!("server={}", served.address));
    let key = ("/etc/clearway/host.key", served.place.path("key").display().to_string());
    let prolog = example("prolog.sh", &[program, server, key, place]);
    let run = |script: &str| {
        let mut command = Command::new("sh");
        let output = command.args(["-c", script]).env("SLURM_JOB_ID", "7").output();
        let output = output.expect("a shell");
        assert!(output.status.success(), "{}", error_of(&output));
    };
    run(&prolog);
    fs::write(mounts.join("7/file"), "of the job").expect("written");
    run(&prolog);
    assert_eq!(fs::read_to_string(mounts.join("7/file")).expect("read"), "of the job");
    run(&epilog);
    assert!(!mounts.join("7").exists());
    run(&epilog);
}
