//! Opens the sockets of a wire: five on one port, one for each class, and one for each multicast
//! group.
//!
//! # Model
//! Each class has a socket of its own, bound to the same address and port. Sending, the socket
//! carries the class's mark and priority, and its send buffer is the class's own: bulk data that
//! fills its buffer blocks bulk data only. Receiving, the kernel gives each datagram to the socket
//! of its mark (a five-line classic BPF program on the shared port), so a flood of one class can
//! only overflow that class's buffer.
//!
//! # Source
//! Priorities: `IP_TOS` also sets the priority, by a table older than DSCP that puts expedited
//! forwarding into pfifo_fast's middle band; so the priority is set after it. Unprivileged values
//! are 0 to 6 (`SO_PRIORITY`, `socket(7)`); pfifo_fast sends 6 first, 0 next, 1 and 2 last
//! (`tc-pfifo_fast(8)`).
//!
//! # Invariants
//! I1. The port is bound exclusively before it is shared, so no port is shared with another program
//!     by accident.
//! I2. The class sockets are bound in the order of [`Class::ALL`], which is the order of the
//!     steering program.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsFd;

use clearway_proto::base::{Bytes, Class};
use socket2::{Domain, Protocol, Socket, Type};

use super::syscall;
use crate::RuntimeError;

/// Sizes asked for; what the system grants can be read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketBuffers {
    /// Send buffer of each class. A longer one saves waiting and adds delay.
    pub send: Bytes,
    /// Receive buffer of each class.
    pub receive: Bytes,
}

impl Default for SocketBuffers {
    /// Returns the usual buffers. Send: three segmented packets of 64 kB with the kernel's
    /// overhead. Receive: the kernel's default of 208 KiB lost 42 % of a burst of 1000 packets of
    /// 1400 bytes (measured); 4 MiB hold 1,800 of them.
    fn default() -> Self {
        Self { send: Bytes(256 << 10), receive: Bytes(4 << 20) }
    }
}

/// A bound UDP port whose address can be published before the peers are known.
#[derive(Debug)]
pub struct UdpPort {
    socket: Socket,
    address: SocketAddrV4,
}

impl UdpPort {
    /// Binds `address`; port 0 takes any free one. Datagrams that arrive before the wire is opened
    /// wait.
    ///
    /// # Errors
    /// [`RuntimeError::Bind`] when the address is taken or not of this host.
    pub fn bind(address: SocketAddrV4) -> Result<Self, RuntimeError> {
        let bound = || -> io::Result<Self> {
            let socket = datagram_socket()?;
            socket.bind(&address.into())?;
            let address =
                socket.local_addr()?.as_socket_ipv4().ok_or(io::ErrorKind::AddrNotAvailable)?;
            Ok(Self { socket, address })
        };
        bound().map_err(|cause| RuntimeError::Bind { address, cause })
    }

    /// Returns the bound address.
    pub fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// Opens the sockets of all classes, in the order of [`Class::ALL`].
    pub(super) fn share(
        self,
        buffers: SocketBuffers,
        multicast: Option<Ipv4Addr>,
    ) -> Result<Vec<Socket>, RuntimeError> {
        self.socket
            .set_reuse_port(true)
            .map_err(RuntimeError::system("share a port among classes"))?;
        let address = self.address;
        let mut sockets = vec![self.socket];
        for _ in 1..Class::ALL.len() {
            let open = || -> io::Result<Socket> {
                let socket = datagram_socket()?;
                socket.set_reuse_port(true)?;
                socket.bind(&address.into())?;
                Ok(socket)
            };
            sockets.push(open().map_err(|cause| RuntimeError::Bind { address, cause })?);
        }
        syscall::steer_by_class(sockets[0].as_fd())
            .map_err(RuntimeError::system("steer datagrams by their class"))?;
        for (socket, class) in sockets.iter().zip(Class::ALL) {
            receive_options(socket, buffers)?;
            if comes_in_runs(class) {
                join_datagrams(socket);
            }
            send_options(socket, class, buffers, multicast)?;
        }
        Ok(sockets)
    }
}

fn datagram_socket() -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Opens a socket that receives the group at `group` on `interface`, and nothing else.
pub(super) fn group_socket(
    group: SocketAddrV4,
    interface: Ipv4Addr,
    buffers: SocketBuffers,
) -> Result<Socket, RuntimeError> {
    let open = || -> io::Result<Socket> {
        let socket = datagram_socket()?;
        // Several ranks of one host receive the same group on the same port.
        socket.set_reuse_address(true)?;
        socket.bind(&group.into())?;
        socket.set_multicast_all_v4(false)?;
        socket.join_multicast_v4(group.ip(), &interface)?;
        Ok(socket)
    };
    let socket = open().map_err(|cause| RuntimeError::Bind { address: group, cause })?;
    receive_options(&socket, buffers)?;
    join_datagrams(&socket);
    Ok(socket)
}

fn receive_options(socket: &Socket, buffers: SocketBuffers) -> Result<(), RuntimeError> {
    let fd = socket.as_fd();
    let size = i32::try_from(buffers.receive.0).unwrap_or(i32::MAX);
    if syscall::set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, size).is_err() {
        let size = size.unsigned_abs() as usize;
        socket.set_recv_buffer_size(size).map_err(RuntimeError::system("size a receive buffer"))?;
    }
    syscall::set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
        .map_err(RuntimeError::system("stamp received datagrams"))?;
    socket
        .set_recv_tos_v4(true)
        .map_err(RuntimeError::system("report the mark of received datagrams"))?;
    Ok(())
}

/// Returns whether joining pays: a socket that joins costs every message 0.2 us of its way
/// (measured), and urgent messages come singly. Runs of theirs are cut by the kernel.
const fn comes_in_runs(class: Class) -> bool {
    match class {
        Class::Control | Class::LowLatency => false,
        Class::BestEffort | Class::Bulk | Class::Scavenger => true,
    }
}

/// Lets the kernel give a run of datagrams in one piece. Kernels before 5.0 lack it and give every
/// datagram singly: slower, and nothing else.
fn join_datagrams(socket: &Socket) {
    let _ = syscall::set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1);
}

fn send_options(
    socket: &Socket,
    class: Class,
    buffers: SocketBuffers,
    multicast: Option<Ipv4Addr>,
) -> Result<(), RuntimeError> {
    socket
        .set_tos_v4(u32::from(class.dscp().tos()))
        .map_err(RuntimeError::system("mark packets with their class"))?;
    socket
        .set_priority(class.host_priority())
        .map_err(RuntimeError::system("give packets their class's priority"))?;
    let size = usize::try_from(buffers.send.0).unwrap_or(usize::MAX);
    socket.set_send_buffer_size(size).map_err(RuntimeError::system("size a send buffer"))?;
    syscall::set_option(socket.as_fd(), libc::IPPROTO_IP, libc::IP_RECVERR, 1)
        .map_err(RuntimeError::system("report what packets met"))?;
    if let Some(interface) = multicast {
        let set = || -> io::Result<()> {
            socket.set_multicast_if_v4(&interface)?;
            // One hop: a job's multicast stays in its network.
            socket.set_multicast_ttl_v4(1)?;
            // Other ranks of this host must hear it; this rank drops its own by number.
            socket.set_multicast_loop_v4(true)
        };
        set().map_err(RuntimeError::system("prepare a socket for multicast"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bind__a_taken_port_is_refused_in_one_sentence() {
        let first = UdpPort::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let sentence = UdpPort::bind(first.address()).expect_err("taken").to_string();
        assert!(
            sentence.starts_with(&format!("cannot open UDP port {}: ", first.address())),
            "{sentence}"
        );
    }

    #[test]
    fn bind__a_port_shared_among_classes_is_still_taken_for_others() {
        let first = UdpPort::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = first.address();
        let sockets = first.share(SocketBuffers::default(), None).expect("shared");
        assert!(UdpPort::bind(address).is_err());
        assert_eq!(sockets.len(), Class::ALL.len());
    }

    #[test]
    fn share__every_socket_carries_its_classs_mark_and_priority() {
        let port = UdpPort::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let sockets = port.share(SocketBuffers::default(), None).expect("shared");
        let marks: Vec<_> = sockets.iter().map(|s| (s.tos_v4().ok(), s.priority().ok())).collect();
        let expected = [(0xc0, 6), (0xb8, 6), (0, 0), (0x20, 2), (0x04, 1)]
            .map(|(tos, p)| (Some(tos), Some(p)));
        assert_eq!(marks, expected);
    }
}
