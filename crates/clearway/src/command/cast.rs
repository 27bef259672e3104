//! `clearway cast`: what goes where, from flags.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use clearway_proto::base::BitsPerSec;

use super::flagged::{FlagValues, joined, parameters};
use super::results::{ReportDestination, ReportFlags};
use crate::agent::AgentFlags;
use crate::mechanism::cast::{
    CastRequest, ExcludePattern, KeepFigures, PORT, RemovalRight, cast, receive, serve,
};
use crate::mechanism::staging::log_flags::positive_rate;
use crate::policy::PolicyFlags;
use crate::report::FigureFormat;
use crate::report::model::ReportScenario;
use crate::run::exit::{Exit, UsageError};
use crate::run::metrics::MetricsAddress;
use crate::run::{self, VenueKind, notice};

/// The name of its reports.
const NAME: &str = "cast";

/// The other ends of a cast.
#[derive(Debug, Subcommand)]
enum CastCommand {
    /// Wait for senders with a key: a receiver where there is neither a launcher nor ssh.
    Serve {
        /// Accept senders with the key in this file, readable by its owner only: head -c 32
        /// /dev/urandom makes one.
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
        /// Write into this directory; nothing outside is touched.
        #[arg(long, value_name = "DIR", default_value = ".")]
        into: PathBuf,
        /// Refuse casts with --delete: senders with the key add and replace files, and remove none.
        #[arg(long)]
        no_delete: bool,
        /// Listen at this address.
        #[arg(long, value_name = "ADDRESS:PORT", default_value_t = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT))]
        listen: SocketAddrV4,
        /// Serve figures of this receiver for Prometheus over HTTP: a port of the loopback, or
        /// ADDR:PORT for everybody who reaches that address, for there is no authentication
        /// [default: none].
        #[arg(long, value_name = "ADDR:PORT")]
        metrics: Option<MetricsAddress>,
    },
    /// A receiver on standard input and output; started by the program itself.
    #[command(hide = true)]
    Receive,
}

/// What `clearway cast` sends, and to whom.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct CastFlags {
    #[command(subcommand)]
    command: Option<CastCommand>,
    /// Cast these files and directories; what is in `DIR/` goes into the target itself, `DIR` with
    /// its name. `-` is standard input.
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Cast to these hosts: a file with one a line, or a list as in n[01-64],m1, with a directory
    /// for all of it as in n[01-64],m1:/scratch or for some as in n1:/a,n2:/b. Repeat the option
    /// for more hosts. Receivers are started over ssh, or with --key listen at their ports
    /// (10.0.0.7:27182). Without it, the ranks of a job under srun, mpirun or mpiexec, one of each
    /// host.
    #[arg(long, value_name = "HOSTS")]
    to: Vec<String>,
    /// Write into this directory at each receiver; %h is its host, %r its number [default: over ssh
    /// the home directory, with --key that of `cast serve`, in a job the one where it runs].
    #[arg(long, value_name = "DIR")]
    into: Option<String>,
    /// Send to receivers that run `clearway cast serve` with the key in this file.
    #[arg(long, value_name = "FILE", requires = "to")]
    key: Option<PathBuf>,
    /// With --key: connect to this port of hosts that are named without one.
    #[arg(long, default_value_t = PORT, requires = "key")]
    port: u16,
    /// With ssh: run this program on the hosts [default: the path of this one].
    #[arg(long, value_name = "PATH", conflicts_with = "key")]
    remote_program: Option<PathBuf>,
    /// Name what comes from standard input or --exec [default: stream].
    #[arg(long)]
    name: Option<String>,
    /// Cast what this line for the shell prints; if it fails, the cast does, and what was there
    /// stays.
    #[arg(long, value_name = "PROGRAM", conflicts_with = "paths")]
    exec: Option<String>,
    /// Fail the cast unless standard input or --exec gives N bytes. 0 is needed for an empty file.
    #[arg(long, value_name = "N")]
    expect_bytes: Option<u64>,
    /// Leave out what this pattern matches, and all that is in directories that it matches; may
    /// stand several times. A pattern without `/` matches names at any depth (`*.o`), one with a
    /// leading or inner `/` the path below the directory that is cast (`/build`, `docs/*.html`), one
    /// with a trailing `/` directories only; `**` is any number of directories [default: none].
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<ExcludePattern>,
    /// Compare contents of files, not sizes and times.
    #[arg(long)]
    checksum: bool,
    /// Remove at each receiver, once everything has arrived there, what the source does not have
    /// below the directories that are cast; what --exclude matches stays, and nothing is removed
    /// when something could not be read.
    #[arg(long)]
    delete: bool,
    /// Ask receivers what they lack, print what would be sent to whom, and change nothing.
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Limit what each host sends, in b/s, kb/s, Mb/s or Gb/s (for example 900Mb/s), shared by this
    /// user's casts that have --rate [default: the speed of the sender's interface].
    #[arg(long, value_parser = positive_rate, allow_hyphen_values = true)]
    rate: Option<BitsPerSec>,
    /// Show how far the slowest receiver is, how fast, and how long it will take.
    #[arg(long)]
    progress: bool,
    /// Serve figures of the cast and of all its receivers for Prometheus over HTTP, as long as it
    /// takes: a port of the loopback, or ADDR:PORT for everybody who reaches that address, for there
    /// is no authentication [default: none].
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<MetricsAddress>,
    /// Write a report of the cast, report.json and report.html, into this directory [default:
    /// none].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Overwrite the report of an earlier run in --out, which is refused otherwise.
    #[arg(long, requires = "out")]
    overwrite: bool,
    #[command(flatten)]
    format: FigureFormat,
    #[command(flatten)]
    policy: PolicyFlags,
    #[command(flatten)]
    agent: AgentFlags,
}

/// Casts, or waits for casts.
pub(super) fn command(flags: &CastFlags) -> Result<Exit> {
    match &flags.command {
        Some(CastCommand::Serve { key, into, no_delete, listen, metrics }) => {
            let removal = if *no_delete { RemovalRight::Denied } else { RemovalRight::Granted };
            serve(*listen, key, into, removal, *metrics).map(|()| Exit::Good)
        }
        Some(CastCommand::Receive) => receive(),
        None if flags.paths.is_empty() && flags.exec.is_none() => {
            let sentence = "say what to cast: a file, a directory, or - for standard input";
            Err(UsageError::new(sentence).into())
        }
        None => cast(&CastRequest {
            paths: flags.paths.clone(),
            to: flags.to.clone(),
            into: flags.into.clone(),
            key: flags.key.clone(),
            port: flags.port,
            remote_program: flags.remote_program.clone(),
            name: flags.name.clone(),
            program: flags.exec.clone(),
            expected: flags.expect_bytes,
            exclude: flags.exclude.clone(),
            checksum: flags.checksum,
            delete: flags.delete,
            dry_run: flags.dry_run,
            rate: flags.rate,
            progress: flags.progress,
            metrics: flags.metrics,
            format: flags.format,
            keep: keep(flags)?,
            policy: flags.policy.clone(),
            agent: flags.agent.clone(),
        }),
    }
}

/// Returns what keeps the figures of the cast in the directory that `flags` name, if they do.
fn keep(flags: &CastFlags) -> Result<Option<KeepFigures>> {
    let report = ReportFlags { out: flags.out.clone(), overwrite: flags.overwrite };
    if report.out.is_none() {
        return Ok(None);
    }
    // What cannot be written must not be cast first.
    let results = ReportDestination::open(NAME, &report)?;
    let scenario = ReportScenario { name: NAME.to_owned(), text: String::new() };
    let begun = run::begun_without_scenario(scenario, 0, VenueKind::Cluster.name());
    let mut values: FlagValues = vec![
        ("to", joined(&flags.to)),
        ("checksum", flags.checksum.to_string()),
        ("delete", flags.delete.to_string()),
    ];
    values.extend(flags.rate.map(|rate| ("rate", rate.to_string())));
    Ok(Some(Box::new(move |figures, warnings| {
        let mut report = begun.clone();
        report.parameters = parameters(values.clone(), &report.command);
        (report.figures, report.warnings) = (figures, warnings);
        run::ended(&mut report);
        let directory = results.write(&report)?;
        notice!("report: {}", directory.join("report.html").display());
        Ok(())
    })))
}
