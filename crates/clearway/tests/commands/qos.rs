//! `clearway qos` as a whole program: the study's file has its faults, and what is emitted is what a
//! real OpenSM sets, where there is one with a simulated network.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::waiting::wait_until;

const PROGRAM: &str = env!("CARGO_BIN_EXE_clearway");
/// The options of the data-staging study, as its slide shows them.
const STUDY: &str = "qos TRUE\nqos_ca_high_limit 255\n\
    qos_ca_vlarb_high 0:40, 1:0, 2:0, 3:0, 4:0, 5:0, 6:0, 7:0, 8:0, 9:0, 10:0, 11:0, 12:0, 13:0, 14:0\n\
    qos_ca_vlarb_low 0:0, 1:2, 2:4, 3:8, 4:16, 5:32, 6:64, 7:128\n\
    qos_ca_sl2vl 0,1,2,3,4,5,6,7,15,15,15,15,15,15,15,15\n";
/// Two switches with a host each, as ibnetdiscover writes them.
const NET: &str = "Switch\t8 \"S-1\"\t# \"leaf1\"\n[1]\t\"H-10\"[1]\n[3]\t\"S-2\"[3]\n\n\
    Switch\t8 \"S-2\"\t# \"leaf2\"\n[1]\t\"H-30\"[1]\n[3]\t\"S-1\"[3]\n\n\
    Ca\t1 \"H-10\"\t# \"node0\"\n[1]\t\"S-1\"[1]\n\n\
    Ca\t1 \"H-30\"\t# \"node2\"\n[1]\t\"S-2\"[1]\n";
/// What ibsim puts under programs that use InfiniBand's management.
const LIBRARY: &str = "umad2sim/libumad2sim.so";

/// A directory that is gone at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("clearway-qos-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.0.join(name), text).expect("written");
        self.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn qos(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).arg("qos").args(arguments).output().expect("the program")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn check__the_study_s_file_has_four_faults_and_status_3() {
    let place = Place::new("check");
    let conf = place.write("opensm.conf", STUDY).display().to_string();
    let reported = qos(&["check", &conf]);
    assert_eq!(
        (reported.status.code(), text(&reported).lines().count()),
        (Some(3), 4),
        "{}",
        text(&reported)
    );
    let reported = qos(&["check", "/etc/hostname"]);
    assert_eq!((reported.status.code(), text(&reported)), (Some(1), String::new()));
    let emitted = text(&qos(&["emit", "--for", "opensm", "--payload", "2KiB"]));
    let conf = place.write("emitted.conf", &emitted).display().to_string();
    let reported = qos(&["check", &conf, "--payload", "2KiB"]);
    assert_eq!((reported.status.code(), text(&reported)), (Some(0), String::new()));
    let emitted = text(&qos(&["emit", "--for", "opensm"]));
    let conf = place.write("emitted.conf", &emitted).display().to_string();
    let reported = qos(&["check", &conf]);
    assert_eq!(
        (reported.status.code(), text(&reported)),
        (Some(0), String::new()),
        "the same default"
    );
}

#[test]
fn check__every_wrong_value_is_reported_and_only_a_file_of_some_size_is_read() {
    let place = Place::new("wrong");
    let wrong = "qos TRUE\nqos_high_limit 256\nqos_vlarb_low 0:300\nqos_sl2vl 0,16\n";
    let conf = place.write("wrong.conf", wrong).display().to_string();
    let reported = qos(&["check", &conf]);
    let said = text(&reported);
    assert_eq!((reported.status.code(), said.lines().count()), (Some(3), 3), "{said}");
    for (line, number) in said.lines().zip(2..) {
        assert!(line.contains(&format!("wrong.conf: line {number}: `")), "{said}");
    }
    let refused = |path: &str, part: &str| {
        let reported = qos(&["check", path]);
        let said = String::from_utf8_lossy(&reported.stderr).into_owned();
        assert!(reported.status.code() == Some(1) && said.contains(part), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    };
    let pipe = place.0.join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("made");
    refused(&pipe.display().to_string(), "no regular file");
    refused(&place.0.display().to_string(), "no regular file");
    let long = place.0.join("long.conf");
    fs::File::create(&long).and_then(|file| file.set_len((4 << 20) + 1)).expect("made");
    refused(&long.display().to_string(), "larger than 4 MiB");
}

#[test]
fn qos__a_value_that_cannot_be_is_a_wrong_command_line() {
    for words in [
        &["emit", "--for", "tc", "--interface", "eth0;reboot"][..],
        &["emit", "--for", "dcb", "--interface", ""],
        &["plan", "--payload", "257B"],
        &["check", "/dev/null", "--payload", "257B"],
    ] {
        let reported = qos(words);
        let said = String::from_utf8_lossy(&reported.stderr).into_owned();
        assert_eq!(
            (reported.status.code(), text(&reported)),
            (Some(2), String::new()),
            "{words:?}: {said}"
        );
        assert!(said.contains(words[words.len() - 1]), "{said}");
    }
}

#[test]
fn check__a_policy_is_held_against_the_lanes_and_partitions() {
    let place = Place::new("policy");
    let write = |name: &str, text: &str| place.write(name, text).display().to_string();
    let conf = write("opensm.conf", &text(&qos(&["emit", "--for", "opensm"])));
    let right = write("right.conf", &text(&qos(&["emit", "--for", "policy"])));
    let wrong = "qos-ulps\n default : 0\n any, pkey 0x0007 : 9\nend-qos-ulps\n";
    let wrong = write("wrong.conf", wrong);
    let partitions = write("partitions.conf", "Work=0x0001 : ALL=full ;\n");
    let check = |policy: &str| {
        let words = ["check", &conf, "--payload", "4KiB", "--policy", policy];
        qos(&[&words[..], &["--partitions", &partitions]].concat())
    };
    let reported = check(&right);
    assert_eq!((reported.status.code(), text(&reported)), (Some(0), String::new()));
    let reported = check(&wrong);
    let said = text(&reported);
    assert_eq!((reported.status.code(), said.lines().count()), (Some(3), 3), "{said}");
    assert!(said.contains("no partition has P_Key 0x0007"), "{said}");
    assert_eq!(check(&partitions).status.code(), Some(1));
    place.write("opensm.conf", "qos TRUE\nqos_vlarb_low 0:300\n");
    let said = text(&check(&right));
    assert!(said.contains("line 2") && said.contains("it is not checked before"), "{said}");
}

#[test]
fn plan__the_present_tables_and_each_switch_are_shown() {
    let place = Place::new("plan");
    let conf = place.write("opensm.conf", STUDY).display().to_string();
    let net = "Switch\t8 \"S-1\"\t# \"leaf1\" base port 0 lid 2 lmc 0\n[1]\t\"H-10\"[1](11)\t# \"node0\" lid 1 4xQDR\n\n\
        Ca\t1 \"H-10\"\t# \"node0\"\n[1](11)\t\"S-1\"[1]\t# lid 1 lmc 0 \"leaf1\" lid 2 4xQDR\n";
    let net = place.write("net.txt", net).display().to_string();
    let recorded = place.0.display().to_string();
    place.write("portinfo-1-1", "VLCap:.....VL0-3\n");
    place.write("portinfo-2-1", "VLCap:.....VL0-7\n");
    let reported = qos(&["plan", "--conf", &conf, "--switches", &net, "--recorded", &recorded]);
    let said = text(&reported);
    assert_eq!(reported.status.code(), Some(0), "{said}");
    for sentence in [
        "In a short simulation, at an adapter / at a switch:",
        "With the present tables, at adapters / at switches:",
        "qos_ca_ lines set 1 ports of adapters.",
        "switch leaf1 lid 2: qos_swe_ lines set 1 ports; its port 0 is a base one, which has no tables.",
        "node0 lid 1 port 1: it has 4 lanes, so that best-effort with scavenger share one.",
    ] {
        assert!(said.contains(sentence), "{said}");
    }
}

/// The simulated network of a test.
struct Simulated {
    server: Child,
    place: Place,
    library: PathBuf,
}

impl Simulated {
    /// Starts one; else the reason is printed.
    fn start() -> Option<Self> {
        let roots = ["/usr/lib", "/usr/lib64", "/usr/local/lib"].map(PathBuf::from);
        let inside = fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|it| it.path());
        let library = inside.chain(roots).map(|root| root.join(LIBRARY)).find(|path| path.exists());
        let is_there = |program: &str| Command::new(program).arg("--help").output().is_ok();
        let programs =
            ["ibsim", "opensm", "smpquery", "saquery"].iter().all(|program| is_there(program));
        let (Some(library), true) = (library, programs) else {
            eprintln!("skipped: ibsim, opensm and infiniband-diags are not all there");
            return None;
        };
        let place = Place::new("ibsim");
        place.write("net.txt", NET);
        let mut server = Command::new("ibsim");
        server.args(["-s", "-n", "net.txt"]).current_dir(&place.0);
        server.env("IBSIM_SOCKNAME", Self::socket());
        server.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = server.spawn().expect("ibsim");
        Some(Self { server, place, library })
    }

    fn socket() -> String {
        format!("clearway-{}", std::process::id())
    }

    /// Runs a program at a host of the network.
    fn run(&self, program: &str, arguments: &[&str]) -> Output {
        self.command(program, arguments).output().expect("a program of InfiniBand")
    }

    /// Starts OpenSM, which answers questions until it is dropped.
    fn manage(&self) -> RunningOpensm {
        let mut command = self.command("opensm", &["-F", "opensm.conf", "-f", "osm.log"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        RunningOpensm(command.spawn().expect("opensm"))
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.place.0);
        command.env("LD_PRELOAD", &self.library).env("SIM_HOST", "node0");
        command.env("IBSIM_SOCKNAME", Self::socket());
        command.env("OSM_TMP_DIR", &self.place.0).env("OSM_CACHE_DIR", &self.place.0);
        command
    }
}

/// A subnet manager that is running.
struct RunningOpensm(Child);

impl RunningOpensm {
    /// Sends it a signal; it reads its files again at `SIGHUP`.
    fn signal(&self, signal: Signal) {
        let _ = kill(Pid::from_raw(self.0.id() as i32), signal);
    }
}

impl Drop for RunningOpensm {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn verify__a_real_opensm_sets_what_is_emitted_at_adapters_and_switches() {
    let Some(network) = Simulated::start() else { return };
    // The simulator answers when it has read the network.
    wait_until("ibsim answers", || {
        text(&network.run("smpquery", &["-D", "nodeinfo", "0"])).contains("NumPorts")
    });
    let policy = text(&qos(&["emit", "--for", "policy"]));
    let one_level = policy.replace(" : 3 # bulk", " : 0 # bulk");
    let emitted = text(&qos(&["emit", "--for", "opensm"]));
    let of_adapters: String = emitted
        .lines()
        .filter(|line| !line.contains("_sw"))
        .map(|line| format!("{line}\n"))
        .collect();
    let (mut manager, mut sweeps) = (None::<RunningOpensm>, 0);
    // Options that are taken out of the file stay in force until OpenSM is started anew: the fewest come first.
    for (conf, policy, status, words) in [
        (&of_adapters, &policy, 3, &["leaf1"][..]),
        (&emitted, &policy, 0, &["ports, 10 paths: all as planned"]),
        (
            &emitted,
            &one_level,
            3,
            &["path from lid 1 to lid", "to lid 1, bulk: service level 0; planned is 3"],
        ),
    ] {
        let files = "qos_policy_file qos-policy.conf\nforce_log_flush TRUE\n";
        network.place.write("opensm.conf", &format!("{conf}{files}"));
        network.place.write("qos-policy.conf", policy);
        match &manager {
            None => manager = Some(network.manage()),
            Some(manager) => manager.signal(Signal::SIGHUP),
        }
        sweeps += 1;
        let log = network.place.0.join("osm.log");
        let ups = || fs::read_to_string(&log).unwrap_or_default().matches("SUBNET UP").count();
        wait_until("OpenSM comes up", || ups() >= sweeps);
        let net = text(&network.run("ibnetdiscover", &[]));
        network.place.write("net.txt", &net);
        let words_of_verify =
            ["qos", "verify", "--ibsim", "--switches", "net.txt", "--paths-from", "1"];
        let reported = network.run(PROGRAM, &words_of_verify);
        let said = text(&reported) + &String::from_utf8_lossy(&reported.stderr);
        assert_eq!(reported.status.code(), Some(status), "{said}\n{net}");
        assert!(words.iter().all(|words| said.contains(words)), "{said}");
        let switches = said.lines().filter(|line| line.starts_with("leaf")).count();
        assert_eq!(switches > 0, conf == &of_adapters, "{said}");
        assert!(!said.lines().any(|line| line.starts_with("node")), "{said}");
        for what in ["the high limit, which ibsim", "qos_sw0_, as no switch has"] {
            assert!(said.contains(&format!("not verifiable here: {what}")), "{said}");
        }
    }
}
