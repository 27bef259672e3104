//! System calls with pointers in them, behind safe functions: the only unsafe code of this crate.
//!
//! # Invariants
//! I1. No pointer outlives the call that it was made for.
//!
//! # Not here
//! What is sent when (`transmit`), what the received bytes mean (`receive`, `control`).

#![allow(unsafe_code)]
// Lengths have other types in musl's headers.
#![allow(clippy::unnecessary_cast)]

use std::io;
use std::mem;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use clearway_proto::base::{Class, Nanos};

use super::control::{self, ControlMessages};
use super::transmit::SegmentRun;

/// Bytes of one receive slot: the longest datagram of IPv4, and so the longest run that the kernel
/// gives in one piece.
pub(super) const SLOT_LENGTH: usize = 65_536;

/// `struct cmsghdr` with the u16 of `UDP_SEGMENT` behind it, padded as `CMSG_SPACE(2)` is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct SegmentControl {
    length: usize,
    level: libc::c_int,
    kind: libc::c_int,
    segment: u16,
}

/// Room for the control messages of one datagram: stamp (32 bytes), TOS (24), segment length (24),
/// rounded up.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
struct ReceiveControl([u8; 128]);

/// Memory of `sendmmsg` arguments, kept between calls.
#[derive(Debug, Default)]
pub(super) struct SendCall {
    pieces: Vec<libc::iovec>,
    names: Vec<libc::sockaddr_in>,
    controls: Vec<SegmentControl>,
    headers: Vec<libc::mmsghdr>,
}

// SAFETY: the pointers in `pieces` and `headers` are written at the beginning of each call and
// never read after it.
unsafe impl Send for SendCall {}

impl SendCall {
    /// Sends `runs` in order without blocking; returns how many the kernel took. The pieces of
    /// message `i`, in order, are `pieces_of(i)`.
    ///
    /// # Errors
    /// What the kernel said about the first run, when it took none.
    pub(super) fn send<'a>(
        &mut self,
        socket: BorrowedFd<'_>,
        runs: &[SegmentRun],
        pieces_of: &dyn Fn(usize) -> [&'a [u8]; 2],
    ) -> io::Result<usize> {
        self.pieces.clear();
        self.names.clear();
        self.controls.clear();
        self.headers.clear();
        for run in runs {
            let before = self.pieces.len();
            for i in run.messages() {
                pieces_of(i).into_iter().for_each(|piece| self.add(piece, before));
            }
            let mut header = empty_header();
            header.msg_iovlen = (self.pieces.len() - before) as _;
            self.headers.push(libc::mmsghdr { msg_hdr: header, msg_len: 0 });
            self.names.push(name(run.to));
            self.controls.push(segment_control(run.segment.unwrap_or(0)));
        }
        if let ([piece], [name], [SegmentRun { segment: None, .. }]) =
            (&*self.pieces, &*self.names, runs)
        {
            // SAFETY: the piece is borrowed for longer than the call ('a); the name is an IPv4
            // address of the given length. `sendto` spares the kernel copying a header and a list
            // of pieces: 0.1 us, measured.
            let taken = unsafe {
                libc::sendto(
                    socket.as_raw_fd(),
                    piece.iov_base,
                    piece.iov_len,
                    libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
                    ptr::from_ref(name).cast(),
                    size_of_val(name) as libc::socklen_t,
                )
            };
            return if taken >= 0 { Ok(1) } else { Err(io::Error::last_os_error()) };
        }
        self.point_headers(runs);
        // SAFETY: `headers` has that many elements; all pointers in them point into vectors that
        // are not touched until the call returns, and into pieces that are borrowed for longer than
        // the call ('a).
        let taken = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                self.headers.len() as libc::c_uint,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        usize::try_from(taken).map_err(|_| io::Error::last_os_error())
    }

    /// Adds a piece to a run whose first one is `first`. One that begins where the one before ends
    /// prolongs it, which spares the kernel 40 ns (measured).
    fn add(&mut self, piece: &[u8], first: usize) {
        match self.pieces[first..].last_mut() {
            _ if piece.is_empty() => {}
            Some(last)
                if last.iov_base.wrapping_byte_add(last.iov_len).cast_const()
                    == piece.as_ptr().cast() =>
            {
                last.iov_len += piece.len();
            }
            _ => self.pieces.push(iovec(piece)),
        }
    }

    /// Points the headers at the other vectors, which are complete and do not move any more.
    fn point_headers(&mut self, runs: &[SegmentRun]) {
        let mut first_piece = 0;
        for (i, run) in runs.iter().enumerate() {
            let header = &mut self.headers[i].msg_hdr;
            header.msg_name = ptr::from_mut(&mut self.names[i]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            header.msg_iov = self.pieces[first_piece..].as_mut_ptr();
            if run.segment.is_some() {
                header.msg_control = ptr::from_mut(&mut self.controls[i]).cast();
                header.msg_controllen = size_of::<SegmentControl>() as _;
            }
            first_piece += header.msg_iovlen as usize;
        }
    }
}

fn iovec(piece: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() }
}

fn name(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
        sin_zero: [0; 8],
    }
}

fn segment_control(segment: u16) -> SegmentControl {
    SegmentControl {
        length: mem::offset_of!(SegmentControl, segment) + size_of::<u16>(),
        level: libc::SOL_UDP,
        kind: libc::UDP_SEGMENT,
        segment,
    }
}

fn empty_header() -> libc::msghdr {
    // SAFETY: all-zero bytes are a valid `msghdr`: null pointers and zero lengths.
    unsafe { mem::zeroed() }
}

/// One filled receive slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceiveSlot {
    /// The sender's address.
    pub(super) from: SocketAddrV4,
    /// Where its bytes lie in the arena.
    pub(super) start: usize,
    /// How many there are.
    pub(super) length: usize,
    /// The control messages of the datagrams.
    pub(super) control: ControlMessages,
}

/// Memory of `recvmmsg` arguments, and the arena that its slots fill.
#[derive(Debug)]
pub(super) struct ReceiveCall {
    arena: Vec<u8>,
    names: Vec<libc::sockaddr_in>,
    controls: Vec<ReceiveControl>,
    pieces: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

// SAFETY: the pointers in `pieces` and `headers` are written at the beginning of each call and
// never read after it.
unsafe impl Send for ReceiveCall {}

impl ReceiveCall {
    /// Creates an arena of `slots` slots.
    pub(super) fn new(slots: usize) -> Self {
        let header = libc::mmsghdr { msg_hdr: empty_header(), msg_len: 0 };
        Self {
            arena: vec![0; slots * SLOT_LENGTH],
            names: vec![name(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)); slots],
            controls: vec![ReceiveControl([0; 128]); slots],
            pieces: vec![libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; slots],
            headers: vec![header; slots],
        }
    }

    /// Returns what the slots hold.
    pub(super) fn arena(&self) -> &[u8] {
        &self.arena
    }

    /// Returns what the slots hold, to be changed in place.
    pub(super) fn arena_mut(&mut self) -> &mut [u8] {
        &mut self.arena
    }

    /// Receives into `slots` without blocking; returns how many were filled, from the first on.
    ///
    /// # Errors
    /// What the kernel said when it filled none; `WouldBlock` for an empty queue.
    pub(super) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        slots: Range<usize>,
    ) -> io::Result<usize> {
        for i in slots.clone() {
            let bytes = &mut self.arena[i * SLOT_LENGTH..(i + 1) * SLOT_LENGTH];
            self.pieces[i] =
                libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
            let mut header = empty_header();
            header.msg_name = ptr::from_mut(&mut self.names[i]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            header.msg_iov = ptr::from_mut(&mut self.pieces[i]);
            header.msg_iovlen = 1;
            header.msg_control = ptr::from_mut(&mut self.controls[i]).cast();
            header.msg_controllen = size_of::<ReceiveControl>() as _;
            self.headers[i] = libc::mmsghdr { msg_hdr: header, msg_len: 0 };
        }
        let headers = &mut self.headers[slots];
        if let [only] = headers {
            // SAFETY: as below, for one header; `recvmsg` spares the kernel's second look at an
            // empty queue.
            let length =
                unsafe { libc::recvmsg(socket.as_raw_fd(), &mut only.msg_hdr, libc::MSG_DONTWAIT) };
            only.msg_len = u32::try_from(length).map_err(|_| io::Error::last_os_error())?;
            return Ok(1);
        }
        // SAFETY: `headers` has that many elements; each points at its own slot, name and control
        // buffer, which belong to `self` and are not touched until the call returns.
        let filled = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                headers.len() as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        };
        usize::try_from(filled).map_err(|_| io::Error::last_os_error())
    }

    /// Returns what the last call put into slot `i`.
    pub(super) fn slot(&self, i: usize) -> ReceiveSlot {
        let header = &self.headers[i];
        let control = &self.controls[i].0;
        let control_length = (header.msg_hdr.msg_controllen as usize).min(control.len());
        let name = &self.names[i];
        ReceiveSlot {
            from: SocketAddrV4::new(
                Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr)),
                u16::from_be(name.sin_port),
            ),
            start: i * SLOT_LENGTH,
            length: (header.msg_len as usize).min(SLOT_LENGTH),
            control: control::read_messages(&control[..control_length]),
        }
    }
}

/// Waits until a descriptor is ready, at most `timeout`; returns how many are. A signal ends the
/// wait early.
pub(super) fn poll(watched: &mut [libc::pollfd], timeout: Option<Nanos>) -> usize {
    let limit = timeout.map(|timeout| libc::timespec {
        tv_sec: (timeout.0 / 1_000_000_000) as libc::time_t,
        tv_nsec: (timeout.0 % 1_000_000_000) as libc::c_long,
    });
    let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the list has that many entries; a descriptor that is not open is reported as such,
    // not followed. The limit is null or lives through the call; a null signal mask changes none.
    let ready = unsafe {
        libc::ppoll(watched.as_mut_ptr(), watched.len() as libc::nfds_t, limit, ptr::null())
    };
    usize::try_from(ready).unwrap_or(0)
}

/// Takes one report off the socket's error queue; returns whether there was one.
pub(super) fn take_error_report(socket: BorrowedFd<'_>) -> bool {
    let mut header = empty_header();
    // SAFETY: a header without buffers is valid; the kernel then drops what the report quotes.
    let taken = unsafe {
        libc::recvmsg(socket.as_raw_fd(), &mut header, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT)
    };
    taken >= 0
}

/// Sets an option whose value is an int.
pub(super) fn set_option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the value is an int that lives through the call, and the length says so.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            ptr::from_ref(&value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns how many datagrams the kernel dropped at this socket since it was opened, most of them
/// for want of buffer.
pub(super) fn dropped(socket: BorrowedFd<'_>) -> u32 {
    const DROPS: usize = libc::SK_MEMINFO_DROPS as usize;
    let mut values = [0u32; DROPS + 1];
    let mut length = size_of_val(&values) as libc::socklen_t;
    // SAFETY: the array lives through the call and the length is its size.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            values.as_mut_ptr().cast(),
            &mut length,
        )
    };
    if result == 0 { values[DROPS] } else { 0 }
}

/// Makes the kernel give an arriving datagram to the socket of its class, among the sockets bound
/// to one port.
///
/// The sockets must have been bound in the order of [`Class::ALL`]. A mark that belongs to no class
/// goes to best effort.
pub(super) fn steer_by_class(socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut program = steering();
    let filter =
        libc::sock_fprog { len: program.len() as libc::c_ushort, filter: program.as_mut_ptr() };
    // SAFETY: the program has `len` instructions and lives through the call; the kernel copies it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            ptr::from_ref(&filter).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns a classic BPF program: the TOS byte without its congestion bits chooses the socket by
/// number.
fn steering() -> Vec<libc::sock_filter> {
    let instruction = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let give = |class: Class| instruction(libc::BPF_RET | libc::BPF_K, 0, 0, class.index() as u32);
    // The TOS byte is the second of the IPv4 header (RFC 791).
    let tos = libc::SKF_NET_OFF.wrapping_add(1) as u32;
    let mut program = vec![
        instruction(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, tos),
        instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, 0xfc),
    ];
    for class in Class::ALL {
        let mark = u32::from(class.dscp().tos());
        program.push(instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, mark));
        program.push(give(class));
    }
    program.push(give(Class::BestEffort));
    program
}
