//! Starts the ranks of a job over ssh, for machines without a launcher, and ends all of them with the first that fails.
//!
//! # Model
//! One ssh for each rank, and a hub in this process where the ranks meet. Each rank's standard input carries one line, its
//! secret and the job's, and stays open: when this process ends, however it ends, the ranks read its end and end too.
//!
//! # Invariants
//! I1. No more than `WINDOW` ranks of one host are between ssh and their first word: a server drops connections when more
//!     are waiting to be let in (`MaxStartups` of OpenSSH, 10 by default).
//! I2. When a [`Started`] is dropped no ssh of it is left.
//!
//! # Not here
//! The rank's side (`ssh`). A host's own settings, keys and passwords: ssh is asked not to ask, the rest is its
//! configuration.

use std::ffi::OsString;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clearway_proto::base::Rank;

use super::hostfile::HostEntry;
use super::rendezvous::LOST;
use super::rendezvous::frame::{self, Key};
use super::rendezvous::hall::{Event, Hall};
use super::rendezvous::hub::{End, Hub, Keys};
use super::ssh::{MEET, RANK, SECRET, SIZE, secret_line};
use super::{LaunchError, RANKS_MAX, hostlist, slurm};

/// Ranks of one host that may be on their way at once.
const WINDOW: usize = 8;

/// How often the children are looked at while nothing else happens.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How long ranks have to end by themselves when the job is over.
const FAREWELL: Duration = Duration::from_secs(3);

/// How [`start_over_ssh`] starts ranks.
#[derive(Clone, Debug)]
pub struct SshOptions {
    /// The program that takes a host and a command line, `ssh`.
    pub ssh: OsString,
    /// Arguments for it, in front of the host.
    pub ssh_arguments: Vec<OsString>,
    /// Where the ranks find this process. Without it they try where their ssh connection came from, then the name of this
    /// host.
    pub address: Option<IpAddr>,
    /// Where the ranks begin; without it, in the home directory.
    pub directory: Option<PathBuf>,
    /// The longest wait for all ranks to join, and for the last rank to come to an exchange.
    pub patience: Duration,
}

impl Default for SshOptions {
    /// Plain `ssh` and one minute.
    fn default() -> Self {
        Self {
            ssh: OsString::from("ssh"),
            ssh_arguments: Vec::new(),
            address: None,
            directory: None,
            patience: Duration::from_secs(60),
        }
    }
}

/// Ranks that have joined; ended when this is dropped.
#[derive(Debug)]
pub struct Started {
    hall: Hall,
    ranks: Vec<Remote>,
}

/// One rank and its ssh.
#[derive(Debug)]
struct Remote {
    rank: u32,
    host: String,
    /// Gone once it has ended and was seen to.
    child: Option<Child>,
    has_joined: bool,
}

impl Remote {
    /// How its ssh ended, the first time that it is asked after the end.
    fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        self.child = None;
        Some(status)
    }

    /// Forgets its ssh if that has ended.
    fn see_to_end(&mut self) {
        let _ = self.ended();
    }

    fn error(&self, what: String) -> LaunchError {
        LaunchError::Host { rank: Rank(self.rank), host: self.host.clone(), what }
    }
}

/// Starts `program` with `arguments` as the ranks of one job, as many on each of `hosts` as it has slots, and returns when
/// all have joined. Their output and errors are those of this process.
///
/// # Errors
/// A host cannot be reached, a rank ends before it has joined, or they are not complete within the patience; nothing is
/// left running then.
pub fn start_over_ssh(
    hosts: &[HostEntry],
    program: &str,
    arguments: &[String],
    options: &SshOptions,
) -> Result<Started, LaunchError> {
    let places = places(hosts)?;
    let secrets = places.iter().map(|_| frame::random()).collect::<Result<Vec<[u8; SECRET]>, _>>()?;
    let secret_of_job = frame::random()?;
    let size = u32::try_from(places.len()).expect("the number of ranks was checked");
    let keys = Keys::Each(secrets.iter().map(|secret| Key::new(secret)).collect());
    let listener = slurm::listen(0).map_err(LaunchError::system("open a TCP port for the ranks"))?;
    let hall = Hall::open(listener, Hub::new(size, keys, options.patience))?;
    let meet = match options.address {
        Some(address) => SocketAddr::new(address, hall.address().port()).to_string(),
        None => format!("{}:{}", slurm::host_name(), hall.address().port()),
    };
    let line = |rank| command_line(rank, size, &meet, program, arguments, options);
    let mut started = Started { hall, ranks: Vec::with_capacity(places.len()) };
    let until = Instant::now() + options.patience;
    while !started.is_complete(places.len()) {
        while let Some(host) = places.get(started.ranks.len()).filter(|host| started.waiting(host) < WINDOW) {
            let rank = started.ranks.len();
            let child = spawn(host, &line(rank), &secret_line(&secrets[rank], &secret_of_job), options)?;
            let rank = u32::try_from(rank).expect("the number of ranks was checked");
            started.ranks.push(Remote { rank, host: (*host).to_owned(), child: Some(child), has_joined: false });
        }
        started.watch_start(until, options.patience)?;
    }
    Ok(started)
}

/// The host of each rank.
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

/// What the shell of the host is given.
fn command_line(
    rank: usize,
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
    line.push_str(&format!("exec env {RANK}={rank} {SIZE}={size} {MEET}={} {}", quoted(meet), quoted(program)));
    for argument in arguments {
        line.push(' ');
        line.push_str(&quoted(argument));
    }
    line
}

/// `word` as a shell reads it back.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn spawn(host: &str, line: &str, secrets: &str, options: &SshOptions) -> Result<Child, LaunchError> {
    let program = options.ssh.to_string_lossy().into_owned();
    let mut child = Command::new(&options.ssh)
        .args(["-T", "-o", "BatchMode=yes", "-o"])
        .arg(format!("ConnectTimeout={}", options.patience.as_secs().max(1)))
        .args(["-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3"])
        .args(&options.ssh_arguments)
        .args([host, line])
        .stdin(Stdio::piped())
        .spawn()
        .map_err(LaunchError::system(format!("start {program}")))?;
    // A pipe that is closed already belongs to a child that ended, which is noticed where children are watched.
    let _ = child.stdin.as_mut().map(|pipe| pipe.write_all(secrets.as_bytes()));
    Ok(child)
}

impl Started {
    fn is_complete(&self, ranks: usize) -> bool {
        self.ranks.len() == ranks && self.ranks.iter().all(|one| one.has_joined)
    }

    /// Ranks of `host` that have not yet said their first word.
    fn waiting(&self, host: &str) -> usize {
        self.ranks.iter().filter(|one| !one.has_joined && one.host == host).count()
    }

    /// Takes in what happens next while ranks are being started.
    fn watch_start(&mut self, until: Instant, patience: Duration) -> Result<(), LaunchError> {
        match self.hall.next(LOOK_EVERY) {
            Some(Event::Joined(rank)) => {
                self.ranks.iter_mut().filter(|one| one.rank == rank).for_each(|one| one.has_joined = true);
            }
            Some(Event::Over(outcome)) => return outcome.map_err(ended),
            None => {}
        }
        for one in self.ranks.iter_mut().filter(|one| !one.has_joined) {
            if let Some(status) = one.ended() {
                let host = &one.host;
                return Err(one.error(format!("ended with {status} before it joined; does `ssh {host} true` work?")));
            }
        }
        let late = self.ranks.iter().find(|one| !one.has_joined && Instant::now() >= until);
        match late {
            Some(one) => Err(one.error(format!("did not join within {} s", patience.as_secs_f32()))),
            None => Ok(()),
        }
    }

    /// Waits until the ranks have left and their processes have ended.
    ///
    /// # Errors
    /// The first rank that failed, by name; the others are ended then.
    pub fn wait(mut self) -> Result<(), LaunchError> {
        let mut is_over = false;
        loop {
            if is_over {
                thread::sleep(LOOK_EVERY);
            } else if let Some(Event::Over(outcome)) = self.hall.next(LOOK_EVERY) {
                outcome.map_err(|end| self.name_the_end(end))?;
                is_over = true;
            }
            let failed = self.ranks.iter_mut().find_map(|one| {
                let status = one.ended().filter(|status| !status.success())?;
                Some(one.error(format!("ended with {status}")))
            });
            if let Some(error) = failed {
                // The hub may know better which one was first, and why.
                let known = self.hall.wait_over(FAREWELL).and_then(Result::err);
                return Err(known.map_or(error, ended));
            }
            if self.ranks.iter().all(|one| one.child.is_none()) {
                return Ok(());
            }
        }
    }

    /// The error for `end`, with the exit status of the rank that was its reason.
    fn name_the_end(&mut self, end: End) -> LaunchError {
        let until = Instant::now() + FAREWELL;
        let reason = self.ranks.iter_mut().find(|one| Some(one.rank) == end.rank);
        let Some(one) = reason else { return ended(end) };
        loop {
            match one.ended() {
                Some(status) => return one.error(format!("ended with {status} before the job did")),
                None if one.child.is_none() || Instant::now() >= until => return ended(end),
                None => thread::sleep(LOOK_EVERY),
            }
        }
    }
}

fn ended(end: End) -> LaunchError {
    LaunchError::Ended { code: end.code, sentence: end.sentence }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.hall.end(LOST, "the conductor of this job ended it".to_owned());
        for one in &mut self.ranks {
            // The end of its standard input ends the rank, and with it its ssh.
            drop(one.child.as_mut().and_then(|child| child.stdin.take()));
        }
        let until = Instant::now() + FAREWELL;
        while self.ranks.iter().any(|one| one.child.is_some()) && Instant::now() < until {
            self.ranks.iter_mut().for_each(|one| one.see_to_end());
            thread::sleep(LOOK_EVERY / 10);
        }
        for child in self.ranks.iter_mut().filter_map(|one| one.child.as_mut()) {
            // Both fail only when the child has ended meanwhile.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
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
        let options = SshOptions { directory: Some(PathBuf::from("/my dir")), ..SshOptions::default() };
        let line = command_line(3, 8, "login:4000", "/opt/it's", &["a b".to_owned(), "$x".to_owned()], &options);
        let expected = "cd '/my dir' && exec env CLEARWAY_RANK=3 CLEARWAY_SIZE=8 CLEARWAY_MEET='login:4000' \
                        '/opt/it'\\''s' 'a b' '$x'";
        assert_eq!(line, expected);
    }

    #[test]
    fn start_over_ssh__a_host_that_cannot_be_reached_is_named() {
        let options = SshOptions { ssh: OsString::from("false"), ..SshOptions::default() };
        let error = start_over_ssh(&[entry("n7", 1)], "true", &[], &options).unwrap_err();
        assert!(error.to_string().starts_with("rank 0 on n7 ended with exit status: 1"), "{error}");
    }

    #[test]
    fn start_over_ssh__a_missing_ssh_is_one_sentence() {
        let options = SshOptions { ssh: OsString::from("/nowhere/ssh"), ..SshOptions::default() };
        let error = start_over_ssh(&[entry("n7", 1)], "true", &[], &options).unwrap_err();
        assert!(error.to_string().contains("start /nowhere/ssh"), "{error}");
    }
}
