//! What every rank of a joined job can do, whichever way it was joined.

use std::fmt;
use std::os::fd::OwnedFd;
use std::process::{self, Command};
use std::thread;
use std::time::Duration;

use clearway_proto::base::Rank;

use super::munge;
use super::placeholder::PlaceholderShell;
use super::rendezvous::frame::MemberKey;
use super::send::say_line;
use super::{EXCHANGE_MAX, JobEndAction, JoinMethod, JoinedJob, LaunchError, calls};
use crate::munge::MungeDaemon;

/// The pause between the last words of a rank and its abort. Hydra ends the ranks that it runs at
/// once and drops what it has not read: without the pause 3 of 40 sentences were lost on a busy
/// machine.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// The authority that vouches for what was exchanged, in addition to the launcher that carried it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential {
    /// Nobody: it is worth what the launcher's ways are worth.
    Nobody,
    /// The site's munge: it came from processes of this user, and no others could read it.
    Munge,
}

/// The way to the other ranks.
pub(super) trait JobLink: fmt::Debug + Send {
    /// Gives `own`, at most [`EXCHANGE_MAX`] bytes, and gets everybody's by rank.
    fn exchange(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, LaunchError>;
    /// Returns when every rank has called it.
    fn barrier(&mut self) -> Result<(), LaunchError>;
    /// Goes on without ranks that are gone, as far as it is up to this; returns whether barriers
    /// are complete without them.
    fn go_on_without_lost(&mut self) -> bool {
        false
    }
    /// Leaves the launcher to a program that this process starts.
    fn hand_over(&mut self) -> Result<HandOver, LaunchError> {
        Ok(HandOver { has_barriers: true, share: ProgramShare::default() })
    }
    /// Leaves in order.
    fn finish(self: Box<Self>) -> Result<(), LaunchError>;
    /// Notifies the launcher, as far as it can be notified, that the job failed; the caller ends
    /// the process.
    fn abort(&mut self, code: i32, sentence: &str);
}

/// What a launcher is like for a process that left it to a program.
#[derive(Debug)]
pub(super) struct HandOver {
    /// The process has barriers nevertheless.
    pub(super) has_barriers: bool,
    pub(super) share: ProgramShare,
}

/// What a program needs to use the launcher as the rank of the process that starts it.
#[derive(Debug, Default)]
pub struct ProgramShare {
    /// Names and values of variables.
    pub(super) variables: &'static [(&'static str, &'static str)],
    /// A descriptor to inherit, and the variable with its number.
    pub(super) descriptor: Option<(&'static str, OwnedFd)>,
}

impl ProgramShare {
    /// Gives it to the program that `command` starts, and to no other.
    ///
    /// # Errors
    /// The system has no room for a descriptor.
    pub fn give_to(&self, command: &mut Command) -> Result<(), LaunchError> {
        command.envs(self.variables.iter().copied());
        if let Some((name, descriptor)) = &self.descriptor {
            let number = descriptor.try_clone().and_then(|copy| calls::pass_on(command, copy));
            let number = number.map_err(LaunchError::system("leave the launcher to a program"))?;
            command.env(name, number.to_string());
        }
        Ok(())
    }
}

/// A joined job. Exchanges and barriers are collective: all ranks call the same ones in the same
/// order.
///
/// A job that is dropped without [`finish`](Self::finish) counts as failed with most launchers.
#[derive(Debug)]
pub struct Job {
    rank: Rank,
    size: u32,
    method: JoinMethod,
    notes: Vec<String>,
    secret: Option<MemberKey>,
    link: Box<dyn JobLink>,
    /// Barriers can be complete.
    has_barriers: bool,
    /// Where nobody else would notice that this rank is gone.
    stand_in: Option<PlaceholderShell>,
    ending: JobEndAction,
}

impl Job {
    pub(super) fn new(
        joined: JoinedJob,
        notes: Vec<String>,
        stand_in: Option<PlaceholderShell>,
        ending: JobEndAction,
    ) -> Self {
        assert!(joined.rank < joined.size, "a method gives a rank of the job");
        let JoinedJob { method, rank, size, secret, link } = joined;
        Self {
            rank: Rank(rank),
            size,
            method,
            notes,
            secret,
            link,
            has_barriers: true,
            stand_in,
            ending,
        }
    }

    pub(super) fn single(notes: Vec<String>, ending: JobEndAction) -> Self {
        Self {
            rank: Rank(0),
            size: 1,
            method: JoinMethod::Single,
            notes,
            secret: None,
            link: Box::new(SingleRankLink),
            has_barriers: true,
            stand_in: None,
            ending,
        }
    }

    /// Returns this process's rank.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// Returns how many ranks the job has.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Returns how the job was joined.
    pub fn method(&self) -> &JoinMethod {
        &self.method
    }

    /// Returns one line for each method that was tried before, and why it gave no job.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns random bytes that all ranks of this job know and nobody else, when it was joined in
    /// a way that carries a secret: over ssh, or on one host. What is exchanged is not secret, in
    /// none of the ways.
    pub fn secret(&self) -> Option<&[u8]> {
        self.secret.as_ref().map(MemberKey::bytes)
    }

    /// Gives `own` to all ranks and returns everybody's bytes by rank.
    ///
    /// # Errors
    /// `own` is longer than 64 KiB, a rank did not come in time, or the launcher failed.
    /// # Cost
    /// One or two barriers of the launcher, and memory for everything that is given.
    pub fn exchange(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, LaunchError> {
        if own.len() > EXCHANGE_MAX {
            return Err(LaunchError::TooLong { length: own.len(), limit: EXCHANGE_MAX });
        }
        let all = self.link.exchange(own)?;
        assert_eq!(all.len(), self.size as usize, "an exchange gives one entry for each rank");
        Ok(all)
    }

    /// Exchanges as [`exchange`](Self::exchange) does, with each contribution in a credential of
    /// munge where this host has it.
    ///
    /// # Errors
    /// As for an exchange; a contribution that does not come from a process of the same user; munge
    /// on some hosts only.
    /// # Cost
    /// A question to the host's `munged` for each rank, about 0.1 ms.
    pub fn exchange_with_credential(
        &mut self,
        own: &[u8],
    ) -> Result<(Vec<Vec<u8>>, Credential), LaunchError> {
        let Some(daemon) = MungeDaemon::find() else {
            let all = self.exchange(own)?;
            (0..).zip(&all).try_for_each(|(rank, bytes)| munge::expect_plain(rank, bytes))?;
            return Ok((all, Credential::Nobody));
        };
        let credentials = self.exchange(&munge::seal(&daemon, self.rank.0, own)?)?;
        let open = |(rank, credential): (u32, &Vec<u8>)| munge::open(&daemon, rank, credential);
        let all = (0..).zip(&credentials).map(open).collect::<Result<_, _>>()?;
        Ok((all, Credential::Munge))
    }

    /// Lets the job go on without ranks that end from now on, as far as the launcher lets it.
    /// Collective like the others, and there are no exchanges behind it. What is behind a
    /// launcher's own barriers, which would wait for the dead, is left out then:
    /// [`barrier`](Self::barrier) waits for nobody where the ranks did not meet over TCP. The end
    /// of rank 0 still ends all.
    pub fn go_on_without_lost(&mut self) {
        self.has_barriers = self.link.go_on_without_lost();
        if self.rank != Rank(0)
            && let Some(stand_in) = self.stand_in.take()
        {
            stand_in.dismiss();
        }
    }

    /// Leaves the launcher to a program that this process starts, as this rank, and returns what to
    /// give it. There are no exchanges behind it, and [`barrier`](Self::barrier) waits for nobody
    /// where the launcher made the barriers.
    ///
    /// # Errors
    /// The launcher failed.
    pub fn hand_over(&mut self) -> Result<ProgramShare, LaunchError> {
        let HandOver { has_barriers, share } = self.link.hand_over()?;
        self.has_barriers &= has_barriers;
        Ok(share)
    }

    /// Returns when every rank has called it.
    ///
    /// # Errors
    /// A rank did not come in time, or the launcher failed.
    pub fn barrier(&mut self) -> Result<(), LaunchError> {
        if self.has_barriers { self.link.barrier() } else { Ok(()) }
    }

    /// Leaves the job in order; collective like the others. Exiting without it is a failure to most
    /// launchers.
    ///
    /// # Errors
    /// A rank did not come in time, or the launcher failed.
    pub fn finish(self) -> Result<(), LaunchError> {
        self.link.finish()?;
        if let Some(stand_in) = self.stand_in {
            stand_in.dismiss();
        }
        Ok(())
    }

    /// Says `sentence` on standard error, tells the launcher that the job failed, and ends this
    /// process with `code`, as [`JoinOptions::ending`](super::JoinOptions::ending) says. Which
    /// rank's code the launcher then ends with is the launcher's choice.
    pub fn abort(mut self, code: i32, sentence: &str) -> ! {
        print_reason(sentence);
        thread::sleep(LAST_WORDS);
        self.link.abort(code, sentence);
        if let Some(stand_in) = self.stand_in {
            stand_in.dismiss();
        }
        end_process(self.ending, code, None)
    }
}

/// Says `sentence`, if there is anything to say.
fn print_reason(sentence: &str) {
    if !sentence.is_empty() {
        say_line(sentence);
    }
}

/// Ends the process because its job ended: the two places that must do so call this, and nothing
/// else does.
#[allow(clippy::disallowed_methods)] // The caller asked for it, or there is no job any more that could go on.
pub(super) fn end_process(ending: JobEndAction, code: i32, sentence: Option<&str>) -> ! {
    print_reason(sentence.unwrap_or_default());
    match ending {
        JobEndAction::Exit => process::exit(code),
        JobEndAction::AtOnce => calls::exit_at_once(code),
    }
}

/// The link of a job of one rank.
#[derive(Debug)]
struct SingleRankLink;

impl JobLink for SingleRankLink {
    fn exchange(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, LaunchError> {
        Ok(vec![own.to_vec()])
    }

    fn barrier(&mut self) -> Result<(), LaunchError> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), LaunchError> {
        Ok(())
    }

    fn abort(&mut self, _code: i32, _sentence: &str) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchange__alone_gives_back_what_was_given() {
        let mut job = Job::single(Vec::new(), JobEndAction::Exit);
        assert_eq!(job.exchange(b"abc").unwrap(), [b"abc".to_vec()]);
        job.barrier().unwrap();
        job.finish().unwrap();
    }

    #[test]
    fn exchange__more_than_the_limit_is_refused() {
        let mut job = Job::single(Vec::new(), JobEndAction::Exit);
        assert!(job.exchange(&vec![0; EXCHANGE_MAX]).is_ok());
        assert!(matches!(
            job.exchange(&vec![0; EXCHANGE_MAX + 1]),
            Err(LaunchError::TooLong { .. })
        ));
    }
}
