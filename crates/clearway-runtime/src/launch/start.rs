//! Starts the ranks of a job over ssh, for machines without a launcher, and ends all of them with
//! the first that fails.
//!
//! # Model
//! One ssh for each rank, those of a host over one connection (`host_start`), and a hub in this
//! process where the ranks meet. This process takes part as the last rank of the job, so that the
//! ranks of the hosts have the numbers that the list of hosts gives them. Each ssh's standard input carries one line, the rank's secret and the job's,
//! and stays open: when this process ends, however it ends, the ranks read its end and end too. ssh
//! has no other way in, so on the host a shell moves it to another descriptor before it becomes the
//! program, whose own standard input is empty. What ssh says before its rank has joined is kept and
//! stands in the error; what comes later is printed.
//!
//! # Invariants
//! I1. No more than `WINDOW` ranks and connections of one host are between ssh and their first word:
//!     a server drops connections when more are waiting to be let in (`MaxStartups` of OpenSSH, 10
//!     by default).
//! I2. When the [`Job`] is dropped, finished or aborted no ssh of it is left.
//! I3. A signal of the terminal reaches this process only, which ends the others in order.
//!
//! # Not here
//! The rank's side (`ssh`). The ranks after their start (`started_ranks`). The process of one rank,
//! its secret, and why it ended (`remote`).

use std::ffi::{OsStr, OsString};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::ControlFlow;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::host_start::{HostSharing, NextStart, RankGroup};
use super::hostfile::HostEntry;
use super::job::{Job, JobLink};
use super::remote::{RemoteProcess, quoted, ssh_command};
use super::rendezvous::hub::Hub;
use super::rendezvous::hub_server::HubServer;
use super::rendezvous::member::{JoinClaim, MemberLink};
use super::ssh::{MEET, PLACES_MAX, RANK, SECRET_FD, SIZE};
use super::ssh_connection::{OpeningConnection, SshConnection};
use super::started_job::StartedJob;
use super::started_ranks::{FAREWELL, LOOK_EVERY, LaunchSecrets, PlacedRank, StartedRanks};
use super::{JobEndAction, JoinMethod, JoinedJob, LaunchError, RANKS_MAX, hostlist, slurm};

/// Ranks of one host that may be on their way at once.
const WINDOW: usize = 8;

/// How often to check for an open connection, which takes about 10 ms on a local network.
const CONNECTION_POLL: Duration = Duration::from_millis(2);

/// The script of a shell on the host, which then becomes the program: it moves the secret to
/// descriptor 3 and empties standard input. It is POSIX's shell and not the user's, which may be
/// one that has no such descriptors.
const MOVE_SECRET: &str = "exec 3<&0 </dev/null; exec \"$0\" \"$@\"";

/// How [`start_over_ssh`] starts ranks.
#[derive(Clone, Debug)]
pub struct SshOptions {
    /// The program that takes a host and a command line. One that is called `ssh` also gets options
    /// in front of them.
    pub ssh: OsString,
    /// Arguments for it, in front of the host.
    pub ssh_arguments: Vec<OsString>,
    /// Where the ranks find this process, best first, at most 15. They try where their ssh
    /// connection came from, then these, and last the name of this host.
    pub addresses: Vec<IpAddr>,
    /// Variables of the ranks, each as `NAME=VALUE`.
    pub variables: Vec<String>,
    /// Where the ranks begin; without it, in the home directory.
    pub directory: Option<PathBuf>,
    /// The longest wait for all ranks to join, and for the last rank to come to an exchange.
    pub timeout: Duration,
}

impl Default for SshOptions {
    /// Returns the usual options: plain `ssh` and one minute.
    fn default() -> Self {
        Self {
            ssh: OsString::from("ssh"),
            ssh_arguments: Vec::new(),
            addresses: Vec::new(),
            variables: Vec::new(),
            directory: None,
            timeout: Duration::from_secs(60),
        }
    }
}

/// Starts `program` with `arguments` as ranks of one job, as many on each of `hosts` as it has
/// slots, and returns when all have joined. This process is the last rank of that job. The ranks'
/// output is that of this process. `watch` is called some twenty times a second and may end the
/// start.
///
/// # Errors
/// A host cannot be reached or has no such program, a rank ends before it has joined, they are not
/// complete within the timeout, or `watch` wants an end; nothing is left running then.
pub fn start_over_ssh(
    hosts: &[HostEntry],
    program: &str,
    arguments: &[String],
    options: &SshOptions,
    watch: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<Job, LaunchError> {
    let places = places(hosts)?;
    let own = u32::try_from(places.len()).expect("the number of ranks was checked");
    let size = own + 1;
    let secrets = LaunchSecrets::draw(size)?;
    let order = StartOrder { places: &places, program, arguments, options };
    let (started, port) = order.start(size, &secrets, watch)?;
    let claim = JoinClaim { rank: own, size, host: slurm::host_name(), key: secrets.key(own) };
    let near = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    // The end of the job reaches this process as an error of what it does next.
    let member = MemberLink::join(&claim, &[near], options.timeout, Box::new(|_, _| {}))?;
    let (secret, link) = (Some(secrets.job_key()), Box::new(CoordinatorLink { member, started }));
    let joined = JoinedJob { method: JoinMethod::Ssh, rank: own, size, secret, link };
    Ok(Job::new(joined, Vec::new(), None, JobEndAction::Exit))
}

/// Starts `program` with `arguments` as [`start_over_ssh`] does, without taking part: the job has
/// the ranks of `hosts` and no other. Returns when all have joined; [`StartedJob::wait`] follows
/// them to their end.
///
/// # Errors
/// As [`start_over_ssh`].
pub fn start_apart_over_ssh(
    hosts: &[HostEntry],
    program: &str,
    arguments: &[String],
    options: &SshOptions,
    watch: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<StartedJob, LaunchError> {
    let places = places(hosts)?;
    let size = u32::try_from(places.len()).expect("the number of ranks was checked");
    let secrets = LaunchSecrets::draw(size)?;
    let order = StartOrder { places: &places, program, arguments, options };
    let (started, _) = order.start(size, &secrets, watch)?;
    Ok(StartedJob::new(started))
}

/// What is started on which hosts.
struct StartOrder<'a> {
    /// The host of each rank.
    places: &'a [&'a str],
    program: &'a str,
    arguments: &'a [String],
    options: &'a SshOptions,
}

impl StartOrder<'_> {
    /// Starts the ranks of a job of `size`, and returns them and the port of their hub when all
    /// have joined.
    fn start(
        &self,
        size: u32,
        secrets: &LaunchSecrets,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<(StartedRanks, u16), LaunchError> {
        let Self { places, program, arguments, options } = *self;
        let listener =
            slurm::listen(0).map_err(LaunchError::system("open a TCP port for the ranks"))?;
        let hub = Hub::new(size, secrets.keys(), options.timeout);
        let hub_server = HubServer::open(listener, hub)?;
        let port = hub_server.address().port();
        let meet = meeting_places(&options.addresses, &slurm::host_name(), port);
        let mut started = StartedRanks::new(hub_server, program.to_owned());
        let until = Instant::now() + options.timeout;
        let sharing = if is_ssh(&options.ssh) { HostSharing::Shared } else { HostSharing::Own };
        let mut groups = RankGroup::form(places, sharing);
        let given = |rank| {
            let line = command_line(rank, size, &meet, program, arguments, options);
            (line, secrets.given_to(rank))
        };
        while !started.is_complete(places.len()) {
            self.start_possible(&mut groups, &mut started, &given)?;
            if watch().is_break() {
                return Err(LaunchError::Stopped);
            }
            let pause =
                if groups.iter().any(RankGroup::is_opening) { CONNECTION_POLL } else { LOOK_EVERY };
            started.watch_start(pause, until, options.timeout)?;
        }
        // All commands have begun.
        started.connections.iter().for_each(SshConnection::seal);
        Ok((started, port))
    }

    /// Starts what may be started now, of each host as much as it lets in.
    fn start_possible(
        &self,
        groups: &mut [RankGroup<'_>],
        started: &mut StartedRanks,
        given: &dyn Fn(u32) -> (String, Vec<u8>),
    ) -> Result<(), LaunchError> {
        let mut waiting = started.waiting();
        for group in &mut *groups {
            group.take_connection(&mut started.connections, self.options.timeout / 4);
            *waiting.entry(group.host.to_owned()).or_default() += usize::from(group.is_opening());
        }
        for group in groups {
            let waiting = waiting.entry(group.host.to_owned()).or_default();
            while *waiting < WINDOW && self.start_next(group, started, given)? {
                *waiting += 1;
            }
        }
        Ok(())
    }

    /// Starts the master of `group` or its next rank, with the line and the secrets that `given`
    /// returns; returns whether there was something to start.
    fn start_next(
        &self,
        group: &mut RankGroup<'_>,
        started: &mut StartedRanks,
        given: &dyn Fn(u32) -> (String, Vec<u8>),
    ) -> Result<bool, LaunchError> {
        let options = self.options;
        // Reaching a host may take half of the timeout, so that ssh, which knows more, reports one that
        // does not answer. With a master, each of the two attempts has a quarter.
        let quarter = options.timeout / 4;
        match group.next() {
            NextStart::Nothing => return Ok(false),
            NextStart::Master => {
                let ssh = reaching_command(&options.ssh, quarter);
                let opening = OpeningConnection::begin(ssh, &options.ssh_arguments, group.host);
                group.note_opening(opening.map_err(unreached(options))?);
            }
            NextStart::Rank(rank) => {
                let connecting = if group.has_lost_master() { quarter } else { quarter * 2 };
                let mut ssh = reaching_command(&options.ssh, connecting);
                if let Some(connection) = group.connection(&started.connections) {
                    connection.carry(&mut ssh);
                }
                let (line, secrets) = given(rank);
                ssh.args(&options.ssh_arguments).args([group.host, &line]).process_group(0);
                let process = RemoteProcess::start(&mut ssh, group.host, &secrets);
                let process = process.map_err(unreached(options))?;
                let host = group.host.to_owned();
                started.ranks.push(PlacedRank { rank, host, process, has_joined: false });
                group.note_start();
            }
        }
        Ok(true)
    }
}

/// The link of the process that started the others.
#[derive(Debug)]
struct CoordinatorLink {
    member: MemberLink,
    started: StartedRanks,
}

impl CoordinatorLink {
    /// Returns the error with the exit status of the rank that was its reason, where there is one.
    fn explain<T>(&mut self, result: Result<T, LaunchError>) -> Result<T, LaunchError> {
        match result {
            Err(error @ LaunchError::Ended { .. }) => {
                Err(self.started.end_of_job(FAREWELL).unwrap_or(error))
            }
            other => other,
        }
    }
}

impl JobLink for CoordinatorLink {
    fn exchange(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, LaunchError> {
        let all = self.member.exchange(own);
        self.explain(all)
    }

    fn barrier(&mut self) -> Result<(), LaunchError> {
        let passed = self.member.barrier();
        self.explain(passed)
    }

    fn go_on_without_lost(&mut self) -> bool {
        self.started.needs_all = false;
        self.started.hub_server.go_on_without_lost();
        true
    }

    fn finish(mut self: Box<Self>) -> Result<(), LaunchError> {
        let left = self.member.leave();
        self.explain(left)?;
        self.started.wait()
    }

    fn abort(&mut self, code: i32, sentence: &str) {
        self.member.send_abort(code, sentence);
        self.started.end();
    }
}

/// Returns the host of each rank.
fn places(hosts: &[HostEntry]) -> Result<Vec<&str>, LaunchError> {
    let refused = |what| LaunchError::HostList { list: "the hosts to start on".to_owned(), what };
    let ranks: u64 = hosts.iter().map(|host| u64::from(host.slots)).sum();
    if !(1..=u64::from(RANKS_MAX)).contains(&ranks) {
        return Err(refused(format!("{ranks} ranks cannot be started")));
    }
    // A name that begins like an option would be one.
    hosts.iter().try_for_each(|host| hostlist::check_name(&host.name)).map_err(refused)?;
    Ok(hosts.iter().flat_map(|host| (0..host.slots).map(|_| host.name.as_str())).collect())
}

/// Returns where ranks look for the hub at `port`, as [`MEET`] has it.
fn meeting_places(addresses: &[IpAddr], name: &str, port: u16) -> String {
    let addresses = addresses.iter().take(PLACES_MAX - 1);
    let places = addresses.map(|address| SocketAddr::new(*address, port).to_string());
    places.chain([format!("{name}:{port}")]).collect::<Vec<_>>().join(",")
}

/// Returns the command that reaches a host: only ssh itself knows the options of ssh.
fn reaching_command(program: &OsStr, connecting: Duration) -> Command {
    match is_ssh(program) {
        true => ssh_command(program, connecting),
        false => Command::new(program),
    }
}

fn is_ssh(program: &OsStr) -> bool {
    Path::new(program).file_name().is_some_and(|name| name == "ssh")
}

/// Returns what the shell of the host is given.
fn command_line(
    rank: u32,
    size: u32,
    meet: &str,
    program: &str,
    arguments: &[String],
    options: &SshOptions,
) -> String {
    let mut line = String::new();
    if let Some(directory) = &options.directory {
        line.push_str(&format!("cd {} && ", quoted(&directory.to_string_lossy())));
    }
    line.push_str(&format!(
        "exec env {RANK}={rank} {SIZE}={size} {MEET}={} {SECRET_FD}=3 ",
        quoted(meet)
    ));
    for variable in &options.variables {
        line.push_str(&format!("{} ", quoted(variable)));
    }
    line.push_str(&format!("/bin/sh -c {} {}", quoted(MOVE_SECRET), quoted(program)));
    for argument in arguments {
        line.push(' ');
        line.push_str(&quoted(argument));
    }
    line
}

/// Returns what makes the error of a program that cannot be started.
fn unreached(options: &SshOptions) -> impl FnOnce(io::Error) -> LaunchError + use<> {
    let program = options.ssh.to_string_lossy();
    LaunchError::system(format!("start {program}, which reaches the hosts"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, slots: u32) -> HostEntry {
        HostEntry { name: name.to_owned(), slots }
    }

    #[test]
    fn places__ranks_fill_one_host_after_the_other() {
        assert_eq!(places(&[entry("a", 2), entry("b", 1)]).unwrap(), ["a", "a", "b"]);
        assert!(places(&[]).is_err());
        assert!(places(&[entry("a", u32::MAX), entry("b", u32::MAX)]).is_err());
        assert!(places(&[entry("-oProxyCommand=x", 1)]).is_err());
    }

    #[test]
    fn command_line__a_shell_reads_back_every_word() {
        let options = SshOptions {
            directory: Some(PathBuf::from("/my dir")),
            variables: vec!["SHMEM_WIRE=udp ofi".to_owned()],
            ..SshOptions::default()
        };
        let line = command_line(
            3,
            8,
            "login:4000",
            "/opt/it's",
            &["a b".to_owned(), "$x".to_owned()],
            &options,
        );
        let expected = "cd '/my dir' && exec env CLEARWAY_RANK=3 CLEARWAY_SIZE=8 CLEARWAY_MEET='login:4000' \
                        CLEARWAY_SECRET_FD=3 'SHMEM_WIRE=udp ofi' /bin/sh -c 'exec 3<&0 </dev/null; exec \"$0\" \"$@\"' '/opt/it'\\''s' 'a b' '$x'";
        assert_eq!(line, expected);
    }

    #[test]
    fn meeting_places__addresses_stand_before_the_name() {
        let addresses = ["10.77.0.1", "fe80::1"].map(|text| text.parse().unwrap());
        let places = meeting_places(&addresses, "login", 4000);
        assert_eq!(places, "10.77.0.1:4000,[fe80::1]:4000,login:4000");
        let many = vec![addresses[0]; 40];
        assert_eq!(meeting_places(&many, "login", 1).split(',').count(), PLACES_MAX);
    }

    #[test]
    fn reaching_command__only_ssh_gets_options() {
        let options = |program| {
            reaching_command(OsStr::new(program), Duration::from_secs(9)).get_args().count()
        };
        assert_eq!([options("./agent"), options("sshpass")], [0, 0]);
        assert!(options("ssh") > 0 && options("/usr/bin/ssh") == options("ssh"));
    }

    fn refusal(ssh: &str, watch: ControlFlow<()>) -> String {
        let options = SshOptions { ssh: OsString::from(ssh), ..SshOptions::default() };
        start_over_ssh(&[entry("n7", 1)], "true", &[], &options, &mut || watch)
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn start_over_ssh__a_rank_that_ends_at_once_is_named() {
        let sentence = refusal("false", ControlFlow::Continue(()));
        assert!(sentence.starts_with("rank 0 on n7 ended with exit status: 1"), "{sentence}");
    }

    #[test]
    fn start_over_ssh__a_missing_ssh_is_one_sentence() {
        let sentence = refusal("/nowhere/ssh", ControlFlow::Continue(()));
        assert!(sentence.contains("start /nowhere/ssh"), "{sentence}");
    }

    #[test]
    fn start_over_ssh__who_watches_can_end_it() {
        assert_eq!(refusal("cat", ControlFlow::Break(())), LaunchError::Stopped.to_string());
    }
}
