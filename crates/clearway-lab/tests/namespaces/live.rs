//! What a lab does while a process holds it.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clearway_lab::{
    CheckOutcome, Lab, LabError, LabSpec, QueueKind, SelfTest, Tier, Topology, permission,
};
use clearway_proto::base::{BitsPerSec, Bytes, Class, Rank};
use nix::sys::socket::{setsockopt, sockopt};

use crate::Case;
use crate::traffic::{PORT, RATE, exchange, marked, own, socket, star, up};

pub(crate) const CASES: [Case; 17] = [
    (
        "up__every_pair_of_every_topology_exchanges_packets",
        up__every_pair_of_every_topology_exchanges_packets,
    ),
    (
        "up__a_link_crosses_only_the_ports_of_its_path",
        up__a_link_crosses_only_the_ports_of_its_path,
    ),
    ("up__an_impossible_specification_is_refused", up__an_impossible_specification_is_refused),
    (
        "up__two_labs_side_by_side_do_not_hear_each_other",
        up__two_labs_side_by_side_do_not_hear_each_other,
    ),
    ("drop__namespaces_are_given_back", drop__namespaces_are_given_back),
    ("drop__inhabitants_end_with_their_lab", drop__inhabitants_end_with_their_lab),
    ("spawn__a_child_lives_on_its_host", spawn__a_child_lives_on_its_host),
    ("port_counters__tell_classes_apart", port_counters__tell_classes_apart),
    ("offloads__every_packet_is_real", offloads__every_packet_is_real),
    (
        "offload__packets_pass_whole_until_the_queues_are_replaced",
        offload__packets_pass_whole_until_the_queues_are_replaced,
    ),
    (
        "offloads__a_batched_send_fills_a_queue_packet_by_packet",
        offloads__a_batched_send_fills_a_queue_packet_by_packet,
    ),
    ("rearm__each_kind_passes_its_self_test", rearm__each_kind_passes_its_self_test),
    (
        "self_test__every_port_of_every_topology_passes",
        self_test__every_port_of_every_topology_passes,
    ),
    (
        "self_test__a_wrong_port_is_the_one_that_is_named",
        self_test__a_wrong_port_is_the_one_that_is_named,
    ),
    ("strict__low_latency_overtakes_a_full_queue", strict__low_latency_overtakes_a_full_queue),
    (
        "multicast__reaches_every_host_of_two_switches",
        multicast__reaches_every_host_of_two_switches,
    ),
    (
        "multicast_only_to__keeps_it_from_the_links_of_other_hosts",
        multicast_only_to__keeps_it_from_the_links_of_other_hosts,
    ),
];

fn topologies() -> [Topology; 3] {
    let slow = BitsPerSec::mega(50);
    [
        star(4),
        Topology::TwoSwitch { hosts: 4, rate: RATE, trunk: slow },
        Topology::LeafSpine { leaves: 2, hosts_per_leaf: 2, spines: 2, rate: RATE, uplink: slow },
    ]
}

fn up__every_pair_of_every_topology_exchanges_packets() {
    for topology in topologies() {
        let lab = up("pairs", topology);
        for (a, b) in (0..4).flat_map(|a| (0..4).map(move |b| (a, b))).filter(|(a, b)| a != b) {
            exchange(&lab, a, b, b"hello");
        }
    }
}

fn up__a_link_crosses_only_the_ports_of_its_path() {
    let lab = up("path", Topology::TwoSwitch { hosts: 4, rate: RATE, trunk: RATE });
    assert_eq!(lab.path(Rank(0), Rank(1)).unwrap().tier, Tier::SameSwitch);
    // h1 has never sent: a bridge that did not know it would flood this to every port.
    let (from, to) = (marked(&lab, 0, Class::Bulk), socket(&lab, 1));
    from.send_to(b"near", (lab.hosts()[1].address, PORT)).unwrap();
    to.recv(&mut [0; 8]).unwrap();
    let mut crossed: Vec<String> = lab
        .port_counters()
        .unwrap()
        .into_iter()
        .filter(|c| c.packets > 0)
        .map(|c| c.port)
        .collect();
    crossed.sort();
    assert_eq!(crossed, ["h0:eth0", "s0:p1"], "and nobody asked for an address");
}

fn up__an_impossible_specification_is_refused() {
    let refused = Lab::up(&"none".parse().unwrap(), &LabSpec::new(star(0)));
    assert!(matches!(refused, Err(LabError::Impossible(_))));
}

fn up__two_labs_side_by_side_do_not_hear_each_other() {
    let (a, b) = (up("side-a", star(2)), up("side-b", star(2)));
    exchange(&a, 0, 1, b"a");
    exchange(&b, 0, 1, b"b");
    let packets = |lab: &Lab| lab.port_counters().unwrap().iter().map(|c| c.packets).sum::<u64>();
    let before = packets(&b);
    exchange(&a, 1, 0, b"again");
    assert_eq!(packets(&b), before);
    drop(a);
    exchange(&b, 1, 0, b"still here");
}

fn drop__namespaces_are_given_back() {
    // Inside an own user namespace the limit is ours to set: labs in a row fit only if each gives
    // back what it took.
    let limit = "/proc/sys/user/max_net_namespaces";
    let own = permission::probe().road == Some(permission::Permission::Direct)
        && std::fs::read_to_string("/proc/self/uid_map")
            .is_ok_and(|map| map.split_whitespace().last() == Some("1"));
    if !own {
        eprintln!(
            "skipped: the limit of namespaces belongs to the whole machine when root makes them"
        );
        return;
    }
    let before = std::fs::read_to_string(limit).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut in_time = 0;
    while in_time < 3 && Instant::now() < deadline {
        std::fs::write(limit, "12").unwrap();
        // Nine of twelve. The kernel frees in the background: full is no failure, but each attempt
        // makes it more work.
        in_time += u32::from(Lab::up(&"row".parse().unwrap(), &LabSpec::new(star(8))).is_ok());
        std::fs::write(limit, &before).unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(in_time, 3, "namespaces were not given back");
}

fn drop__inhabitants_end_with_their_lab() {
    let lab = up("inhabitants", star(2));
    let mut sleeper = Command::new("sleep");
    sleeper.arg("600");
    let mut sleeper = lab.spawn(Rank(1), sleeper).unwrap();
    let mut outsider =
        Command::new("sleep").arg("600").env("CLEARWAY_LAB", "inhabitants").spawn().unwrap();
    drop(lab);
    assert_eq!(sleeper.wait().unwrap().signal(), Some(9));
    assert!(outsider.try_wait().unwrap().is_none(), "a mark alone is not enough");
    outsider.kill().unwrap();
    outsider.wait().unwrap();
}

fn spawn__a_child_lives_on_its_host() {
    let lab = up("children", star(3));
    for host in lab.hosts() {
        let mut command = own(&["--as-echo"]);
        command.stdout(Stdio::piped());
        let mut child = lab.spawn(host.rank, command).unwrap();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        let from = marked(&lab, (host.rank.0 + 1) % 3, Class::BestEffort);
        from.send_to(b"who", (host.address, PORT)).unwrap();
        let mut answer = [0; 64];
        let length = from.recv(&mut answer).unwrap();
        assert_eq!(
            std::str::from_utf8(&answer[..length]).unwrap(),
            format!("children/{}", host.name)
        );
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(lab.spawn(Rank(3), own(&["--as-echo"])).is_err());
}

fn port_counters__tell_classes_apart() {
    let lab = up("counters", star(2));
    let to = socket(&lab, 1);
    for (n, class) in Class::ALL.into_iter().enumerate() {
        let from = marked(&lab, 0, class);
        for _ in 0..=n {
            from.send_to(&[0; 100], (lab.hosts()[1].address, PORT)).unwrap();
            to.recv(&mut [0; 128]).unwrap();
        }
    }
    for port in ["h0:eth0", "s0:p1"] {
        let all = lab.port_counters().unwrap();
        let seen: Vec<_> =
            all.iter().filter(|c| c.port == port).map(|c| (c.class, c.packets, c.bytes)).collect();
        let expected: Vec<_> =
            Class::ALL.iter().zip(1..).map(|(class, n)| (Some(*class), n, n * 142)).collect();
        assert_eq!(seen, expected, "{port}");
    }
}

fn offloads__every_packet_is_real() {
    let lab = up("offloads", star(2));
    let all = lab.offloads().unwrap();
    assert_eq!(all.len(), 4);
    assert!(lab.refused_settings().is_empty());
    assert!(all.iter().all(|o| (o.gso_segments, o.gso_bytes) == (Some(1), Some(1500))), "{all:?}");
}

fn offload__packets_pass_whole_until_the_queues_are_replaced() {
    let mut lab = up("offload", star(2));
    let sentence = lab.offload(8).unwrap_err().to_string();
    assert_eq!(
        sentence,
        "strict queues count packets, and would count 8 frames as one: use fifo queues"
    );
    lab.rearm(QueueKind::Fifo).unwrap();
    assert!(lab.offload(44).unwrap_err().to_string().contains("1 to 43 work"));
    lab.offload(8).unwrap();
    assert!(
        lab.offloads()
            .unwrap()
            .iter()
            .all(|o| (o.gso_segments, o.gso_bytes) == (Some(8), Some(12_000)))
    );
    let packets = |lab: &Lab| lab.port_counters().unwrap().iter().map(|c| c.packets).max().unwrap();
    let bytes = |lab: &Lab| lab.port_counters().unwrap().iter().map(|c| c.bytes).max().unwrap();
    let sender = marked(&lab, 0, Class::BestEffort);
    setsockopt(&sender, sockopt::UdpGsoSegment, &1000).unwrap();
    let receiver = socket(&lab, 1);
    setsockopt(&receiver, sockopt::UdpGroSegment, &true).unwrap();
    sender.send_to(&[7; 8_000], (lab.hosts()[1].address, PORT)).unwrap();
    let mut whole = [0; 65_536];
    assert_eq!(receiver.recv(&mut whole).unwrap(), 8_000, "eight messages came as one packet");
    assert!(packets(&lab) >= 8 && bytes(&lab) >= 8_000, "counted as frames");
    lab.rearm(QueueKind::Fifo).unwrap();
    sender.send_to(&[7; 8_000], (lab.hosts()[1].address, PORT)).unwrap();
    assert_eq!(receiver.recv(&mut whole).unwrap(), 1_000, "each by itself again");
}

fn offloads__a_batched_send_fills_a_queue_packet_by_packet() {
    let lab = up("batched", star(2));
    let sender = marked(&lab, 0, Class::BestEffort);
    setsockopt(&sender, sockopt::UdpGsoSegment, &1000).unwrap();
    // 30 sends of 10 segments each into a queue of 100: one that counted sends would hold them all.
    let begun = Instant::now();
    for _ in 0..30 {
        sender.send_to(&[0; 10_000], (lab.hosts()[1].address, PORT)).unwrap();
    }
    let most = 100 + left_meanwhile(begun, 1_000);
    if most >= 300 {
        eprintln!("skipped: this machine is too busy to fill a queue before it is empty");
        return;
    }
    let queue = || {
        lab.port_counters()
            .unwrap()
            .into_iter()
            .find(|c| c.class == Some(Class::BestEffort))
            .unwrap()
    };
    while queue().backlog_packets > 0 {
        std::thread::yield_now();
    }
    let passed = queue().packets;
    assert!(
        (100..=most).contains(&passed),
        "{passed} of 300 packets passed a queue of 100, at most {most}"
    );
}

/// How many packets of this many bytes can have left a port since `begun`, the one in service and
/// those of its burst included.
fn left_meanwhile(begun: Instant, bytes: u64) -> u64 {
    /// Ethernet, IPv4 and UDP.
    const HEADERS: u64 = 14 + 20 + 8;
    /// Two packets of full length wait for no token, and one is in service.
    const AHEAD: u64 = 2 * 1514;
    let frame = Bytes(bytes + HEADERS);
    begun.elapsed().as_nanos() as u64 / RATE.time_for(frame).0 + AHEAD.div_ceil(frame.0) + 1
}

fn assert_proven(test: &SelfTest, what: &str) {
    let wrong: Vec<_> =
        test.ports.iter().filter(|port| port.outcome != CheckOutcome::Pass).collect();
    // Noise may leave a port undecided; a port that is wrong without noise is a defect.
    assert!(test.failed().next().is_none(), "{what}: {wrong:#?}");
    if !wrong.is_empty() {
        eprintln!("undecided for noise: {what}: {wrong:?}");
    }
    eprintln!("  {what}: {} ports, {} rounds, {}", test.ports.len(), rounds(test), test.took);
}

fn rounds(test: &SelfTest) -> u32 {
    test.ports.iter().map(|port| port.rounds).sum()
}

fn rearm__each_kind_passes_its_self_test() {
    let mut lab = up("rearm", star(2));
    for queue in QueueKind::ALL {
        lab.rearm(queue).unwrap();
        assert_eq!(lab.port_counters().unwrap().iter().map(|c| c.packets).sum::<u64>(), 0);
        exchange(&lab, 0, 1, b"after");
        assert_proven(&lab.self_test().unwrap(), queue.name());
    }
}

fn self_test__every_port_of_every_topology_passes() {
    for topology in topologies() {
        let lab = up("proof", topology);
        let test = lab.self_test().unwrap();
        assert_eq!(test.ports.len(), lab.offloads().unwrap().len());
        assert_proven(&test, &format!("{topology:?}"));
    }
}

fn self_test__a_wrong_port_is_the_one_that_is_named() {
    let lab = up("wrong", star(3));
    let changed = |host: u32, words: &str| {
        let mut tc = Command::new("tc");
        tc.args(words.split(' '));
        lab.spawn(Rank(host), tc)
            .map(|mut child| assert!(child.wait().unwrap().success(), "tc {words}"))
    };
    if let Err(reason) =
        changed(0, "qdisc change dev eth0 root handle 1: tbf rate 80mbit burst 3028 limit 1")
    {
        eprintln!("skipped: no other program to change a queue with: tc: {reason}");
        return;
    }
    changed(1, "qdisc replace dev eth0 parent 10:3 pfifo limit 70").unwrap();
    changed(2, "filter del dev eth0 parent 10:").unwrap();
    let test = lab.self_test().unwrap();
    let checks = |wanted: fn(CheckOutcome) -> bool| -> Vec<(&str, &str)> {
        let all = test
            .ports
            .iter()
            .flat_map(|port| port.checks.iter().map(|check| (port.port.as_str(), check)));
        all.filter(|(_, check)| wanted(check.outcome))
            .map(|(port, check)| (port, check.name))
            .collect()
    };
    let wrong = [("h0:eth0", "rate"), ("h1:eth0", "depth"), ("h2:eth0", "order")];
    let (failed, passed) =
        (checks(|o| o == CheckOutcome::Fail), checks(|o| o == CheckOutcome::Pass));
    // On a machine too busy to tell, a wrong port may be undecided, but it never passes, and a
    // right one never fails.
    assert!(failed.iter().all(|check| wrong.contains(check)), "{failed:?}");
    assert!(wrong.iter().all(|check| !passed.contains(check)), "{test:#?}");
}

fn strict__low_latency_overtakes_a_full_queue() {
    let lab = up("overtake", star(2));
    let to = socket(&lab, 1);
    let target = (lab.hosts()[1].address, PORT);
    let (bulk, urgent) = (marked(&lab, 0, Class::Bulk), marked(&lab, 0, Class::LowLatency));
    let begun = Instant::now();
    for _ in 0..80 {
        bulk.send_to(&[0; 1400], target).unwrap();
    }
    urgent.send_to(&[1], target).unwrap();
    // Two ports are on the way.
    let most = 2 * left_meanwhile(begun, 1_400) as usize;
    if most >= 80 {
        eprintln!("skipped: this machine is too busy to fill a queue before it is empty");
        return;
    }
    let mut packet = [0; 1500];
    let position = (0..81).position(|_| to.recv(&mut packet).unwrap() == 1).unwrap();
    assert!(
        position <= most,
        "the urgent packet came as number {position} of 81, at most {most} can have left before"
    );
}

fn multicast__reaches_every_host_of_two_switches() {
    let lab = up("multicast", Topology::TwoSwitch { hosts: 4, rate: RATE, trunk: RATE });
    let group = "239.77.0.1".parse().unwrap();
    let members: Vec<_> = (1..4)
        .map(|host| {
            let member = socket(&lab, host);
            member.join_multicast_v4(&group, &lab.hosts()[host as usize].address).unwrap();
            member
        })
        .collect();
    marked(&lab, 0, Class::Bulk).send_to(b"all", (group, PORT)).unwrap();
    for member in members {
        assert_eq!(member.recv(&mut [0; 8]).unwrap(), 3);
    }
}

fn multicast_only_to__keeps_it_from_the_links_of_other_hosts() {
    let lab = up("multicast-only", Topology::Star { hosts: 3, rate: RATE });
    lab.multicast_only_to(&[Rank(0), Rank(1)]).unwrap();
    let group = "239.77.0.1".parse().unwrap();
    let [member, other] = [1, 2].map(|host| {
        let socket = socket(&lab, host);
        socket.join_multicast_v4(&group, &lab.hosts()[host as usize].address).unwrap();
        socket
    });
    let sender = marked(&lab, 0, Class::Bulk);
    sender.send_to(b"all", (group, PORT)).unwrap();
    sender.send_to(b"alone", (lab.hosts()[2].address, PORT)).unwrap();
    assert_eq!(member.recv(&mut [0; 8]).unwrap(), 3);
    // Packets of one sender in one class keep their order: the first would have come before.
    assert_eq!(other.recv(&mut [0; 8]).unwrap(), 5);
}
