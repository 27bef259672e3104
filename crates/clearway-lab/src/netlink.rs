//! A route netlink socket that stays in the namespace it was opened in, and applies many requests
//! in few system calls.
//!
//! # Invariants
//! I1. Every request is answered before `apply` returns: what follows finds the state it asked for.
//! I2. A refusal names the step, the kernel's reason, and what is missing where that can be known.

use std::io;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::errno::Errno;

use crate::LabError;
use crate::rtattr::{HEADER, NetlinkMessage, ReceivedMessage, find, messages, u32_at};

/// `NLM_F_REQUEST`.
pub(crate) const REQUEST: u16 = 0x1;
/// `NLM_F_ACK`: answer even when all went well.
pub(crate) const ACK: u16 = 0x4;
/// `NLM_F_REPLACE`.
pub(crate) const REPLACE: u16 = 0x100;
/// `NLM_F_EXCL`.
pub(crate) const EXCL: u16 = 0x200;
/// `NLM_F_CREATE`.
pub(crate) const CREATE: u16 = 0x400;
/// `NLM_F_ROOT | NLM_F_MATCH`: answer with all objects.
pub(crate) const DUMP: u16 = 0x300;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// `NLM_F_CAPPED`: the answer does not repeat the request.
const CAPPED: u16 = 0x100;
/// `NLMSGERR_ATTR_MSG`: the kernel's sentence about a refusal.
const ERROR_TEXT: u16 = 1;
/// This many answers (about 1 kB each in kernel accounting) fit into the default receive buffer of
/// 208 KiB.
const BATCH: usize = 64;

/// What to do when the object is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissingObject {
    /// It is an error.
    Refuse,
    /// There is nothing to do.
    Accept,
}

/// One step of a configuration.
#[derive(Clone, Debug)]
pub(crate) struct NetlinkRequest {
    /// The step as a verb phrase, for an error.
    pub(crate) doing: String,
    pub(crate) message: NetlinkMessage,
    pub(crate) missing: MissingObject,
}

impl NetlinkRequest {
    pub(crate) fn new(doing: impl Into<String>, message: NetlinkMessage) -> Self {
        Self { doing: doing.into(), message, missing: MissingObject::Refuse }
    }
}

/// A route netlink socket.
#[derive(Debug)]
pub(crate) struct RouteSocket {
    socket: Socket,
    sequence: u32,
}

impl RouteSocket {
    /// Opens a socket in the namespace of the calling thread; it stays there.
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Without these the kernel's reasons are bare numbers; older kernels do not know them.
        let _ = socket.set_ext_ack(true);
        let _ = socket.set_cap_ack(true);
        Ok(Self { socket, sequence: 0 })
    }

    /// Carries out `requests` in order and waits until all are answered.
    ///
    /// # Errors
    /// The first refusal; requests after it may have been carried out.
    pub(crate) fn apply(&mut self, requests: &[NetlinkRequest]) -> Result<(), LabError> {
        requests.chunks(BATCH).try_for_each(|batch| self.apply_batch(batch))
    }

    fn apply_batch(&mut self, batch: &[NetlinkRequest]) -> Result<(), LabError> {
        let first = self.sequence.wrapping_add(1);
        let mut bytes = Vec::new();
        for request in batch {
            self.sequence = self.sequence.wrapping_add(1);
            request.message.write(self.sequence, &mut bytes);
        }
        let talk = |error| LabError::kernel("talk over netlink", error);
        self.socket.send(&bytes, 0).map_err(talk)?;
        let (mut answered, mut refusal) = (0, None);
        while answered < batch.len() {
            let (datagram, _) = self.socket.recv_from_full().map_err(talk)?;
            for answer in messages(&datagram).filter(|m| m.kind == NLMSG_ERROR) {
                let Some(request) = batch.get(answer.sequence.wrapping_sub(first) as usize) else {
                    continue;
                };
                answered += 1;
                let refused = refusal_of(&answer, request);
                refusal = refusal.or(refused);
            }
        }
        refusal.map_or(Ok(()), Err)
    }

    /// Asks for all objects that `message` names and gives each answer's body to `take`.
    pub(crate) fn dump(
        &mut self,
        message: &NetlinkMessage,
        mut take: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut bytes = Vec::new();
        message.write(self.sequence, &mut bytes);
        self.socket.send(&bytes, 0)?;
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            for answer in messages(&datagram).filter(|m| m.sequence == self.sequence) {
                match answer.kind {
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => return Err(io::Error::from_raw_os_error(code_of(&answer))),
                    _ => take(answer.body),
                }
            }
        }
    }
}

/// Returns the error number of an answer; zero is success.
fn code_of(answer: &ReceivedMessage<'_>) -> i32 {
    u32_at(answer.body, 0).map_or(Errno::EPROTO as i32, |code| (code as i32).wrapping_neg())
}

fn refusal_of(answer: &ReceivedMessage<'_>, request: &NetlinkRequest) -> Option<LabError> {
    let code = code_of(answer);
    let nothing_there =
        [Errno::ENOENT as i32, Errno::EINVAL as i32, Errno::ENODEV as i32].contains(&code);
    if code == 0 || (request.missing == MissingObject::Accept && nothing_there) {
        return None;
    }
    let repeated = if answer.flags & CAPPED != 0 {
        HEADER
    } else {
        u32_at(answer.body, 4).unwrap_or(0) as usize
    };
    let attributes = answer.body.get(4 + repeated.next_multiple_of(4)..).unwrap_or_default();
    let said = find(attributes, ERROR_TEXT)
        .map(|text| format!(" ({})", String::from_utf8_lossy(text).trim_end_matches('\0')))
        .unwrap_or_default();
    Some(LabError::Kernel {
        doing: request.doing.clone(),
        cause: io::Error::from_raw_os_error(code),
        hint: said + &hint(code, &request.doing),
    })
}

/// Returns what is usually missing when the kernel answers `code` to this step.
fn hint(code: i32, doing: &str) -> String {
    let modules = [
        ("veth", "veth"),
        ("bridge", "bridge"),
        ("TBF", "sch_tbf"),
        ("HTB", "sch_htb"),
        ("filter", "cls_u32"),
        ("pfifo", "sch_fifo (built into every kernel with traffic control)"),
    ];
    let absent = [Errno::EOPNOTSUPP as i32, Errno::ENOENT as i32].contains(&code);
    match modules.iter().find(|(word, _)| absent && doing.contains(word)) {
        Some((_, module)) => format!("; load the kernel module first: `modprobe {module}` as root"),
        None if code == Errno::EPERM as i32 => format!("; {}", crate::permission::advice()),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: i32, flags: u16, tail: &[u8]) -> Vec<u8> {
        let mut body = code.wrapping_neg().to_ne_bytes().to_vec();
        body.extend_from_slice(&20u32.to_ne_bytes());
        body.extend_from_slice(&[0; 12]);
        body.extend_from_slice(tail);
        let mut bytes = Vec::new();
        NetlinkMessage::new(NLMSG_ERROR, flags, &body).write(1, &mut bytes);
        bytes
    }

    #[test]
    fn refusal__carries_the_kernels_sentence_and_the_missing_module() {
        let request =
            NetlinkRequest::new("make the veth pair p0", NetlinkMessage::new(16, REQUEST, &[]));
        let text = NetlinkMessage::new(0, 0, &[]).text(ERROR_TEXT, "Unknown device type");
        let mut tail = Vec::new();
        text.write(0, &mut tail);
        let bytes = answer(Errno::EOPNOTSUPP as i32, CAPPED, &tail[HEADER..]);
        let refusal = refusal_of(&messages(&bytes).next().unwrap(), &request).unwrap().to_string();
        assert!(refusal.starts_with("the kernel refused to make the veth pair p0"), "{refusal}");
        assert!(
            refusal
                .contains("(Unknown device type); load the kernel module first: `modprobe veth`"),
            "{refusal}"
        );
    }

    #[test]
    fn refusal__a_missing_object_is_accepted_only_where_asked() {
        let bytes = answer(Errno::ENOENT as i32, CAPPED, &[]);
        let message = messages(&bytes).next().unwrap();
        let mut request =
            NetlinkRequest::new("remove the queues", NetlinkMessage::new(37, REQUEST, &[]));
        assert!(refusal_of(&message, &request).is_some());
        request.missing = MissingObject::Accept;
        assert!(refusal_of(&message, &request).is_none());
        assert!(refusal_of(&messages(&answer(0, CAPPED, &[])).next().unwrap(), &request).is_none());
    }
}
