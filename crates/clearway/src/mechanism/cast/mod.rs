//! `clearway cast`: files, directories and streams to many hosts at once, each byte leaving once
//! where the network allows it.
//!
//! # Model
//! ```text
//! sender                                            receiver
//!   |-- manifest ------------------------------------->|  looks what is there
//!   |<------------------------- same, part, nothing ---|
//!   |-- hashes of blocks, of parts ------------------->|  reads and compares
//!   |<------------------------- blocks that it lacks --|
//!   |== blocks that somebody lacks, by broadcast =====>|  writes, reads back, hashes; renames what is whole
//!   |<------------------------- how it ended ----------|
//! ```
//! What stands at the arrows goes over a connection to each receiver, sealed (`link`); blocks go
//! through the engine of [`clearway_proto::broadcast`] over UDP (`membership`). `plan` and `record`
//! decide without touching a file; `source` and `feeder` read, `assembly` and `target` write;
//! `sender` and `receiver` run the two sides; `remote_receivers` and `serve` connect them.
//!
//! # Invariants
//! I1. A name that people use never stands for a file that is not whole and checked.
//! I2. What goes wrong at one receiver, or with one file, is reported at the end and stops no
//!     other.

mod assembly;
mod blame;
mod exclusion;
mod feeder;
mod inbox;
mod link;
mod membership;
mod message;
mod metrics;
mod naming;
mod outbox;
mod path;
mod peers;
mod plan;
mod preview;
mod progress;
mod rate_limit;
mod rate_share;
mod receiver;
mod receiver_list;
mod record;
mod remote_receivers;
mod removal;
mod sender;
mod serve;
mod source;
mod summary;
mod target;

use std::io::{BufRead, Write, stdin, stdout};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use clearway_proto::base::{BitsPerSec, Class};

use crate::agent::AgentFlags;
use crate::policy::PolicyFlags;
use crate::report::FigureFormat;
use crate::report::model::Figure;
use crate::run::exit::{Exit, UsageError, exit_of};
use crate::run::interrupt::{Interrupt, Interrupted};
use crate::run::job;
use crate::run::job::{ConnectedRank, CoordinatedJob, JobRole, JobSpec};
use crate::run::metrics::{MetricsAddress, MetricsListener};
use crate::run::print;
use clearway_wires::hexadecimal::bytes_of;
use membership::ROOT;
use message::{CastTask, HashPolicy, RemovalTask, TargetAccess};
use metrics::{CastMetrics, ReceiverFigures};
use path::{PathText, RelativePath};
use peers::{Connector, ExpectedReceiver, ReceiverConnection};
use progress::{ProgressLine, ProgressMode};
use receiver::Destination;
use receiver_list::{ContactMode, NamedReceiver};
use sender::CastOptions;
use source::{CastSource, StreamSource};
use summary::CastSummary;

pub(crate) use exclusion::ExcludePattern;
pub(crate) use receiver::RemovalRight;
pub(crate) use serve::{PORT, serve};

/// Keeps figures and warnings of a cast in a report.
pub(crate) type KeepFigures = Box<dyn Fn(Vec<Figure>, Vec<String>) -> Result<()>>;

/// What `clearway cast` is asked for.
pub(crate) struct CastRequest {
    /// What to cast; `-` is standard input.
    pub(crate) paths: Vec<PathBuf>,
    /// To whom; nobody named is for ranks of a job.
    pub(crate) to: Vec<String>,
    /// The directory at each receiver, where none is named with it.
    pub(crate) into: Option<String>,
    /// The key of receivers that listen.
    pub(crate) key: Option<PathBuf>,
    /// Their port.
    pub(crate) port: u16,
    /// The program at hosts where ssh starts it.
    pub(crate) remote_program: Option<PathBuf>,
    /// The name of a stream, where it is not [`STREAM`].
    pub(crate) name: Option<String>,
    /// A line for the shell whose output is cast.
    pub(crate) program: Option<String>,
    /// The length that a stream must have.
    pub(crate) expected: Option<u64>,
    /// What is not cast.
    pub(crate) exclude: Vec<ExcludePattern>,
    /// Compare contents, not times.
    pub(crate) checksum: bool,
    /// Remove at receivers what the source does not have.
    pub(crate) delete: bool,
    /// Say what receivers lack, and cast nothing.
    pub(crate) dry_run: bool,
    /// The most that one host sends.
    pub(crate) rate: Option<BitsPerSec>,
    pub(crate) progress: bool,
    /// Where figures are served while it lasts.
    pub(crate) metrics: Option<MetricsAddress>,
    pub(crate) format: FigureFormat,
    /// Keeps the figures of the cast, and what was not as it should be.
    pub(crate) keep: Option<KeepFigures>,
    /// The policy that grants a class to what is cast.
    pub(crate) policy: PolicyFlags,
    /// The agent of the node.
    pub(crate) agent: AgentFlags,
}

/// The name of a stream that is given none.
const STREAM: &str = "stream";

/// What the policy of a site calls casts.
const MECHANISM: &str = "cast";

/// Bytes of a secret that is made for one cast.
const SECRET: usize = 32;

/// Casts what `request` says.
///
/// # Errors
/// One sentence: what cannot be read, or who cannot be reached; what goes wrong at a receiver
/// stands in the summary.
pub(crate) fn cast(request: &CastRequest) -> Result<Exit> {
    if request.to.is_empty() {
        return across_job(request);
    }
    let contact = match &request.key {
        Some(_) => ContactMode::Listening,
        None => ContactMode::Ssh,
    };
    let usage = |error: anyhow::Error| UsageError::from_error(&error);
    let hosts = receiver_list::read(&request.to, contact).map_err(usage)?;
    receiver_list::check_directories(&hosts, request.into.as_deref()).map_err(usage)?;
    let listener = MetricsListener::bind(request.metrics)?;
    let source = source(request)?;
    let directory = |host: &NamedReceiver| host.into.clone().or_else(|| request.into.clone());
    let is_unnamed = hosts.iter().any(|host| is_home(directory(host).as_deref()));
    if is_unnamed && contact == ContactMode::Ssh {
        refuse_removal(request, &source)?;
    }
    let interrupt = Interrupt::listen()?;
    let (secret, contacts) = match &request.key {
        Some(key) => {
            (crate::run::key_file::key(key)?, remote_receivers::listening(hosts, request.port))
        }
        None => {
            let secret = sender::random::<SECRET>()?.to_vec();
            let program = match &request.remote_program {
                Some(program) => program.clone(),
                None => std::env::current_exe().context("the path of this program")?,
            };
            let program =
                program.to_str().context("the path of this program is no text")?.to_owned();
            let contacts = remote_receivers::over_ssh(hosts, &program, &secret);
            (secret, contacts)
        }
    };
    served(request, listener, order(request, source, contacts, secret), interrupt)
}

/// Casts, and serves its figures meanwhile.
fn served(
    request: &CastRequest,
    listener: Option<MetricsListener>,
    options: CastOptions,
    interrupt: Interrupt,
) -> Result<Exit> {
    let metrics = Arc::new(options.metrics.clone());
    let _served = MetricsListener::announce(listener, "cast", metrics)?;
    report(request, sender::send(options, interrupt))
}

/// Returns what `request` casts.
///
/// # Errors
/// One sentence: options that exclude each other, or what cannot be read.
fn source(request: &CastRequest) -> Result<CastSource> {
    let refuse = |sentence: &str| Err(UsageError::new(sentence).into());
    if request.is_stream() {
        if !request.exclude.is_empty() {
            return refuse("--exclude is for files and directories; a stream has no names in it");
        }
        if request.delete {
            return refuse("--delete is for directories; a stream has no names in it");
        }
        if request.dry_run {
            return refuse(
                "--dry-run is for files and directories; a stream can be read only once",
            );
        }
        let stream = StreamSource { program: request.program.clone(), bytes: request.expected };
        return CastSource::stream(request.name.as_deref().unwrap_or(STREAM), stream)
            .map_err(|error| UsageError::from_error(&error).into());
    }
    if request.program.is_some() {
        return refuse("--exec casts what a program prints, and nothing else");
    }
    if request.paths.iter().any(|path| path.as_os_str() == "-") {
        return refuse("standard input (-) is cast alone");
    }
    if request.expected.is_some() {
        return refuse("--expect-bytes is for what comes on standard input, or from --exec");
    }
    if request.name.is_some() {
        return refuse(
            "--name is for what comes on standard input, or from --exec; files and directories keep their names",
        );
    }
    exclusion::check_size(request.exclude.iter().map(ExcludePattern::text))
        .map_err(UsageError::new)?;
    let source = CastSource::survey(&request.paths, request.exclude.clone())?;
    if request.delete && source.removal().is_none() {
        return refuse("--delete removes below directories that are cast, and none is cast");
    }
    Ok(source)
}

/// Returns whether a directory at a receiver is the one where its process begins.
fn is_home(into: Option<&str>) -> bool {
    let mut names = into.unwrap_or_default().split('/');
    let is_absolute = into.is_some_and(|into| into.starts_with('/'));
    !is_absolute && names.all(|name| matches!(name, "" | "."))
}

/// Refuses to remove what is in a directory that nobody has named.
fn refuse_removal(request: &CastRequest, source: &CastSource) -> Result<()> {
    let is_whole = |task: RemovalTask| task.below.contains(&RelativePath::default());
    if request.delete && source.removal().is_some_and(is_whole) {
        let sentence = "--delete would remove what else is in the home or working directory; name a directory with --into";
        return Err(UsageError::new(sentence).into());
    }
    Ok(())
}

impl CastRequest {
    /// Creates a request to cast files and directories to hosts, with all else as by default.
    pub(crate) fn new(paths: Vec<PathBuf>, to: Vec<String>) -> Self {
        Self {
            paths,
            to,
            into: None,
            key: None,
            port: PORT,
            remote_program: None,
            name: None,
            program: None,
            expected: None,
            exclude: Vec::new(),
            checksum: false,
            delete: false,
            dry_run: false,
            rate: None,
            progress: false,
            metrics: None,
            format: FigureFormat::default(),
            keep: None,
            policy: PolicyFlags::default(),
            agent: AgentFlags::default(),
        }
    }

    /// Returns whether it casts what can be read only once.
    fn is_stream(&self) -> bool {
        match &self.paths[..] {
            [] => self.program.is_some(),
            [path] => path.as_os_str() == "-" && self.program.is_none(),
            _ => false,
        }
    }
}

fn order(
    request: &CastRequest,
    source: CastSource,
    contacts: Vec<ExpectedReceiver>,
    secret: Vec<u8>,
) -> CastOptions {
    let into = request.into.as_ref().map(|into| PathText(into.clone().into_bytes()));
    let check = if request.checksum { HashPolicy::Contents } else { HashPolicy::Times };
    let removal = source.removal().filter(|_| request.delete);
    let access = if request.dry_run { TargetAccess::Look } else { TargetAccess::Change };
    let display = ProgressLine::new(if request.progress {
        ProgressMode::Shown
    } else {
        ProgressMode::Silent
    });
    let grant = request.policy.ask((MECHANISM, None), Class::Bulk);
    let ceiling = grant.as_ref().and_then(|grant| grant.ceiling);
    let is_scavenger = grant.as_ref().is_some_and(|grant| grant.granted == Class::Scavenger);
    let agent = if is_scavenger { request.agent.in_force() } else { request.agent.named() };
    CastOptions {
        source,
        contacts,
        task: CastTask { number: 0, into, check, access, removal },
        secret,
        rate: request.rate.into_iter().chain(ceiling).min(),
        grant,
        agent,
        display,
        metrics: CastMetrics::default(),
    }
}

fn report(request: &CastRequest, summary: Result<CastSummary>) -> Result<Exit> {
    let summary = match summary {
        Err(error) if error.is::<Interrupted>() => {
            let then = match request.is_stream() {
                true => "a stream is cast anew, from its beginning",
                false => "a repeated cast sends only what is missing",
            };
            eprintln!("clearway: interrupted; no receiver has a partial file; {then}");
            return Ok(Exit::Interrupted);
        }
        other => other?,
    };
    let figures = summary.figures();
    print(&request.format.text(&figures, &summary, || summary.table())?)?;
    if let Some(keep) = &request.keep {
        keep(figures, summary.warnings())?;
    }
    Ok(if summary.is_complete() { Exit::Good } else { Exit::Failed })
}

/// Casts to the ranks of the job that a launcher started, one of each host.
fn across_job(request: &CastRequest) -> Result<Exit> {
    match job::join_or_start(&JobSpec::LAUNCHED)? {
        JobRole::Coordinator(site) if site.is_alone() => {
            let sentence = "no receiver is named: say --to HOSTS, or start one process on each host with srun or mpirun";
            Err(UsageError::new(sentence).into())
        }
        JobRole::Coordinator(site) => match send_to_job(&site, request) {
            Ok(exit) => site.leave().map(|()| exit),
            Err(error) => site.abort(exit_of(&error), &error),
        },
        JobRole::Follower(follower) => {
            let (connection, secret) = follower.connection()?;
            let ReceiverConnection { ends, .. } = remote_receivers::over(connection)?;
            // What fails here is reported to the sender, which says it.
            if let Ok(Some(link)) = link::answer(ends, &secret) {
                let figures = ReceiverFigures::default();
                let _ = receiver::receive(link, &secret, &Destination::Anywhere, None, &figures);
            }
            follower.leave()?;
            Ok(Exit::Good)
        }
    }
}

/// Sends to the ranks of `site`; on its own host to a receiver in another process.
fn send_to_job(site: &CoordinatedJob, request: &CastRequest) -> Result<Exit> {
    let listener = MetricsListener::bind(request.metrics)?;
    let source = source(request)?;
    if is_home(request.into.as_deref()) {
        refuse_removal(request, &source)?;
    }
    let secret = site.secret()?.into_bytes();
    let each_rank = request.into.as_ref().is_some_and(|into| into.contains("%r"));
    let firsts: Vec<_> = site.hosts().into_iter().map(|ranks| ranks[..1].to_vec()).collect();
    let takes_part = |rank| each_rank || firsts.iter().any(|first| first.contains(&rank));
    let ranks = site.accept_ranks()?;
    let name = |rank| {
        if each_rank { format!("{} ({rank})", site.host(rank)) } else { site.host(rank).to_owned() }
    };
    let mut contacts = vec![remote_receivers::on_this_host(name(ROOT), &secret)];
    let mut others = Vec::new();
    for ConnectedRank { rank, connection } in ranks {
        if takes_part(rank) {
            let connect = move || remote_receivers::to_receiver(connection);
            contacts.push(ExpectedReceiver {
                name: name(rank),
                into: None,
                connect: Connector::Once(Box::new(connect)),
            });
        } else {
            // It waits until this connection ends.
            others.push(connection);
        }
    }
    let options = order(request, source, contacts, secret);
    served(request, listener, options, site.interrupt().clone())
}

/// Runs the receiver that a sender started, over ssh or on its own host: the secret is the first
/// line of standard input.
///
/// # Errors
/// One sentence: nobody speaks there.
pub(crate) fn receive() -> Result<Exit> {
    let mut line = String::new();
    let mut input = stdin().lock();
    std::io::Read::take(&mut input, 2 * SECRET as u64 * 2 + 1)
        .read_line(&mut line)
        .context("standard input")?;
    drop(input);
    let secret = bytes_of(line.trim_end()).filter(|secret| !secret.is_empty());
    let secret = secret
        .context("this command is for the program itself; use `clearway cast FILE --to HOST`")?;
    let mut output = stdout();
    output
        .write_all(&[remote_receivers::STARTED])
        .and_then(|()| output.flush())
        .context("the sender is gone")?;
    let reached = std::env::var("SSH_CONNECTION").ok().and_then(|words| addresses(&words));
    let Some(link) = link::answer((Box::new(stdin()), Box::new(output)), &secret)? else {
        return Ok(Exit::Failed);
    };
    // What fails is reported to the sender, which says it.
    let figures = ReceiverFigures::default();
    Ok(match receiver::receive(link, &secret, &Destination::Anywhere, reached, &figures) {
        Ok(()) => Exit::Good,
        Err(_) => Exit::Failed,
    })
}

/// Returns the addresses of both ends of an ssh connection, the sender's first: client, its port,
/// server, its port.
fn addresses(words: &str) -> Option<[Ipv4Addr; 2]> {
    let mut words = words.split(' ');
    Some([words.next()?.parse().ok()?, words.nth(1)?.parse().ok()?])
}
