//! Requests that make links, addresses, neighbours and routes.
//!
//! # Source
//! `include/uapi/linux/if_link.h`, `if_addr.h`, `neighbour.h`, `rtnetlink.h`, `veth.h`.

use std::net::Ipv4Addr;
use std::os::fd::RawFd;

use crate::netlink::{ACK, CREATE, DUMP, EXCL, NetlinkRequest, REPLACE, REQUEST};
use crate::plan::{LinkEnd, MacAddress, Neighbour, Route};
use crate::rtattr::{NetlinkMessage, find, u32_at};

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const RTM_NEWNEIGH: u16 = 28;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MASTER: u16 = 10;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_GSO_MAX_SEGS: u16 = 40;
const IFLA_GSO_MAX_SIZE: u16 = 41;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_INFO_SLAVE_DATA: u16 = 5;
const IFLA_BRPORT_MCAST_FLOOD: u16 = 27;
const VETH_INFO_PEER: u16 = 1;
const IFLA_BR_MCAST_SNOOPING: u16 = 23;

/// `IFF_UP`.
const UP: u32 = 1;
/// `IF_OPER_UP`: carrier on both sides and queues attached.
const OPERSTATE_UP: u8 = 6;
const AF_INET: u8 = 2;
const AF_BRIDGE: u8 = 7;
/// `NUD_PERMANENT`: the entry never expires.
const PERMANENT: u16 = 0x80;
/// `NUD_NOARP`: in a bridge's table, a static entry that is not the bridge's own.
const STATIC: u16 = 0x40;
/// `NTF_MASTER`: the entry belongs to the bridge above the port.
const OF_MASTER: u8 = 0x04;

/// The MTU: the bytes of a packet of one frame.
const MTU: u32 = 1500;
/// The most frames of one packet: the kernel's usual 64 KiB of them (`GSO_LEGACY_MAX_SIZE`).
pub const OFFLOAD_MAX: u32 = 65_536 / MTU;

/// Writes a `struct ifinfomsg`.
fn ifinfo(index: u32, flags: u32, change: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
    bytes[12..16].copy_from_slice(&change.to_ne_bytes());
    bytes
}

fn device(message: NetlinkMessage, end: &LinkEnd) -> NetlinkMessage {
    taking(1, message.text(IFLA_IFNAME, &end.interface).attr(IFLA_ADDRESS, &end.mac.0))
}

/// Returns the message that lets an interface take packets of up to `frames` frames.
fn taking(frames: u32, message: NetlinkMessage) -> NetlinkMessage {
    message.u32(IFLA_GSO_MAX_SEGS, frames).u32(IFLA_GSO_MAX_SIZE, frames * MTU)
}

/// Lets an interface take packets of up to `frames` frames, as one with segmentation offload does.
pub(crate) fn offload(index: u32, frames: u32) -> NetlinkRequest {
    let message = NetlinkMessage::new(RTM_NEWLINK, REQUEST | ACK, &ifinfo(index, 0, 0));
    NetlinkRequest::new(
        format!("let an interface take packets of {frames} frames"),
        taking(frames, message),
    )
}

/// Makes a veth pair: `near` in the socket's namespace, `far` in the namespace that `far_netns`
/// refers to.
pub(crate) fn veth(near: &LinkEnd, far: &LinkEnd, far_netns: RawFd) -> NetlinkRequest {
    let head =
        NetlinkMessage::new(RTM_NEWLINK, REQUEST | ACK | CREATE | EXCL, &ifinfo(near.index, 0, 0));
    let message = device(head, near).nest(IFLA_LINKINFO, |m| {
        m.text(IFLA_INFO_KIND, "veth").nest(IFLA_INFO_DATA, |m| {
            m.open(VETH_INFO_PEER, &ifinfo(far.index, 0, 0), |m| {
                device(m, far).u32(IFLA_NET_NS_FD, far_netns as u32)
            })
        })
    });
    NetlinkRequest::new(
        format!("make the veth pair {} - {}", near.interface, far.interface),
        message,
    )
}

/// Makes a bridge that floods multicast to every port and never asks for it.
pub(crate) fn bridge(name: &str, index: u32, mac: MacAddress) -> NetlinkRequest {
    let message =
        NetlinkMessage::new(RTM_NEWLINK, REQUEST | ACK | CREATE | EXCL, &ifinfo(index, 0, 0))
            .text(IFLA_IFNAME, name)
            .attr(IFLA_ADDRESS, &mac.0)
            .nest(IFLA_LINKINFO, |m| {
                m.text(IFLA_INFO_KIND, "bridge")
                    .nest(IFLA_INFO_DATA, |m| m.u8(IFLA_BR_MCAST_SNOOPING, 0))
            });
    NetlinkRequest::new(format!("make the bridge {name}"), message)
}

/// Puts a port under a bridge.
pub(crate) fn enslave(port: u32, bridge: u32) -> NetlinkRequest {
    let message = NetlinkMessage::new(RTM_NEWLINK, REQUEST | ACK, &ifinfo(port, 0, 0))
        .u32(IFLA_MASTER, bridge);
    NetlinkRequest::new("put a port under its bridge", message)
}

/// Returns the request after which a port of a bridge takes no multicast that is flooded.
pub(crate) fn keep_multicast_from(port: u32) -> NetlinkRequest {
    let message = NetlinkMessage::new(RTM_NEWLINK, REQUEST | ACK, &ifinfo(port, 0, 0))
        .nest(IFLA_LINKINFO, |m| {
            m.nest(IFLA_INFO_SLAVE_DATA, |m| m.u8(IFLA_BRPORT_MCAST_FLOOD, 0))
        });
    NetlinkRequest::new("keep multicast from a port of a bridge", message)
}

/// Brings an interface up.
pub(crate) fn up(index: u32) -> NetlinkRequest {
    NetlinkRequest::new(
        "bring an interface up",
        NetlinkMessage::new(RTM_NEWLINK, REQUEST | ACK, &ifinfo(index, UP, UP)),
    )
}

/// Gives an interface an address.
pub(crate) fn address(index: u32, address: Ipv4Addr, prefix: u8) -> NetlinkRequest {
    let mut fixed = vec![AF_INET, prefix, 0, 0];
    fixed.extend_from_slice(&index.to_ne_bytes());
    let octets = address.octets();
    let message = NetlinkMessage::new(RTM_NEWADDR, REQUEST | ACK | CREATE | EXCL, &fixed)
        .attr(1, &octets)
        .attr(2, &octets);
    NetlinkRequest::new(format!("give an interface the address {address}/{prefix}"), message)
}

fn ndmsg(family: u8, index: u32, state: u16, flags: u8) -> Vec<u8> {
    let mut fixed = vec![family, 0, 0, 0];
    fixed.extend_from_slice(&index.to_ne_bytes());
    fixed.extend_from_slice(&state.to_ne_bytes());
    fixed.extend_from_slice(&[flags, 0]);
    fixed
}

/// Tells an interface whose link address belongs to which address, so that nobody has to ask.
pub(crate) fn neighbour(entry: &Neighbour) -> NetlinkRequest {
    let fixed = ndmsg(AF_INET, entry.index, PERMANENT, 0);
    let message = NetlinkMessage::new(RTM_NEWNEIGH, REQUEST | ACK | CREATE | REPLACE, &fixed)
        .attr(1, &entry.address.octets())
        .attr(2, &entry.mac.0);
    NetlinkRequest::new(format!("set the neighbour {}", entry.address), message)
}

/// Tells a bridge behind which port a link address lives, so that it never floods what a silent
/// host receives.
pub(crate) fn behind(port: u32, mac: MacAddress) -> NetlinkRequest {
    let fixed = ndmsg(AF_BRIDGE, port, STATIC, OF_MASTER);
    let message =
        NetlinkMessage::new(RTM_NEWNEIGH, REQUEST | ACK | CREATE | REPLACE, &fixed).attr(2, &mac.0);
    NetlinkRequest::new("fill the forwarding table of a bridge", message)
}

const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_MULTIPATH: u16 = 9;

/// Adds a route; several next hops share its flows equally.
pub(crate) fn route(route: &Route) -> NetlinkRequest {
    // struct rtmsg: family, dst_len, src_len, tos, table MAIN, protocol STATIC, scope, type
    // UNICAST, flags.
    let scope = if route.via.is_empty() { 253 } else { 0 };
    let fixed = [AF_INET, route.prefix, 0, 0, 254, 4, scope, 1, 0, 0, 0, 0];
    let mut message = NetlinkMessage::new(RTM_NEWROUTE, REQUEST | ACK | CREATE | EXCL, &fixed);
    if route.prefix > 0 {
        message = message.attr(RTA_DST, &route.destination.octets());
    }
    message = match route.via.as_slice() {
        [] => message.u32(RTA_OIF, route.index),
        [gateway] => message.attr(RTA_GATEWAY, &gateway.octets()),
        gateways => message.nest(RTA_MULTIPATH, |m| {
            // struct rtnexthop: length, flags, hops (weight - 1), interface (0: found by the
            // gateway), then RTA_GATEWAY.
            let head = [16u16.to_ne_bytes(), [0, 0], [0, 0], [0, 0]].concat();
            gateways.iter().fold(m, |m, gateway| m.raw(&head).attr(RTA_GATEWAY, &gateway.octets()))
        }),
    };
    NetlinkRequest::new(format!("add the route to {}/{}", route.destination, route.prefix), message)
}

/// Asks for all links of a namespace.
pub(crate) fn all() -> NetlinkMessage {
    NetlinkMessage::new(RTM_GETLINK, REQUEST | DUMP, &ifinfo(0, 0, 0))
}

/// What a link answers about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkState {
    pub(crate) index: u32,
    /// Carrier is there and the queues are attached.
    pub(crate) running: bool,
    pub(crate) gso_segments: Option<u32>,
    pub(crate) gso_bytes: Option<u32>,
}

/// Reads one answer to [`all`].
pub(crate) fn state(body: &[u8]) -> Option<LinkState> {
    let index = u32_at(body, 4)?;
    let attributes = body.get(16..)?;
    let number = |kind| find(attributes, kind).and_then(|payload| u32_at(payload, 0));
    Some(LinkState {
        index,
        running: find(attributes, IFLA_OPERSTATE) == Some(&[OPERSTATE_UP]),
        gso_segments: number(IFLA_GSO_MAX_SEGS),
        gso_bytes: number(IFLA_GSO_MAX_SIZE),
    })
}
