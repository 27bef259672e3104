//! The shared-memory wire between real processes: the contract's suite, SIGKILL at any instant,
//! more ranks than processors, and the border of a virtual host.
//!
//! Each test starts this program again for the other ranks; what they do stands in the functions
//! named `play_`.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use clearway_proto::base::{Bytes, Class, GroupId, LocalNs, Nanos, Rank};
use clearway_proto::wire::conformance::{self, Fabric, Need};
use clearway_proto::wire::{
    AdoptedMemory, Arrival, Capabilities, Counters, Datagram, Destination, MemoryAccess, Operation,
    OperationKind, Out, PathId, PostOutcome, RefusalReason, RegionId, Span, Stamp, Status, Token,
    Wire,
};
use clearway_runtime::shm::{ShmConfig, ShmWire};
use clearway_runtime::waiting::{Waitable, Waiting};

/// Says what this program plays when it was started by a test: role, session, rank, ranks.
const PART: &str = "CLEARWAY_TEST_PART";
/// Longest wait for what is expected, on a machine that does much else.
const TIMEOUT: Nanos = Nanos::from_secs(60);

static SESSIONS: AtomicU64 = AtomicU64::new(0);

fn session() -> u64 {
    u64::from(std::process::id()) << 32 | SESSIONS.fetch_add(1, Ordering::Relaxed)
}

fn open(session: u64, rank: u32, ranks: u32, waiting: Waiting) -> ShmWire {
    let mut config = ShmConfig::new(Rank(rank), session, (0..ranks).map(Rank).collect());
    config.waiting = waiting;
    config.timeout = TIMEOUT;
    ShmWire::open(config).expect("an open wire")
}

/// Starts this program again to play `role`.
fn start(program: &mut Command, role: &str, session: u64, rank: u32, ranks: u32) -> Child {
    let own = env::current_exe().expect("the path of this program");
    program.arg(own).args([
        "--exact",
        "shm_processes::part__played_for_another_test",
        "--nocapture",
    ]);
    program.env(PART, format!("{role} {session} {rank} {ranks}"));
    program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("this program again")
}

/// A command that runs what follows it as it is.
fn plain() -> Command {
    Command::new("env")
}

#[test]
fn part__played_for_another_test() {
    let Ok(part) = env::var(PART) else { return };
    let words: Vec<&str> = part.split(' ').collect();
    let number = |at: usize| words[at].parse::<u64>().expect("a number");
    let (session, rank, ranks) = (number(1), number(2) as u32, number(3) as u32);
    match words[0] {
        "remote" => play_remote(session, rank, ranks),
        "flood" => play_flood(session, rank, ranks),
        "token" => play_token(open(session, rank, ranks, Waiting::Adaptive), ranks),
        "apart" => print_line(&open_apart(session, rank)),
        other => panic!("no part {other}"),
    }
}

fn send(
    wire: &mut ShmWire,
    to: u32,
    class: Class,
    head: &[u8],
    body: Span,
    token: Option<Token>,
) -> PostOutcome {
    let mut out: Out<()> = Out::with_limit(1);
    let head = out.head(head);
    let to = Destination::One(Rank(to));
    let mut answers = Vec::new();
    wire.post(
        &[Operation::Send { to, path: PathId(0), class, head, body, token }],
        out.heads(),
        &mut answers,
    );
    answers[0]
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal");
    (0..text.len() / 2).map(|i| digits(2 * i)).collect()
}

/// Holds a wire for the suite in the other process: does what lines ask, and answers each with one
/// line.
fn play_remote(session: u64, rank: u32, ranks: u32) {
    let mut wire = open(session, rank, ranks, Waiting::Sleep);
    let region = |text: &str| RegionId(text.parse().expect("a region"));
    for line in std::io::stdin().lines() {
        let line = line.expect("the test's lines");
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match words[0] {
            "register" => wire
                .register(Bytes(words[1].parse().expect("a length")))
                .expect("room")
                .0
                .to_string(),
            "fill" => {
                wire.region_mut(region(words[1]))
                    .expect("registered")
                    .copy_from_slice(&from_hex(words[2]));
                String::new()
            }
            "show" => to_hex(wire.region(region(words[1])).expect("registered")),
            "join" => {
                wire.join(GroupId(words[1].parse().expect("a group"))).expect("joined");
                String::new()
            }
            "leave" => {
                let left = wire.leave(GroupId(words[1].parse().expect("a group")));
                left.map_or_else(|missing| missing.to_string(), |()| "left".to_owned())
            }
            "poll" => poll_as_text(&mut wire),
            other => panic!("no command {other}"),
        };
        print_line(&answer);
    }
}

fn poll_as_text(wire: &mut ShmWire) -> String {
    let mut text = Vec::new();
    wire.poll(64, &mut |arrival| {
        text.push(match arrival {
            Arrival::Datagram(d) => {
                let class = d.class.expect("a class");
                let at = d.at.instant().0;
                format!(
                    "m,{},{class},{},{},{},{}",
                    d.from,
                    at,
                    to_hex(d.head),
                    d.body.offset,
                    d.body.length
                )
            }
            Arrival::Landed { from, into, immediate, at } => {
                format!(
                    "l,{from},{},{},{},{immediate},{}",
                    into.region.0,
                    into.offset,
                    into.length,
                    at.instant().0
                )
            }
            other => panic!("{other:?} at a rank that asked for nothing"),
        });
    });
    text.push(to_hex(wire.region(RegionId::RECEIVE).expect("an arena")));
    text.join(";")
}

/// The wire of another process, as the suite sees it here.
struct RemoteWire {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
    rank: Rank,
    capabilities: Capabilities,
    regions: Vec<Vec<u8>>,
    changed: bool,
    receive: Vec<u8>,
}

impl RemoteWire {
    fn request(&mut self, line: &str) -> String {
        writeln!(self.child.stdin.as_mut().expect("a pipe"), "{line}")
            .expect("the other process lives");
        answer_of(&mut self.lines)
    }

    /// Brings regions that were filled here to the other process.
    fn flush(&mut self) {
        if std::mem::take(&mut self.changed) {
            for i in 0..self.regions.len() {
                self.request(&format!("fill {i} {}", to_hex(&self.regions[i])));
            }
        }
    }

    fn refresh(&mut self) {
        for i in 0..self.regions.len() {
            self.regions[i] = from_hex(&self.request(&format!("show {i}")));
        }
    }
}

impl Drop for RemoteWire {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Says a line to the test that started this process.
fn print_line(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "> {line}").and_then(|()| out.flush()).expect("the test listens");
}

/// The next line that a part says; the test harness's own lines lie between them.
fn answer_of(lines: &mut impl BufRead) -> String {
    let mut line = String::new();
    loop {
        line.clear();
        assert!(lines.read_line(&mut line).expect("a line") > 0, "the other process ended");
        if let Some(answer) = line.split_once("> ").map(|(_, answer)| answer) {
            return answer.trim().to_string();
        }
        if line.trim_end() == ">" {
            return String::new();
        }
    }
}

impl Wire for RemoteWire {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn now(&self) -> LocalNs {
        clearway_runtime::clock::now()
    }

    fn register(&mut self, length: Bytes) -> Result<RegionId, RefusalReason> {
        let id = self.request(&format!("register {}", length.0));
        self.regions.push(vec![0; length.0 as usize]);
        Ok(RegionId(id.parse().expect("a region")))
    }

    fn region(&self, region: RegionId) -> Option<&[u8]> {
        let registered = self.regions.get(usize::from(region.0)).map(Vec::as_slice);
        if region == RegionId::RECEIVE { Some(&self.receive) } else { registered }
    }

    fn region_mut(&mut self, region: RegionId) -> Option<&mut [u8]> {
        self.changed = true;
        self.regions.get_mut(usize::from(region.0)).map(Vec::as_mut_slice)
    }

    fn join(&mut self, group: GroupId) -> Result<(), RefusalReason> {
        self.request(&format!("join {}", group.0));
        Ok(())
    }

    fn leave(&mut self, group: GroupId) -> Result<(), RefusalReason> {
        let answer = self.request(&format!("leave {}", group.0));
        if answer == "left" { Ok(()) } else { Err(RefusalReason::Group) }
    }

    fn post(&mut self, _: &[Operation], _: &[u8], _: &mut Vec<PostOutcome>) {
        panic!("the suite posts from rank 0 only");
    }

    fn poll(&mut self, _: usize, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        let text = self.request("poll");
        let mut parts: Vec<&str> = text.split(';').collect();
        self.receive = from_hex(parts.pop().unwrap_or_default());
        for part in &parts {
            let words: Vec<&str> = part.split(',').collect();
            let number = |at: usize| words[at].parse::<u64>().expect("a number");
            let from = Rank(number(1) as u32);
            if words[0] == "m" {
                let class = Some(words[2].parse().expect("a class"));
                let body =
                    Span { region: RegionId::RECEIVE, offset: number(5), length: number(6) as u32 };
                let (path, at, head) = (PathId(0), LocalNs(number(3)), from_hex(words[4]));
                let congestion_marked = false;
                sink(Arrival::Datagram(Datagram {
                    from,
                    path,
                    class,
                    congestion_marked,
                    at: Stamp::Taken(at),
                    head: &head,
                    body,
                }));
            } else {
                let region = RegionId(number(2) as u16);
                let into = Span { region, offset: number(3), length: number(4) as u32 };
                sink(Arrival::Landed {
                    from,
                    into,
                    immediate: number(5),
                    at: Stamp::Taken(LocalNs(number(6))),
                });
            }
        }
        parts.len()
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}

/// Rank 0 here, the others in processes of their own.
struct ShmProcesses {
    here: ShmWire,
    there: Vec<RemoteWire>,
}

impl ShmProcesses {
    fn new() -> Self {
        let session = session();
        let ranks = conformance::RANKS;
        let mut children: Vec<Child> =
            (1..ranks).map(|rank| start(&mut plain(), "remote", session, rank, ranks)).collect();
        let here = open(session, 0, ranks, Waiting::Sleep);
        let there = (1..).zip(children.drain(..)).map(|(rank, mut child)| RemoteWire {
            lines: BufReader::new(child.stdout.take().expect("a pipe")),
            child,
            rank: Rank(rank),
            capabilities: here.capabilities().clone(),
            regions: Vec::new(),
            changed: false,
            receive: Vec::new(),
        });
        Self { there: there.collect(), here }
    }
}

impl Fabric for ShmProcesses {
    fn wire(&mut self, rank: Rank) -> &mut dyn Wire {
        self.there.iter_mut().for_each(RemoteWire::flush);
        match rank.index().checked_sub(1) {
            None => &mut self.here,
            Some(other) => {
                self.there[other].refresh();
                &mut self.there[other]
            }
        }
    }

    fn foreign(&mut self, _: usize, _: MemoryAccess) -> Option<AdoptedMemory> {
        None
    }

    /// Memory has no latency.
    fn pass_time(&mut self) {}
}

#[test]
fn conformance__between_processes_the_contract_is_kept() {
    // Memory cannot be handed to an end in another process.
    let lacks = [Need::Adoption, Need::AnyLocal, Need::Operation(OperationKind::File)];
    let outcomes = conformance::check("shared memory between processes", &lacks, ShmProcesses::new);
    eprint!("{}", outcomes.expect("every promise is kept"));
}

/// Bytes of the `n`-th body of a flood.
fn body_of(n: u64) -> Vec<u8> {
    (0..n * 37 % 4_000).map(|i| (n + i) as u8).collect()
}

/// Sends numbered messages of all lengths for ever, and reads only when it must wait.
fn play_flood(session: u64, rank: u32, ranks: u32) {
    let mut wire = open(session, rank, ranks, Waiting::Adaptive);
    let region = wire.register(Bytes(4_000)).expect("room");
    for n in 0.. {
        let body = body_of(n);
        wire.region_mut(region).expect("registered")[..body.len()].copy_from_slice(&body);
        let span = Span { region, offset: 0, length: body.len() as u32 };
        while send(&mut wire, 0, Class::Bulk, &n.to_le_bytes(), span, None) != PostOutcome::Done(0)
        {
            wire.wait(None, &[]);
            wire.poll(1, &mut |_| {});
        }
    }
}

/// Fills a ring of rank 1 that is read slowly or not at all: when it ends, somebody waits for room.
fn fill(wire: &mut ShmWire) {
    while send(wire, 1, Class::Scavenger, b"fills", Span::EMPTY, None) == PostOutcome::Done(0) {}
}

/// What rank 0 saw of a peer until it learned of its end.
#[derive(Default)]
struct PeerObservation {
    messages: u64,
    alone: bool,
    room: bool,
    flushed: bool,
}

impl PeerObservation {
    /// Polls once; every message must be the next one and whole.
    fn look(&mut self, wire: &mut ShmWire) {
        let mut bodies = Vec::new();
        wire.poll(64, &mut |arrival| match arrival {
            Arrival::Datagram(d) => bodies.push((d.head.to_vec(), d.body)),
            Arrival::Room { .. } => self.room = true,
            Arrival::Done { status, .. } => self.flushed |= status == Status::Flushed,
            Arrival::PathState { rate, .. } => self.alone = rate.is_none(),
            other => panic!("{other:?}"),
        });
        let arena = wire.region(RegionId::RECEIVE).expect("an arena");
        for (head, body) in bodies {
            assert_eq!(head, self.messages.to_le_bytes(), "the next message");
            assert!(
                arena[body.range_in(arena.len()).expect("inside")] == body_of(self.messages),
                "{}",
                self.messages
            );
            self.messages += 1;
        }
        if self.room && !self.alone {
            self.room = false;
            fill(wire);
        }
    }

    fn look_until(&mut self, wire: &mut ShmWire, what: &str, done: impl Fn(&Self) -> bool) {
        let until = wire.now() + TIMEOUT;
        while !done(self) {
            assert!(wire.now() < until, "{what} never came after {} messages", self.messages);
            wire.wait(Some(until), &[]);
            self.look(wire);
        }
    }
}

#[test]
fn kill__at_any_instant_messages_stay_whole_and_the_end_is_reported() {
    for round in 0..12u64 {
        let session = session();
        let mut child = start(&mut plain(), "flood", session, 1, 2);
        let mut wire =
            open(session, 0, 2, if round % 2 == 0 { Waiting::Sleep } else { Waiting::Adaptive });
        let mut seen = PeerObservation::default();
        fill(&mut wire);
        seen.look_until(&mut wire, "a message", |seen| seen.messages > 150 * round);
        child.kill().expect("SIGKILL");
        seen.look_until(&mut wire, "the end", |seen| seen.alone && seen.room);
        let answer = send(&mut wire, 1, Class::Scavenger, b"anyone?", Span::EMPTY, Some(Token(9)));
        assert_eq!(answer, PostOutcome::Posted);
        seen.look_until(&mut wire, "the answer", |seen| seen.flushed);
        assert_eq!(wire.dead_peers().collect::<Vec<_>>(), [Rank(1)]);
        assert_eq!(wire.counters().strangers, 0, "a killed process is not a bad one");
        child.wait().expect("ended");
    }
}

/// Rounds that a token makes.
const TOKEN_ROUNDS: u64 = 200;

/// Passes a token on in a circle; every rank counts.
fn play_token(mut wire: ShmWire, ranks: u32) {
    let me = wire.rank().0;
    let (mut next, until) = (0, wire.now() + TIMEOUT);
    let pass = |wire: &mut ShmWire, n: u64| {
        let sent =
            send(wire, (me + 1) % ranks, Class::LowLatency, &n.to_le_bytes(), Span::EMPTY, None);
        assert_eq!(sent, PostOutcome::Done(0));
    };
    if me == 0 {
        pass(&mut wire, 0);
    }
    while next < TOKEN_ROUNDS {
        let mut tokens = Vec::new();
        wire.wait(Some(until), &[]);
        assert!(wire.now() < until, "rank {me} never got token {next}");
        wire.poll(64, &mut |arrival| {
            if let Arrival::Datagram(d) = arrival {
                tokens.push(u64::from_le_bytes(d.head.try_into().expect("eight bytes")));
            }
        });
        for token in tokens {
            assert_eq!(token, next);
            next += 1;
            if me > 0 {
                pass(&mut wire, token);
            } else if next < TOKEN_ROUNDS {
                pass(&mut wire, next);
            }
        }
    }
}

#[test]
fn oversubscribed__many_more_ranks_than_processors_still_get_on() {
    const RANKS: u32 = 12;
    let session = session();
    let children: Vec<Child> =
        (1..RANKS).map(|rank| start(&mut plain(), "token", session, rank, RANKS)).collect();
    play_token(open(session, 0, RANKS, Waiting::Adaptive), RANKS);
    for child in children {
        let output = child.wait_with_output().expect("ended");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

/// Tries to meet another rank, but not for long; what came of it.
fn open_apart(session: u64, rank: u32) -> String {
    let mut config = ShmConfig::new(Rank(rank), session, vec![Rank(0), Rank(1)]);
    config.timeout = Nanos::from_millis(500);
    ShmWire::open(config).map_or_else(|error| error.to_string(), |_| "met".into())
}

#[test]
fn border__ranks_in_two_network_namespaces_never_meet() {
    if !Command::new("unshare").args(["-rn", "true"]).status().is_ok_and(|status| status.success())
    {
        eprintln!(
            "skipped: border__ranks_in_two_network_namespaces_never_meet: this system allows no network namespace"
        );
        return;
    }
    let session = session();
    let child = start(Command::new("unshare").arg("-rn"), "apart", session, 1, 2);
    let here = open_apart(session, 0);
    let output = child.wait_with_output().expect("ended");
    let there = answer_of(&mut output.stdout.as_slice());
    for (sentence, missing) in [(here, 1), (there, 0)] {
        let begin = format!(
            "rank {missing} and 0 others did not come to this host's shared memory within 500 ms"
        );
        assert!(sentence.starts_with(&begin), "{sentence}");
    }
}
