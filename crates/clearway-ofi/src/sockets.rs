//! Marks the TCP sockets that a provider opened, from outside, without any privilege.
//!
//! # Model
//! The `tcp` provider has no way to set a mark, but its sockets are this process's own. They are
//! found by walking the process's descriptors: a TCP socket belongs to a lane when its own port is
//! the lane's listening port (a peer connected) or its peer's address is that of a peer's lane
//! (this end connected). Packets sent before the walk are unmarked, so a connection begins with a
//! message that nobody times.
//!
//! # Source
//! Measured over veth, counted at the peer: every packet after the walk carries the mark; a walk
//! takes 0.1 to 1.2 ms. `IP_TOS` also sets the priority, by a table older than DSCP, so the
//! priority is set after it; unprivileged values are 0 to 6 (`socket(7)`).

use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, RawFd};

use clearway_proto::base::Class;
use socket2::{Protocol, SockRef};

/// What a walk did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MarkedSockets {
    /// Sockets that carry their class's mark now.
    pub(crate) sockets: u64,
    /// Sockets that refused it.
    pub(crate) refused: u64,
}

/// Marks every connected TCP socket of this process for which `class_of` (own address, peer's
/// address) knows a class.
pub(crate) fn mark(class_of: &dyn Fn(SocketAddr, SocketAddr) -> Option<Class>) -> MarkedSockets {
    let mut marked = MarkedSockets::default();
    for_each_connection(&mut |own, peer, socket| {
        let Some(class) = class_of(own, peer) else { return };
        match set(socket, own, class) {
            Ok(()) => marked.sockets += 1,
            Err(_) => marked.refused += 1,
        }
    });
    marked
}

/// Shows every connected TCP socket of this process: own address, peer's address, the socket.
pub(crate) fn for_each_connection(visit: &mut dyn FnMut(SocketAddr, SocketAddr, &SockRef<'_>)) {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
    for number in numbers.collect::<Vec<_>>() {
        // SAFETY: the number was a descriptor of this process a moment ago and is borrowed for a
        // few calls that read or set options of a socket. The provider's sockets are closed in
        // calls of the library only, which this thread makes. Another thread may close its own
        // meanwhile: then the calls fail, or find a socket that nobody names.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        let socket = SockRef::from(&descriptor);
        if !socket.protocol().is_ok_and(|protocol| protocol == Some(Protocol::TCP)) {
            continue;
        }
        let ends = || {
            Some((socket.local_addr().ok()?.as_socket()?, socket.peer_addr().ok()?.as_socket()?))
        };
        if let Some((own, peer)) = ends() {
            visit(own, peer, &socket);
        }
    }
}

fn set(socket: &SockRef<'_>, own: SocketAddr, class: Class) -> std::io::Result<()> {
    let tos = u32::from(class.dscp().tos());
    if own.is_ipv4() {
        socket.set_tos_v4(tos)?
    } else {
        socket.set_tclass_v6(tos)?
    }
    socket.set_priority(class.host_priority())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    #[test]
    fn mark__both_ends_of_the_named_connection_and_no_other() {
        let pair = || {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
            let address = listener.local_addr().expect("an address");
            let client = TcpStream::connect(address).expect("connected");
            (address, client, listener.accept().expect("accepted").0)
        };
        let (named, client, server) = pair();
        let (_, other, _held) = pair();
        let class_of =
            |own: SocketAddr, peer| (own == named || peer == named).then_some(Class::LowLatency);
        assert_eq!(mark(&class_of), MarkedSockets { sockets: 2, refused: 0 });
        let marks = |stream: &TcpStream| {
            let socket = SockRef::from(stream);
            (socket.tos_v4().expect("a mark"), socket.priority().expect("a priority"))
        };
        assert_eq!(marks(&client), (0xb8, 6));
        assert_eq!(marks(&server), (0xb8, 6));
        assert_eq!(marks(&other), (0, 0));
    }
}
