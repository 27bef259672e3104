//! `clearway agent`, and what follows it: casts and drains that an agent of the test holds back, and
//! agents that get wrong input.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::{self, JoinHandle};

use clearway_proto::base::{BitsPerSec, LocalNs, Nanos};
use clearway_proto::flow::{
    AGENT_MESSAGE_BYTES, AgentAnswer, AgentDemand, AgentGrant, PROBE_BYTES, ProbePacket,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept, bind,
    listen, recv, send, socket_with,
};

use crate::scraped::{Scraped, address};
use crate::virtual_hosts::{clearway, text};
use crate::waiting::wait_until;

const PROGRAM: &str = env!("CARGO_BIN_EXE_clearway");
/// What the agent of the test allows.
const ALLOWED: BitsPerSec = BitsPerSec(8_000_000);

/// A directory, gone at the end.
pub(crate) struct AgentTestPlace(PathBuf);

impl AgentTestPlace {
    pub(crate) fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("clearway-agent-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        fs::write(self.0.join(name), content).expect("written");
        self.path(name)
    }
}

impl Drop for AgentTestPlace {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Serves one scavenger at `path`, and allows it [`ALLOWED`] as long as it is connected; the thread
/// returns whether it demanded something.
pub(crate) fn fixed_agent(path: &str) -> JoinHandle<bool> {
    let socket = |flags| socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let listener: OwnedFd = socket(SocketFlags::CLOEXEC).expect("a socket");
    bind(&listener, &SocketAddrUnix::new(path).expect("a path")).expect("bound");
    listen(&listener, 1).expect("listening");
    thread::spawn(move || {
        let scavenger = accept(&listener).expect("a scavenger");
        let lease = Nanos::from_secs(60);
        let (pause_at, pause) = (LocalNs(0), Nanos::ZERO);
        let word = AgentGrant { rate: ALLOWED, is_held: true, lease, pause_at, pause };
        let mut has_demanded = false;
        let mut bytes = [0; AGENT_MESSAGE_BYTES];
        while let Ok((length @ 1.., _)) = recv(&scavenger, &mut bytes, RecvFlags::empty()) {
            let demand = AgentDemand::decode(&bytes[..length]).expect("a demand");
            has_demanded |= demand.0.0 > 0;
            let answer = AgentAnswer::Granted(word).encode();
            let _ = send(&scavenger, &answer, SendFlags::NOSIGNAL);
        }
        has_demanded
    })
}

/// Casts to a receiver on this machine.
fn cast(place: &AgentTestPlace, bytes: usize, more: &[&str]) -> Output {
    let key = place.write("key", "a key of more than sixteen bytes");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("private");
    let content = place.write("content", vec![7; bytes]);
    let mut server = Command::new(PROGRAM);
    server.args(["cast", "serve", "--listen", "127.0.0.1:0", "--key", &key]);
    server.args(["--into", &place.path("into")]).env("XDG_STATE_HOME", place.path("state"));
    let mut server = server.stderr(Stdio::piped()).spawn().expect("the program");
    let mut line = String::new();
    BufReader::new(server.stderr.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let listening = line.strip_prefix("listening at ").and_then(|line| line.split(',').next());
    let mut cast = Command::new(PROGRAM);
    cast.args(["cast", &content, "--to", listening.expect("an address"), "--key", &key]);
    let cast = cast.args(more).env("XDG_STATE_HOME", place.path("state")).output();
    let _ = server.kill();
    let _ = server.wait();
    cast.expect("the program")
}

#[test]
fn cast__in_the_class_scavenger_keeps_the_rate_of_the_agent_and_says_its_price() {
    let place = AgentTestPlace::new("cast");
    let socket = place.path("socket");
    let agent = fixed_agent(&socket);
    let site = "[[rule]]\nprogram = \"cast\"\nclass = \"scavenger\"\n";
    let site = place.write("site.toml", site);
    let words = ["--policy", &site, "--agent", &socket, "--json"];
    let reported = cast(&place, 1 << 20, &words);
    assert!(agent.join().expect("no fault"), "it demanded something");
    assert!(reported.status.success(), "{}", text(&reported.stderr));
    let summary: serde_json::Value = serde_json::from_slice(&reported.stdout).expect("JSON");
    let held = &summary["held"];
    assert_eq!(
        (held["mean_bits_per_second"].as_u64(), held["least_bits_per_second"].as_u64()),
        (Some(ALLOWED.0), Some(ALLOWED.0))
    );
    let (took, held) = (summary["seconds"].as_f64(), held["seconds"].as_f64());
    // A rate bounds from below what a cast takes.
    let least = f64::from(1 << 23) / ALLOWED.0 as f64 * 0.9;
    assert!(took > Some(least) && held > Some(least / 2.0), "{summary}");
    let second = fixed_agent(&place.path("other"));
    fs::remove_file(place.path("into/content")).expect("it was cast");
    let reported = cast(&place, 1 << 18, &["--agent", &place.path("other")]);
    second.join().expect("no fault");
    let said = text(&reported.stdout);
    assert!(said.contains("the agent of this node limited the cast for "), "{said}");
    assert!(said.contains(": mean 8 Mb/s, minimum 8 Mb/s\n"), "{said}");
}

#[test]
fn cast__a_missing_agent_stops_nothing_and_one_sentence_says_so() {
    let place = AgentTestPlace::new("missing");
    let reported = cast(&place, 1 << 16, &["--agent", &place.path("none")]);
    let said = text(&reported.stderr);
    assert!(reported.status.success(), "{said}");
    assert!(said.contains("/none does not answer (No such file or directory"), "{said}");
    assert!(said.contains("; nothing is limited until it does\n"), "{said}");
    assert!(!text(&reported.stdout).contains("limited the cast"));
}

/// An agent of the program, killed when dropped, with what it says.
struct RunningAgent {
    process: Child,
    probes: String,
    metrics: String,
}

impl RunningAgent {
    fn start(socket: &Path, peers: Option<&str>) -> Self {
        let mut command = Command::new(PROGRAM);
        command.args(["agent", "--listen", "127.0.0.1:0", "--link", "1Gb/s", "--metrics", "0"]);
        command.arg("--socket").arg(socket);
        if let Some(peers) = peers {
            command.args(["--peers", peers]);
        }
        let mut process = command.stderr(Stdio::piped()).spawn().expect("the program");
        let mut lines = BufReader::new(process.stderr.take().expect("a pipe")).lines();
        let mut line = || lines.next().expect("a line").expect("text");
        let first = line();
        let probes = first.strip_prefix("clearway: probes at ").and_then(|it| it.split(';').next());
        let probes = probes.unwrap_or_else(|| panic!("{first}")).to_owned();
        if peers.is_none() {
            assert!(line().contains("without a peer nothing is measured"));
        }
        let metrics = address(&line()).expect("where metrics are");
        Self { process, probes, metrics }
    }

    fn scrape(&self) -> Scraped {
        Scraped::from_address(&self.metrics).expect("it serves")
    }

    /// Scrapes until a figure has reached a value.
    fn reaches(&self, name: &str, least: f64) {
        wait_until(name, || self.scrape().get(name) >= least);
    }

    fn end(&mut self) -> Option<i32> {
        let process = Pid::from_raw(self.process.id() as i32);
        kill(process, Signal::SIGTERM).expect("it runs");
        self.process.wait().expect("it ends").code()
    }
}

impl Drop for RunningAgent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn agent__peers_answer_each_other_and_strangers_get_no_more_than_they_send() {
    let place = AgentTestPlace::new("peers");
    let peer = RunningAgent::start(&place.0.join("peer"), None);
    let mut agent = RunningAgent::start(&place.0.join("agent"), Some(&peer.probes));
    agent.reaches("agent_peers{state=\"answering\"}", 1.0);
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let say = |bytes: &[u8]| {
        stranger.send_to(bytes, &agent.probes).expect("sent");
    };
    let probe = ProbePacket::Probe { nonce: 99 }.encode();
    for wrong in [&probe[..15], &[&probe[..], &[0]].concat(), &[0; 16], &[0; 1400], b""] {
        say(wrong);
    }
    say(&ProbePacket::Answer { nonce: 99 }.encode());
    say(&probe);
    let mut bytes = [0; 100];
    let (length, _) = stranger.recv_from(&mut bytes).expect("an answer");
    assert_eq!(length, PROBE_BYTES);
    let answer = ProbePacket::decode(&bytes[..length]);
    assert_eq!(answer, Ok(ProbePacket::Answer { nonce: 99 }), "nothing else was answered");
    agent.reaches("agent_refusals_total{kind=\"malformed\"}", 5.0);
    agent.reaches("agent_refusals_total{kind=\"unsolicited\"}", 1.0);
    let quantile = "agent_round_trip_seconds{quantile=\"0.99\"}";
    wait_until(quantile, || agent.scrape().has(quantile));
    let scraped = agent.scrape();
    scraped.is_documented("agent_");
    scraped.is_accepted();
    assert_eq!(scraped.get("agent_allowed_ratio"), 0.01, "it begins slowly");
    assert_eq!(agent.end(), Some(0));
    assert!(!place.0.join("agent").exists());
    // Its place is free again.
    let again = RunningAgent::start(&place.0.join("agent"), Some(&peer.probes));
    again.reaches("agent_peers{state=\"answering\"}", 1.0);
}

#[test]
fn agent__what_cannot_be_is_refused_in_one_sentence() {
    let place = AgentTestPlace::new("refused");
    let peer = RunningAgent::start(&place.0.join("peer"), None);
    let refused = |words: &[&str], expected: &str| {
        let other = place.path("other");
        let usual = ["agent", "--listen", "127.0.0.1:0", "--link", "1Gb/s", "--socket", &other];
        let output = clearway(&[&usual[..], words].concat());
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(expected), "{words:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(!Path::new(&other).exists());
    };
    refused(&["--peers", "no-such-host.invalid"], "--peers no-such-host.invalid: no such host");
    refused(&["--peers", "127.0.0.1:x"], "no port from 1 to 65535 behind the colon");
    let site = place.write("site.toml", "[[rule]]\nprogram = \"agent\"\nclass = \"bulk\"\n");
    refused(&["--policy", &site], "gets bulk: rule 1 of");
    let site = place.write("empty.toml", "");
    refused(&["--policy", &site], "add a rule with program = \"agent\"");
    refused(&["--policy", &place.path("none")], "cannot be read");
    let again = |words: &[&str], expected: &str| {
        let output = clearway(&[&["agent", "--link", "1Gb/s"], words].concat());
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(expected), "{said}");
    };
    let (used, socket) = (peer.probes.clone(), place.path("peer"));
    let free = place.path("free");
    again(&["--listen", &used, "--socket", &free], "probes cannot be received at 127.0.0.1:");
    again(&["--listen", "127.0.0.1:0", "--socket", &socket], "another agent listens at ");
    again(&["--listen", "127.0.0.1:0", "--socket", "/proc/x"], "cannot be made");
    assert!(Path::new(&socket).exists(), "that of a living agent stays");
}
