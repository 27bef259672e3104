//! Casts between network namespaces of one machine, as containers have them, joined by a bridge to
//! which others can listen.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use clearway_lab::{Lab, LabSpec, Topology, permission};
use clearway_proto::base::{BitsPerSec, Rank};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

use super::*;

/// Namespaces that are joined; else the reason is printed.
fn lab(name: &str, hosts: u32) -> Option<Lab> {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: a lab inside a test process needs root");
        return None;
    }
    let spec = LabSpec::new(Topology::Star { hosts, rate: BitsPerSec::mega(1_000) });
    let lab = permission::acquire().and_then(|_| Lab::up(&name.parse().expect("a name"), &spec));
    lab.inspect_err(|why| eprintln!("skipped: no lab: {why}")).ok()
}

/// One more receiver, on `host` of `lab`.
fn receive_on(ground: &mut Ground, lab: &Lab, host: u32) {
    let directory = ground.root.join(format!("on{host}"));
    let mut command = Command::new(PROGRAM);
    let listen = format!("10.77.0.{}:0", host + 1);
    Receiver::prepare(&mut command, &ground.root.join("key"), &directory, &listen);
    let child = lab.spawn(Rank(host), command).expect("a process in the lab");
    ground.receivers.push(Receiver::from_child(child, directory));
}

/// Somebody who reads everything that reaches a host.
struct Listening {
    over: Arc<AtomicBool>,
    thread: JoinHandle<[usize; 2]>,
}

impl Listening {
    fn start(lab: &Lab, host: u32, marker: &'static [u8]) -> Self {
        let open = || {
            socket(AddressFamily::Packet, SockType::Raw, SockFlag::empty(), SockProtocol::EthAll)
        };
        let raw: OwnedFd = lab.in_host(Rank(host), open).expect("a host").expect("a raw socket");
        setsockopt(&raw, sockopt::RcvBuf, &(64 << 20)).expect("room");
        setsockopt(&raw, sockopt::ReceiveTimeout, &TimeVal::new(0, 50_000)).expect("set");
        let over = Arc::new(AtomicBool::new(false));
        let ended = over.clone();
        let thread = std::thread::spawn(move || {
            let (mut bytes, mut marked, mut packet) = (0, 0, vec![0; 1 << 16]);
            loop {
                match recv(raw.as_raw_fd(), &mut packet, MsgFlags::empty()) {
                    Ok(length) => {
                        bytes += length;
                        marked += usize::from(
                            packet[..length].windows(marker.len()).any(|some| some == marker),
                        );
                    }
                    Err(_) if ended.load(Ordering::Relaxed) => return [bytes, marked],
                    Err(_) => {}
                }
            }
        });
        Self { over, thread }
    }

    /// Bytes that came, and packets with the marker.
    fn end(self) -> [usize; 2] {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().expect("no panic")
    }
}

#[test]
fn sealed__containers_of_one_machine_talk_sealed() {
    const MARKER: &[u8] = b"nobody else may read this";
    let Some(lab) = lab("cast-sealed", 2) else { return };
    let mut ground = Ground::new("sealed", 0);
    receive_on(&mut ground, &lab, 1);
    fs::write(ground.from("model"), MARKER.repeat(2 * MIB / MARKER.len())).expect("written");
    let listening = Listening::start(&lab, 1, MARKER);
    let cast = lab.spawn(Rank(0), ground.command(&["model"])).expect("a process in the lab");
    CastOutput::from_output(cast.wait_with_output().expect("it ends"))
        .expect(0, "1 of 1 have everything");
    assert_same(&ground.from("model"), &ground.at(0, "model"));
    let [bytes, marked] = listening.end();
    assert!(bytes > MIB, "{bytes} bytes were seen");
    assert_eq!(marked, 0, "packets of {bytes} bytes in all can be read");
}

/// Casts `model` from the first host of `lab`.
fn cast_in(lab: &Lab, ground: &Ground, arguments: &[&str]) -> CastOutput {
    let command = ground.command(&[&["model"], arguments].concat());
    let cast = lab.spawn(Rank(0), command).expect("a process in the lab");
    CastOutput::from_output(cast.wait_with_output().expect("it ends"))
}

#[test]
fn blame__is_on_the_receiver_that_is_slow_and_its_link_is_not_flooded() {
    let Some(mut lab) = lab("cast-blame", 4) else { return };
    let mut ground = Ground::new("blame", 0);
    (1..4).for_each(|host| receive_on(&mut ground, &lab, host));
    // A link so slow that turns of processes on a busy machine are short compared with its packets.
    const BYTES: usize = 3 * MIB / 2;
    for (slow, rate) in [(3, Some("100Mb/s")), (1, Some("100Mb/s")), (2, None), (3, None)] {
        lab.slow(Rank(slow), BitsPerSec::mega(8)).expect("a slow link");
        fs::write(ground.from("model"), noise(BYTES, slow.into())).expect("written");
        let rate: Vec<&str> = rate.iter().flat_map(|rate| ["--rate", *rate]).collect();
        let address = &ground.receivers[slow as usize - 1].address;
        cast_in(&lab, &ground, &rate)
            .expect(0, &format!("the others waited for {address} most of the time"));
        let ports = lab.port_counters().expect("the kernel counts");
        let dropped: u64 = ports.iter().map(|port| port.drops).sum();
        // Until the rate is found some hundred are lost; without a pace twenty times the file's
        // packets were.
        assert!(dropped < 1_000, "{dropped} packets dropped with {rate:?}");
        lab.slow(Rank(slow), BitsPerSec::mega(1_000)).expect("a usual link");
    }
}

#[test]
fn parked__a_receiver_below_the_floor_is_named_and_gets_the_rest_later() {
    let Some(mut lab) = lab("cast-parked", 4) else { return };
    let mut ground = Ground::new("parked", 0);
    (1..4).for_each(|host| receive_on(&mut ground, &lab, host));
    lab.slow(Rank(2), BitsPerSec::mega(4)).expect("a slow link");
    fs::write(ground.from("model"), noise(2 * MIB, 9)).expect("written");
    // A rate that is given says what most take, however busy this machine is.
    let reported = cast_in(&lab, &ground, &["--rate", "200Mb/s"]);
    reported.expect(0, "3 of 3 have everything");
    reported.expect(0, "it took less than a sixteenth of what most take, and got the rest");
    (0..3).for_each(|number| assert_same(&ground.from("model"), &ground.at(number, "model")));
    let address = &ground.receivers[1].address;
    let row = |address: &str| {
        let row = reported.text.lines().find(|line| line.starts_with(address)).expect("a row");
        let took = row.split_whitespace().rev().nth(1).expect("seconds");
        took.parse::<f64>().expect("a number")
    };
    let others = row(&ground.receivers[0].address).max(row(&ground.receivers[2].address));
    assert!(others < row(address), "the others did not wait:\n{}", reported.text);
}
