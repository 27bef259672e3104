//! Packets between hosts, for the tests: sockets that live in a host, marked sends, an echo
//! program.

use std::io::Write;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Command, ExitCode};
use std::time::Duration;

use clearway_lab::{Lab, LabSpec, Topology};
use clearway_proto::base::{BitsPerSec, Class, Rank};
use nix::sys::socket::{setsockopt, sockopt};

pub(crate) const PORT: u16 = 7000;
pub(crate) const RATE: BitsPerSec = BitsPerSec::mega(100);
/// Far more than any exchange takes; only a test that fails waits for it.
const TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) fn up(name: &str, topology: Topology) -> Lab {
    Lab::up(&name.parse().unwrap(), &LabSpec::new(topology)).unwrap()
}

pub(crate) fn star(hosts: u32) -> Topology {
    Topology::Star { hosts, rate: RATE }
}

/// A socket in a host, bound to `PORT`.
pub(crate) fn socket(lab: &Lab, host: u32) -> UdpSocket {
    bound(lab, host, PORT)
}

/// A socket in a host, bound to any port, that marks what it sends.
pub(crate) fn marked(lab: &Lab, host: u32, class: Class) -> UdpSocket {
    let socket = bound(lab, host, 0);
    setsockopt(&socket, sockopt::Ipv4Tos, &i32::from(class.dscp().tos())).unwrap();
    socket
}

fn bound(lab: &Lab, host: u32, port: u16) -> UdpSocket {
    let socket = lab
        .in_host(Rank(host), || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)))
        .unwrap()
        .unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket
}

/// Sends `word` from one host to another and back.
pub(crate) fn exchange(lab: &Lab, a: u32, b: u32, word: &[u8]) {
    let (from, to) = (marked(lab, a, Class::BestEffort), socket(lab, b));
    let mut heard = [0; 64];
    from.send_to(word, (lab.hosts()[b as usize].address, PORT)).unwrap();
    let (length, sender) = to.recv_from(&mut heard).unwrap();
    assert_eq!((&heard[..length], sender.ip()), (word, lab.hosts()[a as usize].address.into()));
    to.send_to(word, sender).unwrap();
    assert_eq!(from.recv(&mut heard).unwrap(), word.len());
}

/// This program, as one of its hidden roles.
pub(crate) fn own(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(arguments);
    command
}

/// Answers every packet with the name of the host it lives on, until it is killed.
pub(crate) fn as_echo() -> ExitCode {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap();
    let name = format!(
        "{}/{}",
        std::env::var(clearway_lab::LAB_VARIABLE).unwrap_or_default(),
        std::env::var(clearway_lab::HOST_VARIABLE).unwrap_or_default()
    );
    let mut out = std::io::stdout();
    writeln!(out, "listening").unwrap();
    let mut heard = [0; 64];
    while let Ok((_, sender)) = socket.recv_from(&mut heard) {
        let _ = socket.send_to(name.as_bytes(), sender);
    }
    ExitCode::FAILURE
}
