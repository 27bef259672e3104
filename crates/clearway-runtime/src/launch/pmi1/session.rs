//! The order of requests of one rank: greeting, exchange, barrier, end.
//!
//! # Model
//! An exchange is two barriers. Each rank puts its bytes; rank 0 gets them one by one and puts all
//! of them again in full pages, so that the others get few long values instead of many short ones.
//! Keys carry the number of the exchange, because nothing can be put twice.

use super::super::job::{HandOver, JobLink, ProgramShare};
use super::super::{EXCHANGE_MAX, LaunchError};
use super::pages::{self, PageAssembly};
use super::text::{self, Pmi1Reply};

/// Lines to the launcher and from it.
pub(super) trait LineChannel: std::fmt::Debug + Send {
    /// Lets a program that this process starts exchange lines.
    fn lend(&mut self) -> Result<ProgramShare, LaunchError>;
    /// Ends what [`lend`](Self::lend) began: that program has ended.
    fn take_back(&mut self) -> Result<(), LaunchError>;
    /// Sends a whole line.
    fn send_line(&mut self, request: &str) -> Result<(), LaunchError>;
    /// Reads the next line; `what` is what it will mean.
    fn next_line(&mut self, what: &'static str) -> Result<Vec<u8>, LaunchError>;
}

/// Longest value used, whatever the launcher offers: lines of 1024 characters are what every
/// implementation reads.
const LINE_SAFE: usize = 1024;

/// One rank's conversation with its launcher.
#[derive(Debug)]
pub(super) struct Pmi1Session<L> {
    lines: L,
    rank: u32,
    size: u32,
    /// The name of the shared space.
    space: String,
    /// Characters of a value.
    room: usize,
    exchanges: u32,
    /// A program exchanges lines as this rank.
    is_lent: bool,
}

impl<L: LineChannel> Pmi1Session<L> {
    /// Greets the launcher.
    pub(super) fn start(lines: L, rank: u32, size: u32) -> Result<Self, LaunchError> {
        let mut session =
            Self { lines, rank, size, space: String::new(), room: 0, exchanges: 0, is_lent: false };
        let version = [("pmi_version", "1"), ("pmi_subversion", "1")];
        session
            .request("init", &version, "response_to_init", "the launcher's greeting", |_| Ok(()))?;
        let longest =
            session.request("get_maxes", &[], "maxes", "an answer of the launcher", |reply| {
                reply.number("vallen_max")
            })?;
        let named = |reply: &Pmi1Reply<'_>| reply.needed("kvsname").map(str::to_owned);
        session.space = session.request(
            "get_my_kvsname",
            &[],
            "my_kvsname",
            "an answer of the launcher",
            named,
        )?;
        session.room = room(longest, &session.space)?;
        Ok(session)
    }

    /// Sends one request and reads what `take` makes of its answer.
    fn request<T>(
        &mut self,
        command: &str,
        fields: &[(&str, &str)],
        answer: &'static str,
        what: &'static str,
        take: impl FnOnce(&Pmi1Reply<'_>) -> Result<T, LaunchError>,
    ) -> Result<T, LaunchError> {
        self.lines.send_line(&text::request(command, fields))?;
        let line = self.lines.next_line(what)?;
        take(&Pmi1Reply::parse(&line)?.expect(answer)?)
    }

    /// Puts `bytes` under `name`.
    fn put(&mut self, name: &str, bytes: &[u8]) -> Result<(), LaunchError> {
        let space = self.space.clone();
        for (at, page) in pages::cut(bytes, self.room).iter().enumerate() {
            let key = format!("{name}-{at}");
            let fields = [("kvsname", space.as_str()), ("key", &key), ("value", page)];
            self.request("put", &fields, "put_result", "an answer of the launcher", |_| Ok(()))?;
        }
        Ok(())
    }

    /// Gets what was put under `name`, at most `limit` bytes.
    fn get(&mut self, name: &str, limit: usize) -> Result<Vec<u8>, LaunchError> {
        let mut pasting = PageAssembly::begin(&self.page(name, 0)?, limit)?;
        for at in 1.. {
            if !pasting.is_open() {
                break;
            }
            pasting.add(&self.page(name, at)?)?;
        }
        pasting.finish()
    }

    fn page(&mut self, name: &str, at: usize) -> Result<String, LaunchError> {
        let (space, key) = (self.space.clone(), format!("{name}-{at}"));
        let fields = [("kvsname", space.as_str()), ("key", &key)];
        let value = |reply: &Pmi1Reply<'_>| reply.needed("value").map(str::to_owned);
        self.request("get", &fields, "get_result", "an answer of the launcher", value)
    }
}

impl<L: LineChannel> JobLink for Pmi1Session<L> {
    fn exchange(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, LaunchError> {
        let round = self.exchanges;
        self.exchanges += 1;
        self.put(&format!("clearway-{round}-{}", self.rank), own)?;
        self.barrier()?;
        let everybody = format!("clearway-{round}-all");
        if self.rank == 0 {
            let size = self.size;
            let all = (0..size)
                .map(|rank| self.get(&format!("clearway-{round}-{rank}"), EXCHANGE_MAX))
                .collect::<Result<Vec<_>, _>>()?;
            self.put(&everybody, &pages::bind(&all))?;
            self.barrier()?;
            return Ok(all);
        }
        self.barrier()?;
        let limit = (EXCHANGE_MAX + 4).saturating_mul(self.size as usize);
        let bound = self.get(&everybody, limit)?;
        pages::unbind(&bound, self.size)
    }

    fn barrier(&mut self) -> Result<(), LaunchError> {
        self.request("barrier_in", &[], "barrier_out", "a barrier of all ranks", |_| Ok(()))
    }

    fn hand_over(&mut self) -> Result<HandOver, LaunchError> {
        let share = self.lines.lend()?;
        self.is_lent = true;
        Ok(HandOver { has_barriers: false, share })
    }

    fn finish(mut self: Box<Self>) -> Result<(), LaunchError> {
        if self.is_lent {
            self.lines.take_back()?;
        }
        let farewell =
            self.request("finalize", &[], "finalize_ack", "the launcher's farewell", |_| Ok(()));
        // A program that used it has said farewell already, and hydra closed the connection then.
        if self.is_lent { Ok(()) } else { farewell }
    }

    fn abort(&mut self, code: i32, _sentence: &str) {
        // A launcher that cannot be notified any more sees this process end.
        let _ = self.lines.send_line(&text::request("abort", &[("exitcode", &code.to_string())]));
    }
}

/// Returns how many characters a value may have when the launcher takes values below `longest` and
/// lines of `LINE_SAFE`.
fn room(longest: usize, space: &str) -> Result<usize, LaunchError> {
    /// `cmd=put kvsname= key= value=`, the end of line, a terminating zero, and a key of 40
    /// characters.
    const AROUND: usize = 27 + 2 + 40;
    let line = LINE_SAFE.saturating_sub(AROUND + space.len());
    let room = longest.saturating_sub(1).min(line);
    if room < pages::ROOM_MIN {
        return Err(text::refused(format!("values of {longest} bytes are too short to use")));
    }
    Ok(room)
}

#[cfg(test)]
mod tests;
